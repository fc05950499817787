"""Commands of an older release, where one queue and one group are newer than it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_partq as partq
from tests.cli.outcome import Command, Outcome, assert_refused
from tests.groups import Consumer
from tests.helpers import put
from tests.versions import NEWER, OLDER, needs, raise_group, raise_queue, running

UPGRADE = f"upgrade it to {NEWER.RELEASE} or newer"


@pytest.fixture(autouse=True)
def _newer(store: str) -> Iterator[None]:
    """Queues `m`, `n` and `o`, each with a group that has read all of it; of them queue `n` and group `of-o` are newer."""
    with running(OLDER):
        for name in ("m", "n", "o"):
            partq.create_queue(store, name, "v long", partitions=1)
            put(store, 0, range(5), queue=name)
            Consumer(store, "a", group=f"of-{name}", queues=(name,), session_timeout_ms=200).ack(0, 5, queue=name)
        raise_queue(store, needs(2, 2), "n")
        raise_group(store, needs(2, 2), "of-o")
        yield


def test_list(command: Command) -> None:
    outcome = command("list", "--json")
    found = json.loads(outcome.out)
    assert [(row["name"], row["status"]) for row in found["queues"]] == [
        ("m", "Ready"),
        ("n", "NEWER_STORE"),
        ("o", "NEWER_STORE"),
    ]
    assert found["groups"] == ["of-m", "of-n", "of-o"]
    assert outcome.code == 0 and outcome.err.count("[NEWER_STORE]") == outcome.err.count(UPGRADE) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe-queue", "n"), ("describe-queue", "o"), ("describe-group", "of-o"), ("describe-group", "of-n"), ("history", "of-o"),
        ("delete-queue", "n", "--yes"), ("delete-group", "of-o", "--yes"), ("maintain", "n"), ("scale", "n", "2"), ("ingress", "disable", "n"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_about_one(command: Command, store: str, arguments: tuple[str, ...]) -> None:
    before = sorted(Path(store).rglob("*"))
    told = command(*arguments)
    last = told.err.splitlines(keepends=True)[-1]  # behind a warning about another queue
    assert_refused(Outcome(told.code, told.out, last), "NEWER_STORE", UPGRADE, "Nothing is damaged")
    assert sorted(Path(store).rglob("*")) == before


def test_doctor(command: Command) -> None:
    outcome = command("doctor")
    lines = outcome.out.splitlines()
    assert outcome.code == 1 and "3 queues" in lines[-1] and "3 groups" in lines[-1]
    faults = [line for line in lines[:-1] if line.startswith("fault: ")]
    assert [line.split(": ")[1] for line in faults] == ["queue n", "group of-o"]
    assert all("[NEWER_STORE]" in line and UPGRADE in line and "restore" not in line for line in faults)


def test_maintain(command: Command, store: str) -> None:
    """All others are maintained; nobody knows what a group still wants that cannot be read."""
    assert_refused(command("maintain"), "NEWER_STORE", UPGRADE)
    assert partq.describe_queue(store, "m").partitions[0].first_offset == 5
    assert len(list(Path(store).glob("queues/[no]/partitions/partition=0/part-*"))) == 2


def test_delete_what_is_not_newer(command: Command, store: str) -> None:
    assert command("delete-group", "of-m", "--yes").code == 0
    assert command("delete-queue", "m", "--yes").code == 0
    assert partq.list_queues(store) == ["n", "o"] and partq.list_groups(store) == ["of-n", "of-o"]
