"""A release of before, as its commit has it, beside today's program on one store; `older_release` is its process.

`test_two_versions` shows what a program does with a format that is raised in any way. Here the older program is a real one: what it cannot
read, or takes for something else, shows even where today's readers do not mind.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_partq.core import format
from spark_partq.core.queue.records import KEPT_MS
from tests import queries
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import eventually, in_parallel, opened
from tests.scaled import messages
from tests.storage.two_releases import (
    GROUP,
    SETTINGS,
    Newer,
    Older,
    Refused,
    Seen,
    content,
    each_once,
    features,
    make,
    newer_fixture,  # noqa: F401
    newer_store,
    older_fixture,  # noqa: F401
    release_fixture,  # noqa: F401
)


# ---- side by side
@pytest.mark.parametrize("maker", ["older", "newer"])
def test_two_releases_share_a_queue(maker: str, older: Older, newer: Newer, store: str, tmp_path: Path) -> None:
    """Both write, consume in one group, scale, change settings and maintain; then each goes on from the other's checkpoint."""
    programs: dict[str, Older | Newer] = {"older": older, "newer": newer}
    make(programs[maker])
    for name, program in programs.items():
        program.do("start", name, str(tmp_path / name), **GROUP)
    written, earlier = 0, list[Seen]()

    def write(batch: int) -> None:
        nonlocal written
        for name, program in programs.items():
            program.do("write", "q", name, batch, messages(written, written + 14))
            assert (
                program.do("write", "q", name, batch, messages(written, written + 14)) == 0
            )  # it knows its own record
            written += 14

    def seen() -> list[Seen]:
        return [*earlier, *(tuple(row) for name, program in programs.items() for row in program.do("seen", name))]

    def all_seen() -> None:
        eventually(lambda: len(seen()) >= written, f"the {written} messages", timeout_s=60)
        each_once(seen(), written)

    write(0)
    all_seen()
    for batch, (program, partitions) in enumerate([(older, 3), (newer, 2)], 1):
        program.do("scale", "q", partitions)
        write(batch)
        program.do("alter_queue", "q", max_clock_skew_ms=600_000 + batch)
        program.do("set_ingress", "q", False)
        program.do("set_ingress", "q", True)
        program.do("maintain", "q")
    all_seen()
    assert all(program.do("seen", name) for name, program in programs.items())
    for name, program in programs.items():
        program.do("stop", name)
        earlier += [tuple(row) for row in program.do("seen", name)]
    programs = {"newer": older, "older": newer}
    for name, program in programs.items():
        program.do("start", name, str(tmp_path / name), **GROUP)
    write(3)
    all_seen()
    assert features(store) == set()
    assert newer.do("doctor") == older.do("doctor") == []


def test_they_commit_at_once(older: Older, newer: Newer, store: str, tmp_path: Path) -> None:
    """Races for the same versions of the same tables."""
    make(newer)
    newer.do("start", "newer", str(tmp_path / "newer"), **GROUP)

    def writes(program: Older | Newer, sink_id: str, first: int) -> Callable[[], None]:
        def run() -> None:
            for batch in range(20):
                program.do("write", "q", sink_id, batch, [(f"{sink_id}{batch % 3}", first + batch)])

        return run

    assert in_parallel([writes(older, "older", 0), writes(newer, "newer", 20)]) == [None, None]
    eventually(lambda: len(newer.do("seen", "newer")) >= 40, "the messages")
    each_once(newer.do("seen", "newer"), 40)
    assert newer.do("doctor") == older.do("doctor") == []


def test_the_older_one_takes_a_sink_that_the_newer_one_forgot(older: Older, newer: Newer, store: str) -> None:
    make(older)
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=2 * KEPT_MS)):
        newer.do("write", "q", "s", 7, messages(0, 20))
    for path in Path(store).rglob("s~*.json"):
        os.utime(path, (0, 0))
    older.do("write", "q", "other", 0, messages(20, 30))
    newer.do("maintain", "q")
    assert {table.recorded("partq:sink/s") for table in opened(store).partitions} == {-1}
    assert older.do("write", "q", "s", 0, messages(30, 40)) == 10
    older.do("maintain", "q")
    assert older.do("write", "q", "s", 0, messages(30, 40)) == 0
    assert sorted(row.v for row in queries.read(store)) == list(range(40))
    assert newer.do("doctor") == older.do("doctor") == []


# ---- a feature that it does not know
def force_writes(newer: Newer) -> None:
    newer.do("alter_queue", "q", durability="disk")


def make_segments(newer: Newer) -> None:
    newer.do("alter_queue", "q", segment_ms=1_000)
    eventually(lambda: newer.do("maintain", "q")[0].merged_files, "a segment", every_s=0.2)


@pytest.mark.parametrize(
    ("switch_on", "feature"), [(force_writes, format.FORCED_WRITES), (make_segments, format.SEGMENTS)]
)
@pytest.mark.parametrize("maker", ["older", "newer"])
def test_it_stops_when_a_feature_is_switched_on(
    maker: str,
    switch_on: Callable[[Newer], None],
    feature: str,
    older: Older,
    newer: Newer,
    store: str,
    tmp_path: Path,
) -> None:
    """Its query, its sink and its commands, and nothing of the store changes; the newer one goes on from its checkpoint."""
    make(older if maker == "older" else newer)
    Consumer(store, "s", group="slow").leave()  # for which everything is kept
    older.do("start", "a", str(tmp_path / "a"), **GROUP)
    for batch in range(2):
        older.do("write", "q", "older", batch, messages(20 * batch, 20 * batch + 10))
        newer.do("write", "q", "newer", batch, messages(20 * batch + 10, 20 * batch + 20))
    eventually(lambda: len(older.do("seen", "a")) >= 40, "the messages")
    switch_on(newer)
    assert features(store) == {feature}
    newer.do("write", "q", "newer", 2, messages(40, 50))
    refused = newer_store(f"queue 'q' in {store}", feature)
    of_group = newer_store("group 'g'", feature)  # its group's table says so, too, and is perhaps read first
    assert eventually(lambda: older.do("end", "a"), "its end").startswith((refused, of_group))
    before = content(store)
    for command, arguments, options in (
        ("write", ["q", "older", 2, messages(50, 60)], {}),
        ("write", ["q", "another", 0, messages(50, 60)], {}),
        ("start", ["b", str(tmp_path / "b")], GROUP),
        ("maintain", ["q"], {}),
        ("scale", ["q", 3], {}),
        ("alter_queue", ["q"], {"retention_ms": 1_000}),
        ("add_column", ["q", "c string"], {}),
        ("set_ingress", ["q", False], {}),
        ("describe_queue", ["q"], {}),
        ("delete_messages", ["q", {"k": "k0"}], {}),
        ("delete_queue", ["q"], {}),
    ):
        with pytest.raises(Refused) as caught:
            older.do(command, *arguments, **options)
        assert str(caught.value).startswith(refused), command
    assert content(store) == before
    newer.do("write", "q", "newer", 3, messages(50, 60))
    newer.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(newer.do("seen", "a")) >= 20, "the rest")
    each_once([*map(tuple, older.do("seen", "a")), *newer.do("seen", "a")], 60)
    newer.do("start", "s", str(tmp_path / "s"), queue="q", group="slow")
    eventually(lambda: len(newer.do("seen", "s")) >= 60, "all messages")
    each_once(newer.do("seen", "s"), 60)
    assert newer.do("doctor") == []


def test_a_queue_that_it_cannot_use_leaves_it_the_others(
    older: Older, newer: Newer, store: str, tmp_path: Path
) -> None:
    make(newer)
    newer.do("create_queue", "forced", "k string, v bigint", durability="disk", **SETTINGS)
    with pytest.raises(Refused, match=r"'forced' .* needs the feature 'forcedWrites'"):
        older.do("write", "forced", "s", 0, messages(0, 10))
    older.do("write", "q", "s", 0, messages(0, 10))
    older.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(older.do("seen", "a")) >= 10, "the messages")
    each_once(list(map(tuple, older.do("seen", "a"))), 10)
    assert newer.do("doctor") == []
