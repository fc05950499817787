"""What `maintain` removes, and what it must not (Q8)."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.facts import Kind
from spark_partq.storage.group.ack_table import COMPACT_AFTER
from spark_partq.storage.group.handle import Group
from spark_partq.storage.log.checkpoints import LastCheckpoint
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures import maintain
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.handle import Queue, attach_group, first_left
from spark_partq.storage.queue.partition_table import PartitionTable
from tests.clocks import no_grace, wall_clock
from tests.groups import Consumer
from tests.helpers import in_parallel, new_file, opened, position, put
from tests.replicas import grow

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def queue(store: str) -> str:
    return filled(store)


def filled(store: str) -> str:
    """Queue `q` of 2 partitions; partition 0 has files of 5, 5 and 5 messages, partition 1 one of 5."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    for n in range(3):
        put(store, 0, range(n * 5, n * 5 + 5))
    put(store, 1, range(5))
    return store


def group_at(store: str, name: str, positions: dict[int, int], queue: str = "q") -> Group:
    """A group that has acknowledged so far."""
    consumer = Consumer(store, "i", group=name, queues=(queue,), session_timeout_ms=300)
    rows = [
        AckRow(
            consumer.incarnation, 1, *partition_id, consumer.group.state.partitions[partition_id].epoch, offset, offset
        )
        for partition_id, offset in ((consumer.partition_id(p, queue), offset) for p, offset in positions.items())
    ]
    consumer.group.acknowledge(rows)
    return consumer.group


def firsts(store: str) -> list[int]:
    return [t.first_offset for t in opened(store).partitions]


def files(store: str) -> int:
    return len(list((Path(store) / "queues/q/partitions").rglob("part-*.parquet")))


def test_nothing_without_groups(queue: str) -> None:
    """Q8: messages that nobody has read stay, without a retention time."""
    (report,) = partq.maintain(queue)
    assert (report.queue, report.removed_messages, report.waiting_for) == ("q", 0, ())
    assert firsts(queue) == [0, 0] and partq.describe_queue(queue, "q").depth == 20


def test_whole_acknowledged_files(queue: str) -> None:
    """Q8: only files of which every message is acknowledged by every group."""
    group_at(queue, "g", {0: 12, 1: 5})
    group_at(queue, "h", {0: 9, 1: 0})
    (report,) = partq.maintain(queue, "q")
    assert report.to_dict() == {
        "queue": "q",
        "removed_messages": 5,
        "vacuumed_files": 0,
        "merged_files": 0,
        "waiting_for": ["g", "h"],
    }
    assert firsts(queue) == [5, 0]
    group_at(queue, "h", {0: 15, 1: 5})
    (report,) = partq.maintain(queue, "q")
    assert (report.removed_messages, report.waiting_for) == (10, ("g",))
    assert firsts(queue) == [10, 5]
    assert files(queue) == 4, "deleted only after the grace period"
    described = partq.describe_queue(queue, "q")
    assert [(p.first_offset, p.next_offset, p.depth) for p in described.partitions] == [(10, 15, 3), (5, 5, 0)]
    assert partq.maintain(queue, "q")[0].removed_messages == 0


def test_group_of_another_queue_does_not_count(queue: str) -> None:
    """Q8: only groups that read this queue are waited for."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    group_at(queue, "other", {0: 0}, queue="p")
    group_at(queue, "g", {0: 15, 1: 5})
    assert {r.queue: r.removed_messages for r in partq.maintain(queue)} == {"p": 0, "q": 20}


def test_deleted_group_is_not_waited_for(queue: str) -> None:
    """Q8: delete_group releases what a dead group held."""
    group_at(queue, "g", {0: 15, 1: 5})
    group_at(queue, "dead", {0: 0, 1: 0})
    assert partq.maintain(queue, "q")[0].removed_messages == 0
    partq.delete_group(queue, "dead")
    assert partq.maintain(queue, "q")[0].removed_messages == 20


def test_retention_time(store: str) -> None:
    """Q8: with a retention time, what is older goes whether or not it was read; files of one age together."""
    partq.create_queue(store, "q", "v bigint", partitions=1, retention_ms=3_600_000)
    for minutes in (0, 10, 50):
        put(store, 0, range(4), at=NOON + dt.timedelta(minutes=minutes))
    group_at(store, "slow", {0: 1})
    for minutes, removed, first in ((60, 0, 0), (71, 8, 8), (60 * 24, 4, 12)):
        with wall_clock(NOON + dt.timedelta(minutes=minutes)):
            assert partq.maintain(store, "q")[0].removed_messages == removed
        assert firsts(store) == [first]
    assert put(store, 0, [1]) == 12
    assert partq.describe_queue(store, "q").depth == 1


def test_dead_messages_stay_whoever_has_read_them(store: str) -> None:
    """Until they are put back they are nowhere else; so only their age removes them."""
    partq.create_queue(store, "q", "v bigint", partitions=1, dead_letter_queue="dead", rebalance_delay_ms=0)
    put(store, 0, range(5))
    found = opened(store)
    DeadLetters(found.store, "dead", "g").send(found, found.table(0), 1, DeadMessages(0, 3, "dead", 1))
    group_at(store, "archive", {0: 3}, "dead")
    assert partq.maintain(store, "dead")[0].removed_messages == 0
    assert partq.redrive(store, "q") == {"q": 3}
    partq.alter_queue(store, "dead", retention_ms=1)
    with wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        assert partq.maintain(store, "dead")[0].removed_messages == 3


def test_floors(queue: str) -> None:
    """Q8: the position that allowed the removal is fixed first; an older owner's start never lies below it."""
    group = group_at(queue, "g", {0: 10, 1: 0})
    partq.maintain(queue, "q")
    group.refresh()
    id_ = opened(queue).state.queue_id
    assert group.state.floors == {(id_, 0): 10}
    assert group.state.position((id_, 0), Acks()) == 10
    assert position(queue, "g", 0) == 10


def test_floor_is_fixed_before_anything_is_removed(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q8: a run that dies right after the floors has removed nothing, and one that cannot fix them removes nothing."""
    group_at(queue, "g", {0: 15, 1: 5})

    def crash(*_: object) -> dict[int, int]:
        raise OSError("crash")

    monkeypatch.setattr(Group, "raise_floors", crash)
    with pytest.raises(OSError, match="crash"):
        partq.maintain(queue, "q")
    assert firsts(queue) == [0, 0]


def age(store: str, seconds: float) -> None:
    """Make every data file older."""
    for file in (Path(store) / "queues/q/partitions").rglob("part-*.parquet"):
        when = time.time() - seconds
        os.utime(file, (when, when))


def test_vacuum_spares_a_write_under_way(store: str) -> None:
    """Q8, Q5: a file that no log names yet stays for the grace period; then it goes, and live files never do."""
    partq.create_queue(store, "q", "v bigint", partitions=1, vacuum_grace_ms=7_200_000)
    put(store, 0, range(3))
    pending = new_file(store, "q", 0, {"v": pa.array([7], pa.int64())})
    age(store, 3_600)
    assert partq.maintain(store, "q")[0].vacuumed_files == 0
    opened(store).partitions[0].append([pending], None)
    new_file(store, "q", 0, {"v": pa.array([8], pa.int64())})
    age(store, 8_000)
    assert partq.maintain(store, "q")[0].vacuumed_files == 1
    assert files(store) == 2
    found = opened(store).partitions[0]
    assert found.next_offset == 4
    assert all((Path(store) / found.folder / found.index.path(i)).exists() for i in range(2))


def test_vacuum_grace_is_at_least_an_hour(store: str) -> None:
    """Q8: with less, what a slow producer was told is in could be deleted. A longer one is rounded up to whole hours."""
    for too_short in (0, 1, 3_599_999):
        with pytest.raises(partq.InvalidArgumentError, match=r"vacuum_grace_ms: .* 3600000"):
            partq.create_queue(store, "q", "v bigint", partitions=1, vacuum_grace_ms=too_short)
    partq.create_queue(store, "q", "v bigint", partitions=1, vacuum_grace_ms=3_600_001)
    new_file(store, "q", 0, {"v": pa.array([8], pa.int64())})
    for _ in range(2):
        assert partq.maintain(store, "q")[0].vacuumed_files == 0
        age(store, 3_700)
    age(store, 7_300)
    assert partq.maintain(store, "q")[0].vacuumed_files == 1


def test_maintenance_beside_producers(queue: str) -> None:
    """Q8, Q5: two that maintain and two that append at once; offsets stay dense and nothing unread goes."""
    group_at(queue, "g", {0: 15, 1: 5})

    def produce() -> None:
        for n in range(8):
            put(queue, 0, [n])

    results = in_parallel([produce, produce, lambda: partq.maintain(queue, "q"), lambda: partq.maintain(queue, "q")])
    assert not [r for r in results if isinstance(r, BaseException)]
    removed = sum(r[0].removed_messages for r in results if isinstance(r, list))
    assert removed == 20
    found = opened(queue).partitions
    assert [t.first_offset for t in found] == [15, 5] and [t.next_offset for t in found] == [31, 5]


def test_segments_are_made_of_more_files_than_a_checkpoint_takes(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q8: then there are fewer; where nothing can be put together the error is told."""
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    partq.create_queue(store, "q", "v long", partitions=1)
    for second in range(6):
        put(store, 0, range(5), at=start + dt.timedelta(seconds=second))
    write = LogFolder.write_checkpoint

    def full(self: LogFolder, *args: Any) -> LastCheckpoint:
        if len(self.load(tombstones=False).files) > 5:
            raise partq.CommitFailedError("a checkpoint has too many actions")
        return write(self, *args)

    monkeypatch.setattr(LogFolder, "write_checkpoint", full)
    assert partq.maintain(store, "q")[0].merged_files == 5  # the newest file stays
    assert partq.maintain(store, "q")[0].merged_files == 0
    for _ in range(6):
        put(store, 0, range(5))  # of a period that is not over
    with pytest.raises(partq.CommitFailedError, match="too many actions"):
        partq.maintain(store, "q")


def test_maintain_many_times(queue: str) -> None:
    """Q8: maintenance of an idle queue costs nothing more each time (no new data, offsets as they were)."""
    group_at(queue, "g", {0: 15, 1: 5})
    for _ in range(4):
        partq.maintain(queue)
    assert [t.next_offset for t in opened(queue).partitions] == [15, 5]
    assert isinstance(opened(queue), Queue) and partq.describe_queue(queue, "q").depth == 0


def test_tables_of_groups_are_vacuumed(store: str) -> None:
    """Q8: files of a group that were merged away are deleted after the grace period, and its history stays."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    consumer = Consumer(store, "i")
    for _ in range(COMPACT_AFTER + 5):
        consumer.beat()
    consumer.ack(0, 5)
    acks = Path(store) / "groups/g/acks"
    assert len(list(acks.glob("*.parquet"))) > COMPACT_AFTER
    with no_grace():
        partq.maintain(store)
    assert len(list(acks.glob("*.parquet"))) < 10
    consumer.group.refresh()
    assert consumer.group.position(consumer.partition_id(0)) == 5
    assert [row["seq"] for row in consumer.group.history()] == list(range(consumer.group.state.seq))


# ---- groups that come meanwhile
def test_a_group_that_attaches_while_others_are_asked_is_asked_too(queue: str) -> None:
    """Q8: nothing is removed that it wants."""
    group_at(queue, "g", {0: 15, 1: 5})
    original, late = maintain._removable, []

    def and_then(*args: Any) -> dict[int, int]:
        found = original(*args)
        if not late:
            late.append(group_at(queue, "late", {0: 5, 1: 0}))
        return found

    with mock.patch.object(maintain, "_removable", and_then):
        assert partq.maintain(queue, "q")[0].removed_messages == 5
    assert firsts(queue) == [5, 0]


def test_a_group_that_attaches_while_messages_are_removed_starts_behind_them(queue: str) -> None:
    """Q8: it never waits for what is about to go, though it still is there."""
    group_at(queue, "g", {0: 15, 1: 5})
    original, starts = PartitionTable.remove, []

    def first_join(table: PartitionTable, until: Any) -> int:
        if not starts:
            late = opened(queue)
            attach_group(late, "late", 0)
            starts.extend(first_left(late, table) for table in late.partitions)
        return original(table, until)

    with mock.patch.object(PartitionTable, "remove", first_join):
        assert partq.maintain(queue, "q")[0].removed_messages == 20
    assert starts == [15, 5]


def test_a_group_that_has_attached_and_not_joined_is_waited_for(queue: str) -> None:
    """Q8: until it joins, or is deleted."""
    group_at(queue, "g", {0: 15, 1: 5})
    attach_group(opened(queue), "late", 0)
    (report,) = partq.maintain(queue, "q")
    assert (report.removed_messages, report.waiting_for) == (0, ("late",))
    assert partq.list_groups(queue) == ["g"]
    partq.delete_group(queue, "late")
    assert partq.maintain(queue, "q")[0].removed_messages == 20
    with pytest.raises(partq.GroupNotFoundError):
        partq.delete_group(queue, "late")


def test_a_group_is_told_of_partitions_by_maintenance(queue: str) -> None:
    """The process that scaled the queue died before it told the group. The group's history says who told it."""
    group = group_at(queue, "g", {0: 12, 1: 5})
    grow(queue)
    partq.maintain(queue, "q")
    group.refresh()
    assert [(row["partition"], row["by"]) for row in group.history() if row["kind"] == Kind.PARTITION_ADDED] == [
        (0, "i"), (1, "i"), (2, "maintenance")
    ]  # fmt: skip


def test_a_queue_that_is_damaged_keeps_no_other_from_maintenance(queue: str) -> None:
    """Q8: it is told when all others are done."""
    group_at(queue, "g", {0: 15, 1: 5})
    for name in ("a", "z"):
        partq.create_queue(queue, name, "v bigint", partitions=1)
    broken = Path(queue) / "queues/a/partitions/partition=0/_delta_log" / f"{0:020d}.json"
    broken.write_text("{")
    with pytest.raises(partq.CorruptTableError, match="'a'"):
        partq.maintain(queue)
    assert partq.maintain(queue, "q")[0].removed_messages == 0  # as it was done


def test_a_foreign_folder_among_the_groups_stops_nobody(queue: str) -> None:
    """Q8: nobody lists the folder to know the groups; and a damaged group stops only the queues that it reads."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    group_at(queue, "g", {0: 15, 1: 5})
    for name in ("damaged", "not a name", "empty"):
        (Path(queue) / "groups" / name / "control" / "_delta_log").mkdir(parents=True)
    (Path(queue) / "groups/damaged/control/_delta_log" / f"{0:020d}.json").write_text("{")
    assert {r.queue: r.removed_messages for r in partq.maintain(queue)} == {"p": 0, "q": 20}
    assert partq.list_groups(queue) == ["damaged", "g"]
    assert partq.scale(queue, "p", 2).operating_partitions == 2
