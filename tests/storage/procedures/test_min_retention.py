"""How long messages stay that every group has acknowledged, and how large a partition gets (Q8)."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core import format
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.errors import DataLossError, InvalidArgumentError, NewerStoreError
from spark_partq.storage.procedures import drain, maintain
from spark_partq.storage.procedures.remainder import ScaleProgress
from spark_partq.storage.procedures.scale import start
from tests.clocks import wall_clock
from tests.groups import Lasting
from tests.helpers import opened, position, put
from tests.planners import Query
from tests.replicas import sync
from tests.scaled import Reader, Sink, make, messages, stored
from tests.storage.procedures.test_added_columns import make as make_plain
from tests.storage.procedures.test_maintain import firsts, group_at
from tests.storage.procedures.test_make_segments import ago, commit, merged, read
from tests.versions import OLDER, Program, running

MINUTE, HOUR = 60_000, 3_600_000
FOR_LONG = 80_000 * HOUR  # longer ago than any message here came
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
BEFORE = Program(OLDER.RELEASE, 1, 1, format.FEATURES - {format.MIN_RETENTION})


def after(minutes: float) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def acknowledged(store: str, **settings: Any) -> None:
    """Queue `q` with files of 4 messages that came at 12:00, 12:10 and 12:50, all of which group `done` has acknowledged."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0, segment_ms=None, **settings)
    for minutes in (0, 10, 50):
        put(store, 0, range(4), at=after(minutes))
    group_at(store, "done", {0: 12})


def removed_at(store: str, minutes: float) -> int:
    with wall_clock(after(minutes)):
        return partq.maintain(store, "q")[0].removed_messages


def given_to(store: str, **options: Any) -> list[tuple[int, int]]:
    """The micro-batches of a query of group `g`, which acknowledges them and leaves."""
    query, found = Query(store, "a", **options), []
    while batch := query.next(Limits()):
        found += [batch[0]]
    query.leave()
    return found


# ---- the least time
def test_just_before_and_just_after(store: str) -> None:
    """Q8: a file goes when it is older than the minimum, and not when it is just so old."""
    acknowledged(store, min_retention_ms=HOUR)
    millisecond = 1 / 60_000
    for minutes, first in (
        (51, 0),
        (60, 0),
        (60 + millisecond, 4),
        (70, 4),
        (70 + millisecond, 8),
        (110, 8),
        (111, 12),
    ):
        removed_at(store, minutes)
        assert firsts(store) == [first], minutes
    assert opened(store).control.removed_end(0) == 12


def test_a_late_group_reads_what_all_others_have_acknowledged(store: str) -> None:
    """Q8: without the minimum it would begin behind that."""
    acknowledged(store, min_retention_ms=HOUR)
    assert removed_at(store, 51) == 0
    assert given_to(store) == [(0, 12)]
    assert removed_at(store, 65) == 4
    group_at(store, "later", {0: 12})
    assert partq.describe_queue(store, "q").partitions[0].first_offset == 4


def test_a_group_is_set_back_to_what_it_had_acknowledged(store: str) -> None:
    """Q8, H4: and again, as long as that is there."""
    acknowledged(store, min_retention_ms=HOUR)
    for _ in range(2):
        assert given_to(store) == [(0, 12)] and position(store, "g", 0) == 12
        assert removed_at(store, 51) == 0
        (reset,) = partq.reset_offsets(store, "g", "earliest")
        assert (reset.new, reset.again) == (0, 12)
    assert removed_at(store, 200) == 0, "now it wants them again, however old they are"
    assert given_to(store) == [(0, 12)]
    assert removed_at(store, 200) == 12


def test_without_a_group_nothing_goes(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1, min_retention_ms=1)
    put(store, 0, range(4), at=NOON)
    assert removed_at(store, 60) == 0


def test_the_longest_time_removes_what_the_least_no_longer_keeps(store: str) -> None:
    """Q8: both at 30 minutes: what nobody has read goes, and what everybody has read stayed until then."""
    acknowledged(store, min_retention_ms=HOUR // 2, retention_ms=HOUR // 2)
    put(store, 0, range(4), at=after(55))
    assert [removed_at(store, minutes) for minutes in (30, 31, 80, 86)] == [0, 4, 4, 8]


def test_a_message_that_is_kept_still_gets_too_old_to_be_delivered(store: str) -> None:
    """The lifetime of messages says who is given them, not how long they are stored."""
    acknowledged(store, min_retention_ms=FOR_LONG, message_ttl_ms=HOUR)
    assert partq.maintain(store, "q")[0].removed_messages == 0
    assert given_to(store) == []  # they came in 2024
    assert position(store, "g", 0) == 12 and firsts(store) == [0]


def test_a_segment_stays_until_its_last_message_is_old_enough(store: str) -> None:
    make_plain(store, partitions=1, min_retention_ms=6 * HOUR)
    first_us = ago(4)
    for n in range(10):
        commit(store, "abc", first_us + 60_000_000 * n)
    group_at(store, "done", {0: 30})
    wanted = read(store)
    assert merged(store) == 9
    last_is_old_ms = int(time.time() * 1000) - first_us // 1000 - 9 * MINUTE
    partq.alter_queue(
        store, "q", min_retention_ms=last_is_old_ms + 5 * MINUTE
    )  # its first messages are older than that
    assert partq.maintain(store, "q")[0].removed_messages == 0 and read(store) == wanted
    assert given_to(store) == [(0, 30)]
    partq.alter_queue(store, "q", min_retention_ms=last_is_old_ms)
    assert partq.maintain(store, "q")[0].removed_messages == 30


# ---- who heeds it
def test_an_older_program_does_not_maintain_the_queue(store: str) -> None:
    """It would remove what the minimum keeps. A queue without one it uses as ever."""
    acknowledged(store)
    with running(BEFORE):
        partq.describe_queue(store, "q")
    partq.alter_queue(store, "q", min_retention_ms=HOUR)
    partq.create_queue(store, "made", "v bigint", partitions=1, min_retention_ms=1)
    with running(BEFORE):
        for name in ("q", "made"):
            with pytest.raises(NewerStoreError, match="minRetention"):
                partq.maintain(store, name)
    partq.alter_queue(store, "q", min_retention_ms=0, max_bytes=1 << 40)
    assert opened(store).state.format.features == ("minRetention",), "it is never taken back"
    assert removed_at(store, 51) == 12


def test_a_minimum_that_is_set_while_maintenance_runs(store: str) -> None:
    """Q8: what is removed is recorded on the very settings by which it was found."""
    acknowledged(store)
    original, altered = maintain._removable, list[partq.QueueDescription]()

    def and_then(*args: Any) -> dict[int, int]:
        found = original(*args)
        if not altered:
            assert found == {0: 12}
            altered.append(partq.alter_queue(store, "q", min_retention_ms=HOUR))
        return found

    with mock.patch.object(maintain, "_removable", and_then):
        assert removed_at(store, 65) == 4
    assert firsts(store) == [4] and opened(store).control.removed_end(0) == 4


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({}, {"min_retention_ms": 2, "retention_ms": 1}),
        ({"retention_ms": 1}, {"min_retention_ms": 2}),
        ({"min_retention_ms": 2}, {"retention_ms": 1}),
        ({"min_retention_ms": 2, "retention_ms": 2}, {"retention_ms": 0}),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    store: str, settings: dict[str, Any], change: dict[str, Any]
) -> None:
    refusal = r"min_retention_ms=2 keeps messages that retention_ms=[01] removes; set retention_ms to none"
    with pytest.raises(InvalidArgumentError, match=refusal):
        partq.create_queue(store, "q", "v bigint", partitions=1, **{**settings, **change})
    partq.create_queue(store, "q", "v bigint", partitions=1, **settings)
    facts = opened(store).state.revision
    with pytest.raises(InvalidArgumentError, match=refusal):
        partq.alter_queue(store, "q", **change)
    assert opened(store).state.revision == facts
    partq.alter_queue(store, "q", min_retention_ms=2, retention_ms=None)


def test_a_replica_keeps_and_removes_with_its_primary(store: str, tmp_path: Path) -> None:
    """S7: it follows the setting, and goes by it once it has taken over."""
    there = str(tmp_path / "there")
    acknowledged(store, min_retention_ms=HOUR)
    assert removed_at(store, 65) == 4
    sync(store, there)
    partq.promote(there, "q")
    assert firsts(there) == [4] and opened(there).state.settings.min_retention_ms == HOUR
    assert removed_at(there, 70) == 0
    assert given_to(there) == [(4, 12)]
    assert removed_at(there, 111) == 8


# ---- partitions that go
def shrinking(store: str, mode: Any) -> partq.QueueDescription:
    make(store, 2, min_retention_ms=HOUR)
    Sink(store).write(0, messages(0, 30))
    reader = Reader(store)
    reader.all()
    reader.leave()
    return partq.scale(store, "q", 1, mode, timeout_s=30)


def test_a_partition_that_goes_waits_for_the_minimum(store: str) -> None:
    """S2: a late group reads it; the command does not wait, and maintenance ends it."""
    assert shrinking(store, "live").status == "ScalingDown"
    assert len(Reader(store, "late", group="late").all()) == 30
    partq.maintain(store)
    assert partq.describe_queue(store, "q").status == "ScalingDown"
    partq.alter_queue(store, "q", min_retention_ms=1)
    partq.maintain(store)
    assert partq.describe_queue(store, "q").status == "Ready"


def test_what_the_minimum_keeps_of_all_partitions_that_go(store: str) -> None:
    """So many messages a change of the count still waits for."""
    make(store, 3, min_retention_ms=HOUR)
    Sink(store).write(0, messages(0, 30))
    Reader(store).all()
    kept = [len(stored(store)[number]) for number in (1, 2)]
    partq.scale(store, "q", 1, timeout_s=30)
    assert all(kept)
    assert drain.remove_drained(opened(store)) == ScaleProgress(
        "messages that min_retention_ms keeps", sum(kept), alone=True
    )


@pytest.mark.parametrize("mode", ["drain", "delete"])
def test_a_change_by_hand_does_not_wait_for_it(store: str, mode: str) -> None:
    """S4: a drain keeps ingress disabled until it has ended; a deletion is asked for."""
    described = shrinking(store, mode)
    assert (described.status, described.ingress, described.lost) == ("Ready", True, 0)


def test_a_query_leaves_it_to_maintenance(store: str) -> None:
    """It would read all tables every second, for as long as the minimum is."""
    shrinking(store, "live")
    query = Query(store, "a")
    assert query.next() == {} and query.planner.membership.drained_queues == []
    partq.alter_queue(store, "q", min_retention_ms=0)
    assert query.next() == {} and query.planner.membership.drained_queues == ["q"]
    query.leave()


def test_a_deletion_ends_what_the_minimum_keeps(store: str) -> None:
    shrinking(store, "live")
    assert partq.scale(store, "q", 1, "delete").status == "Ready"


def test_a_minimum_that_is_set_while_partitions_are_removed(store: str) -> None:
    """S2, Q8: they were found drained under other settings."""
    make(store, 2, min_retention_ms=1)
    Sink(store).write(0, messages(0, 30))
    Reader(store).all()
    original = drain.undrained

    def and_then(*args: Any) -> Any:
        found = original(*args)
        partq.alter_queue(store, "q", min_retention_ms=HOUR)
        return found

    with mock.patch.object(drain, "undrained", and_then):
        assert partq.scale(store, "q", 1).status == "ScalingDown"


# ---- the size
def sizes(store: str, partition: int = 0) -> list[int]:
    return [int(size) for size in opened(store).table(partition).index.size]


def test_the_oldest_files_go_until_the_rest_fits(store: str) -> None:
    """Q8: whole files, whoever has read them, and of each partition by itself."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, segment_ms=None)
    for n in range(3):
        put(store, 0, range(n, n + 5))
    put(store, 1, range(5))
    group_at(store, "ahead", {0: 7, 1: 0})
    group_at(store, "behind", {0: 0, 1: 0})
    *_, middle, last = sizes(store)
    for most, first in ((sum(sizes(store)), 0), (middle + last, 5), (middle + last - 1, 10)):
        partq.alter_queue(store, "q", max_bytes=most)
        partq.maintain(store, "q")
        assert firsts(store) == [first, 0]
    assert sizes(store) == [last]
    partq.alter_queue(store, "q", max_bytes=1)
    assert partq.maintain(store, "q")[0].removed_messages == 10
    assert firsts(store) == [15, 5] and put(store, 0, [1]) == 15


def test_a_group_that_had_not_read_it_is_told(store: str) -> None:
    """Q8: as where messages were too old: it stops, or goes on behind the gap."""
    acknowledged(store)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    query.leave()
    partq.alter_queue(store, "q", max_bytes=sizes(store)[-1], min_retention_ms=FOR_LONG)
    assert partq.maintain(store, "q")[0].removed_messages == 8, "the size wins over the least time"
    query = Query(store, "a")
    with pytest.raises(DataLossError, match=r"messages 0 to 7 .* \(retention_ms or max_bytes of the queue\)"):
        query.next(Limits())
    query.leave()
    described = partq.describe_group(store, "g")
    assert any("raise the queue's retention_ms or max_bytes" in warning for warning in described.warnings)
    assert given_to(store, fail_on_data_loss=False) == [(8, 12)]


def test_a_segment_is_too_large_as_a_whole(store: str) -> None:
    make_plain(store, partitions=1)
    for hours in (5, 4):
        for n in range(3):
            commit(store, "abc", ago(hours) + 60_000_000 * n)
    assert merged(store) == 4
    first, second = sizes(store)
    partq.alter_queue(store, "q", max_bytes=first + second - 1)
    assert partq.maintain(store, "q")[0].removed_messages == 9
    assert firsts(store) == [9] and sizes(store) == [second]


def test_a_drain_removes_nothing_that_an_earlier_change_has_left(store: str) -> None:
    """Q8, S4: it is refused. One that has begun all the same leaves these partitions until its own map is open."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, min_retention_ms=FOR_LONG)
    put(store, 0, range(2))
    put(store, 1, range(3))
    Lasting(store, "a").ack(1, 3)
    partq.scale(store, "q", 1)
    with pytest.raises(partq.InvalidArgumentError, match=r"once min_retention_ms is over.* use mode live"):
        partq.scale(store, "q", 3, "drain", timeout_s=1.0)
    partq.alter_queue(store, "q", min_retention_ms=0)
    start(opened(store), 3, "drain")
    partq.alter_queue(store, "q", min_retention_ms=FOR_LONG)
    partq.maintain(store, "q")
    assert opened(store).state.removing == [1]
