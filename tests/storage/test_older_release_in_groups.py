"""A release of before keeps away from the groups that read a queue with `durability=disk`, which it would not know to be forced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_partq.core import format
from tests.groups import Consumer
from tests.helpers import eventually
from tests.scaled import messages
from tests.storage.two_releases import (
    GROUP,
    SETTINGS,
    Newer,
    Older,
    Refused,
    content,
    each_once,
    make,
    newer_fixture,  # noqa: F401
    newer_store,
    older_fixture,  # noqa: F401
    release_fixture,  # noqa: F401
)


def make_two(newer: Newer, durability: str = "disk") -> None:
    """Queue `forced` has that durability, and `q` the usual one."""
    make(newer)
    newer.do("create_queue", "forced", "k string, v bigint", durability=durability, **SETTINGS)


def refused_by_group(older: Older, store: str, checkpoint: Path) -> None:
    """Its query ends, its commands fail, and nothing in the store changes."""
    refused, before = newer_store("group 'g'", format.FORCED_WRITES), content(store)
    older.do("start", "refused", str(checkpoint), **GROUP)
    assert eventually(lambda: older.do("end", "refused"), "its end").startswith(refused)
    for command, options in (
        ("describe_group", {}),
        ("reset_offsets", {"to": "latest"}),
        ("delete_group", {}),
    ):
        with pytest.raises(Refused) as caught:
            older.do(command, "g", **options)
        assert str(caught.value).startswith(refused), command
    assert content(store) == before


def test_it_joins_no_group_that_reads_a_forced_queue(older: Older, newer: Newer, store: str, tmp_path: Path) -> None:
    """Not even to read another queue: it would force nothing of what it writes for the group. It joins any other group."""
    make_two(newer)
    Consumer(store, "n", group="g", queues=("forced",)).leave()
    refused_by_group(older, store, tmp_path / "refused")
    older.do("write", "q", "s", 0, messages(0, 10))
    older.do("start", "a", str(tmp_path / "a"), **GROUP | {"group": "h"})
    eventually(lambda: len(older.do("seen", "a")) >= 10, "the messages")
    older.do("stop", "a")
    each_once(list(map(tuple, older.do("seen", "a"))), 10)
    older.do("maintain", "q")
    assert newer.do("doctor") == []


def join_with_a_forced_queue(newer: Newer, store: str) -> None:
    Consumer(store, "n", group="g", queues=("forced",)).leave()


def become_forced(newer: Newer, store: str) -> None:
    """A queue that the group has read since before."""
    newer.do("alter_queue", "forced", durability="disk")


@pytest.mark.parametrize("comes", [join_with_a_forced_queue, become_forced])
def test_it_leaves_a_group_to_which_a_forced_queue_comes(
    comes: Callable[[Newer, str], None], older: Older, newer: Newer, store: str, tmp_path: Path
) -> None:
    """It may not come back, and the newer one goes on from its checkpoint."""
    make_two(newer, "process" if comes is become_forced else "disk")
    if comes is become_forced:
        Consumer(store, "n", group="g", queues=("forced",)).leave()
    older.do("write", "q", "s", 0, messages(0, 10))
    older.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(older.do("seen", "a")) >= 10, "the messages")
    assert older.do("end", "a") is None
    comes(newer, store)
    refused = newer_store("group 'g'", format.FORCED_WRITES)
    assert eventually(lambda: older.do("end", "a"), "its end").startswith(refused)
    refused_by_group(older, store, tmp_path / "a")
    newer.do("write", "q", "newer", 0, messages(10, 20))
    newer.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(newer.do("seen", "a")) >= 10, "the rest")
    each_once([*map(tuple, older.do("seen", "a")), *newer.do("seen", "a")], 20)
    assert newer.do("doctor") == []
