"""A queue's partition count changes while producers and consumers go on (S1, S2, S4, S5, S8)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.procedures.remainder import ScaleProgress
from spark_partq.storage.queue.partition_table import PartitionTable
from tests.clocks import no_grace
from tests.helpers import in_parallel, opened
from tests.planners import Query
from tests.scaled import Reader, Sink, assert_in_order, known, make, messages, scale, stored, while_scaling


def shape(store: str) -> tuple[Any, ...]:
    found = partq.describe_queue(store, "q")
    return found.status, found.configured_partitions, found.operating_partitions, found.generation


# ---- live
def test_4_6_16_5_3(store: str) -> None:
    """S1, S2, S5, S8: up and down under a producer and two consumers; every message once, each key in order."""
    make(store, 4)
    sink, readers = Sink(store), [Reader(store, "a"), Reader(store, "b")]
    batch = 0

    def turn() -> None:
        nonlocal batch
        sink.write(batch, messages(batch * 5, batch * 5 + 5, keys=23))
        batch += 1
        readers[batch % 2].turn()

    turn()
    for generation, count in enumerate((6, 16, 5, 3), 1):
        found = while_scaling(lambda count=count: partq.scale(store, "q", count), turn)
        assert not isinstance(found, BaseException), found
        assert shape(store) == ("Ready", count, count, generation)
        assert known(store) == list(range(count))
        turn()
    idle = 0
    while idle < 6:  # one may have to wait for the other
        read = sum(reader.turn() for reader in readers)
        idle = 0 if read else idle + 1
    assert sorted(v for reader in readers for _, v in reader.seen) == list(range(batch * 5))
    for reader in readers:  # partitions come and go between them
        assert_in_order(reader.seen, reader.seen)
    assert partq.describe_queue(store, "q").depth == 0
    assert [p.partition for p in partq.describe_queue(store, "q").partitions] == [0, 1, 2]


def test_each_key_in_order_whatever_the_counts(store: str) -> None:
    """S5: one consumer that lags behind three changes of the map gets each key in the order in which it was written."""
    make(store, 3)
    sink = Sink(store)
    reader = Reader(store)
    expected = []
    for batch, count in enumerate((3, 4, 2, 5, 0, 3)):
        if batch:
            queue = opened(store)
            scaling.start(queue, count, "live")
            scaling.step(queue)
        rows = messages(batch * 40, batch * 40 + 40, keys=13)
        sink.write(batch, rows)
        expected += rows
        if batch == 1:
            reader.turn()
    assert_in_order(reader.all(), [row for row in expected if row[1] // 40 != 4])
    assert partq.describe_queue(store, "q").stuck == 40  # what was written while it was exclusive


def test_steps_of_an_increase(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1, R2: until all new partitions exist none is assigned and keys go where they went; then groups rebalance at once."""
    make(store, 2, rebalance_delay_ms=3_600_000)
    reader = Reader(store, flows=2)
    looks: list[tuple[Any, ...]] = []
    create = PartitionTable.create

    def create_and_look(self: PartitionTable, *args: Any, **options: Any) -> None:
        create(self, *args, **options)
        looks.append((self.partition, *shape(store), known(store)))
        Sink(store, None).write(0, messages(0, 10))

    monkeypatch.setattr(PartitionTable, "create", create_and_look)
    partq.scale(store, "q", 4)
    assert looks == [(n, "ScalingUp", 4, 2, 0, [0, 1]) for n in (2, 3)]
    assert shape(store) == ("Ready", 4, 4, 1)
    assert sum(map(len, stored(store).values())) == 20 and not stored(store)[2] and not stored(store)[3]
    reader.group.refresh()
    assert reader.group.state.status == "Ready"  # without the hour that a change of the members would have had to wait
    assert {own.flow for own in reader.group.state.partitions.values()} == {"r/0", "r/1"}


def test_a_decrease_removes_the_highest(store: str) -> None:
    """S2, S8: they stay and are read until they are drained; the map no longer names them."""
    make(store, 4)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 60))
    queue = opened(store)
    scaling.start(queue, 2, "live")
    waiting = scaling.step(queue)
    assert waiting is not None and waiting.left > 0 and not waiting.alone
    assert shape(store) == ("ScalingDown", 2, 4, 1) and queue.state.removing == [2, 3]
    assert known(store) == [0, 1, 2, 3]
    sink.write(1, messages(60, 90))
    assert_in_order(reader.all(), messages(0, 90))
    assert scaling.step(queue) is None
    assert shape(store) == ("Ready", 2, 2, 1) and known(store) == [0, 1]
    assert [sum(opened(store).table(n).index.rows) for n in (2, 3)] == [0, 0]


def test_groups_that_are_absent(store: str) -> None:
    """S2: a live decrease does not wait for a group that nobody runs; maintenance ends it once that has read everything."""
    make(store, 3)
    Sink(store).write(0, messages(0, 30))
    reader, absent = Reader(store), Reader(store, group="absent")
    absent.leave()
    reported: list[ScaleProgress] = []
    found = while_scaling(lambda: partq.scale(store, "q", 1, report=reported.append), reader.turn)
    assert not isinstance(found, BaseException), found
    assert shape(store) == ("ScalingDown", 1, 3, 1)
    assert partq.scale(store, "q", 1).status == "ScalingDown"  # again: nothing new
    partq.maintain(store)
    assert shape(store) == ("ScalingDown", 1, 3, 1)
    absent.start_again()
    assert_in_order(absent.all(), messages(0, 30))
    absent.leave()
    partq.maintain(store)
    assert shape(store) == ("Ready", 1, 1, 1)
    assert known(store, "absent") == [0]


def test_no_group(store: str) -> None:
    """S2: nobody reads what goes: it stays as long as it holds something, and a group that comes reads it."""
    make(store, 3)
    Sink(store).write(0, messages(0, 30))
    assert partq.scale(store, "q", 2).status == "ScalingDown"
    reader = Reader(store)
    assert_in_order(reader.all(), messages(0, 30))
    assert partq.scale(store, "q", 2).status == "Ready"
    other = f"{store}2"
    make(other, 3)
    assert partq.scale(other, "q", 2).status == "Ready"  # they were empty


def test_what_was_too_old_before_it_was_read(store: str) -> None:
    """S2, Q8: the retention time has removed what an absent group had left in a partition to be removed. Its query hears of that, and the partition stays until the group goes on behind the messages."""
    make(store, 2, retention_ms=0)
    query = Query(store, "a")
    query.next()
    query.leave()
    Sink(store).write(0, messages(0, 30))
    lost = partq.describe_queue(store, "q").partitions[1].depth
    assert partq.scale(store, "q", 1).status == "ScalingDown"
    partq.maintain(store)
    partq.maintain(store)
    assert shape(store) == ("ScalingDown", 1, 2, 1)
    waiting = f"of group g to acknowledge messages that were removed before they were read .* \\({lost} left"
    with pytest.raises(partq.ScalingInProgressError, match=waiting):
        partq.scale(store, "q", 1, "drain", timeout_s=0)
    query = Query(store, "b")
    with pytest.raises(partq.DataLossError, match=r"messages 0 to \d+ of partition 0"):
        query.next()
    query.leave()
    assert shape(store) == ("ScalingDown", 1, 2, 1)
    query = Query(store, "c", fail_on_data_loss=False)
    assert query.next() == {}
    query.leave()
    partq.maintain(store)
    assert shape(store) == ("Ready", 1, 1, 1)


def test_what_was_too_old_before_a_group_came(store: str) -> None:
    """S2: a group that never had the partition begins behind what was removed, and nobody waits for it."""
    make(store, 2, retention_ms=0)
    Sink(store).write(0, messages(0, 30))
    partq.maintain(store)
    partq.maintain(store)
    query = Query(store, "a")
    assert query.next() == {}
    query.leave()
    assert partq.scale(store, "q", 1).status == "Ready"


def test_removed_tables_are_maintained(store: str) -> None:
    """Q8: their files are deleted after the grace period; their logs stay, as they remember who wrote what."""
    make(store, 3)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 30))
    reader.all()
    partq.scale(store, "q", 1)
    partitions = [Path(store) / f"queues/q/partitions/partition={n}" for n in (1, 2)]
    files = [file for folder in partitions for file in folder.glob("*.parquet")]
    assert len(files) == 2
    for file in files:
        os.utime(file, (0, 0))
    with no_grace():
        partq.maintain(store)
    assert [[f.name for f in folder.iterdir()] for folder in partitions] == [["_delta_log"], ["_delta_log"]]
    assert sink.write(0, messages(0, 30)) == 0


def test_partitions_that_come_back(store: str) -> None:
    """S1, S2: a number that is used again goes on with its offsets, and gives nobody what was removed."""
    make(store, 3)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 60))
    ends = {t.partition: t.next_offset for t in opened(store).partitions}
    reader.all()
    partq.scale(store, "q", 1)
    partq.scale(store, "q", 3)
    table = opened(store).table(2)
    assert (table.first_offset, table.next_offset) == (ends[2], ends[2])
    sink.write(1, messages(60, 120))
    assert_in_order(reader.all(), messages(0, 120))
    late = Reader(store, "late", group="h")
    assert sorted(late.all()) == sorted(row for part in stored(store).values() for row in part)


# ---- two at once
@pytest.mark.parametrize("mode", ["live", "delete"])
def test_several_scale_at_once(store: str, mode: Any) -> None:
    """S1: to the same count all are fine; to different ones each is either done or told that another is under way."""
    make(store, 2)
    found = in_parallel([lambda: partq.scale(store, "q", 4, mode) for _ in range(3)])
    late = [f for f in found if isinstance(f, BaseException)]
    assert len(late) < 3 and all("already" in str(f) for f in late)
    assert shape(store) == ("Ready", 4, 4, 1)
    counts = (1, 3, 6)
    found = in_parallel([lambda n=n: partq.scale(store, "q", n, mode) for n in counts])
    errors = [f for f in found if isinstance(f, BaseException)]
    assert all(isinstance(f, partq.ScalingInProgressError) or "already" in str(f) for f in errors) and len(errors) < 3
    done = [n for n, f in zip(counts, found, strict=True) if not isinstance(f, BaseException)]
    state = opened(store).state
    assert state.status == "Ready" and state.partition_count in done
    # Of some the count was in force, and somebody asked for another one before they looked.
    replaced = sum(
        "asked for another one meanwhile" in str(error) or "took the change back" in str(error) for error in errors
    )
    assert 1 + len(done) <= state.generation <= 1 + len(done) + replaced


def test_another_change_is_under_way(store: str) -> None:
    """S1: who wants another count, or another way, is told; who wants the same goes on with it."""
    make(store, 2)
    queue = opened(store)
    scaling.start(queue, 4, "live")
    for count, mode in ((5, "live"), (4, "drain"), (2, "live")):
        with pytest.raises(partq.ScalingInProgressError, match="being scaled to 4 partitions"):
            partq.scale(store, "q", count, mode)  # type: ignore[arg-type]
    assert partq.scale(store, "q", 4).status == "Ready"
    assert opened(store).state.generation == 1


def test_what_is_refused(store: str) -> None:
    """S1: before anything is changed."""
    make(store, 2)
    before = opened(store).state
    for count in (-1, 4097, 2.0, True, "3"):
        with pytest.raises(partq.InvalidArgumentError, match="1 to 4096"):
            partq.scale(store, "q", count)  # type: ignore[arg-type]
    with pytest.raises(partq.InvalidArgumentError, match="live, drain, delete"):
        partq.scale(store, "q", 3, "gently")  # type: ignore[arg-type]
    with pytest.raises(partq.InvalidArgumentError, match="timeout_s=-1 is no number of seconds of at least 0"):
        partq.scale(store, "q", 3, timeout_s=-1)
    with pytest.raises(partq.QueueNotFoundError):
        partq.scale(store, "p", 3)
    with pytest.raises(partq.InvalidArgumentError, match="2 partitions already"):
        partq.scale(store, "q", 2)
    assert opened(store).state == before


def test_deleted_while_it_is_scaled(store: str) -> None:
    """S1: who waits is told, and nothing comes back."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    reader = Reader(store)
    begun = []

    def delete_it(_: ScaleProgress) -> None:
        if not begun:
            begun.append(partq.delete_queue(store, "q"))

    with pytest.raises((partq.QueueNotFoundError, partq.QueueNotReadyError)):
        partq.scale(store, "q", 1, report=delete_it)
    assert reader.seen == [] and partq.list_queues(store) == []


def test_a_store_that_cannot_be_written(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: the error says so, and nothing has changed."""
    make(store, 2)

    def refuse(*_: object, **__: object) -> None:
        raise partq.StoreUnavailableError("the store cannot be written: Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFiles, "put_if_absent", refuse)
        for function in (
            lambda: partq.scale(store, "q", 3),
            lambda: partq.scale(store, "q", 3, "drain"),
            lambda: partq.set_ingress(store, "q", False),
        ):
            with pytest.raises(partq.CommitFailedError, match="Read-only file system"):
                function()
        assert partq.describe_queue(store, "q").status == "Ready"
    assert shape(store) == ("Ready", 2, 2, 0)


def test_it_waits_no_longer_than_it_is_told(store: str) -> None:
    """S2: and says for what it still waits."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    Reader(store)
    began = time.monotonic()
    with pytest.raises(partq.ScalingInProgressError, match=r"acknowledge what is left \(\d+ left\)"):
        partq.scale(store, "q", 1, timeout_s=0)
    assert time.monotonic() - began < 30


# ---- producers
@pytest.mark.parametrize("counts", [(4,), (1,), (4, 3), (1, 5), (0, 2)])
@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_batch_that_died_half_way(store: str, counts: tuple[int, ...], dies: str) -> None:
    """S5, Q5: some of its partitions were committed; its replay after the map has changed adds each other row, once."""
    make(store, 3)
    rows = messages(0, 60, keys=13)
    sink = Sink(store)
    sink.write(0, messages(1000, 1010))
    queue = opened(store)
    if dies == "after":
        scaling.start(queue, counts[0], "live")
        queue.table(1).seal(0)
    done = []
    append = PartitionTable.append

    def half(self: PartitionTable, *args: Any) -> int | None:
        if self.partition == 2 or done:
            raise KeyboardInterrupt
        return append(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionTable, "append", half)
        with pytest.raises(KeyboardInterrupt):
            sink.write(1, rows)
    for count in counts:
        partq.scale(store, "q", count)
    again = Sink(store)
    added = again.write(1, rows)
    assert 0 < added < 60
    assert again.write(1, rows) == 0
    again.write(2, messages(60, 80))
    partq.copy_stuck(store, "q")
    assert sorted(v for part in stored(store).values() for _, v in part) == [*range(80), *range(1000, 1010)]


def test_a_producer_ends_what_a_dead_process_began(store: str) -> None:
    """S5: whoever scales has died behind the seals; a producer that waits for the map opens it itself, and so goes on."""
    make(store, 2)
    sink = Sink(store)
    queue = opened(store)
    scaling.start(queue, 5, "live")
    for number in (0, 1):
        queue.table(number).seal(0)
    assert sink.write(0, messages(0, 50)) == 50
    assert shape(store) == ("Ready", 5, 5, 1)
    assert len([part for part in stored(store).values() if part]) > 2
    assert scale(store, 5).status == "Ready"


def test_two_processes_of_one_sink(store: str) -> None:
    """S5, Q5: both write the same batches while the map changes; each row is in once, and counted by the call that added it."""
    make(store, 3)
    ahead: set[int] = set()  # batches in which one of them learned that the other is further

    def write() -> dict[int, int]:
        sink, added = Sink(store), {}
        for batch in range(8):
            try:
                added[batch] = sink.write(batch, messages(batch * 20, batch * 20 + 20))
            except partq.SinkAheadError:  # whatever it had added is in, and its error says no count
                ahead.add(batch)
        return added

    first, second, done = in_parallel([write, write, lambda: [partq.scale(store, "q", n) for n in (5, 2, 4)]])
    assert isinstance(first, dict) and isinstance(second, dict) and isinstance(done, list), (first, second, done)
    reader = Reader(store)
    assert_in_order(reader.all(), messages(0, 160))
    for batch in range(8):
        added = first.get(batch, 0) + second.get(batch, 0)
        assert added <= 20 if batch in ahead else added == 20, (batch, first, second, ahead)
