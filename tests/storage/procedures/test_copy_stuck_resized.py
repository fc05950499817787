"""What is stuck is copied by somebody who dies or stands still, the map changes meanwhile, and a replica takes over: each message is there once (S6, S7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.procedures import copy_stuck, scale
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.prepared import Result
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.replicas import there_fixture  # noqa: F401
from tests.scaled import QUICK, SCHEMA, Crash, Reader, Sink, hash_of, make, while_scaling
from tests.scaled import scale as scaled
from tests.storage.procedures.test_copy_stuck import with_stuck
from tests.storage.procedures.test_copy_stuck_promoted import some_of_the_copy, take_over, when


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemRuntime, "map", lambda _, function, items: [function(item) for item in items])
    monkeypatch.setattr(scale, "update_replicas", lambda *_: None)


def dies_after(files: int, store: str) -> None:
    """The copy of what is stuck is made by a process that copies so many files of the parent."""
    copy, copied = copy_stuck._copy, list[int]()

    def call(*arguments: Any) -> int:
        if len(copied) == files:
            raise Crash
        copied.append(files)
        return copy(*arguments)

    dies(copy_stuck, "_copy", call, lambda: partq.copy_stuck(store, "q"))


def dies(target: Any, name: str, replaced: Callable[..., Any], act: Callable[[], object]) -> None:
    """A process does something in which this function is another one."""
    with mock.patch.object(target, name, replaced), pytest.raises(Crash):
        act()


@pytest.mark.parametrize("behind", [0, 1])
def test_messages_without_a_key(store: str, there: str, behind: int) -> None:
    """The map changed in the midst of a file of the parent, and the last pass copied some of the partitions."""
    partq.create_queue(store, "q", "k string, v bigint", partitions=0, **QUICK)
    Reader(store)
    queue = opened(store)
    producer = Producer(queue)
    for batch in range(5):
        producer.refresh()
        rows = pa.RecordBatch.from_pylist([{"k": "x", "v": 6 * batch + n} for n in range(6)], SCHEMA)
        producer.write(BatchRecord("s", batch), lambda rows=rows: write_rows(queue, [(0, rows)]), lambda: 6)  # type: ignore[misc]
    partq.scale(store, "q", 2)
    append, apply = PartitionTable.append, TableCopy.apply

    def of_one_partition(table: PartitionTable, *arguments: Any) -> int | None:
        if table.partition == 1:
            raise Crash
        return append(table, *arguments)

    def of_the_others(copy: TableCopy, steps: Any) -> int:
        if copy.folder.endswith("partition=-1"):
            raise Crash
        return 0 if copy.folder.endswith(f"partition={behind}") else apply(copy, steps)

    dies(PartitionTable, "append", of_one_partition, lambda: partq.copy_stuck(store, "q"))
    partq.scale(store, "q", 3)
    replicate(Store(store), "q", there)
    dies_after(2, store)
    dies(TableCopy, "apply", of_the_others, lambda: replicate(Store(store), "q", there))
    take_over(store, there)
    partq.copy_stuck(there, "q")
    reader = Reader(there, "x", group="new")
    reader.all()
    assert sorted(number for _, number in reader.seen) == list(range(30))


def test_a_key_that_is_in_the_first_files_only(store: str, there: str) -> None:
    """Partitions remember under which map they got their part of a file, also where checkpoints were written since."""
    keys = [f"k{n}" for n in range(40)]
    first = [key for key in keys if hash_of(key) % 4 == 3][:2]
    others = [key for key in keys if hash_of(key) % 4 != 3][:8]
    make(store, 0)
    Reader(store)
    sink, sent = Sink(store), list[tuple[str, int]]()
    for batch in range(10):
        rows = [(key, 100 * batch + n) for n, key in enumerate((first if batch < 4 else []) + others)]
        sink.write(batch, rows)
        sent += rows
    partq.scale(store, "q", 2)
    dies_after(4, store)
    partq.scale(store, "q", 4)
    dies_after(8, store)
    partq.maintain(store, "q")
    replicate(Store(store), "q", there)
    promote(Store(there), "q")
    partq.copy_stuck(there, "q")
    reader = Reader(there, "x", group="new")
    reader.all()
    assert sorted(reader.seen) == sorted(sent)


@pytest.mark.parametrize("partitioned_again", [False, True])
def test_somebody_who_stood_still_goes_on_when_the_copy_has_ended(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, partitioned_again: bool
) -> None:
    """And since then the queue was exclusive, so that its tables say nothing of that copy."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    take_over(store, there)
    reader, copy, begun = Reader(there, "x"), copy_stuck._copy, list[int]()

    def slow(*arguments: Any) -> int:
        begun.append(0)
        if len(begun) == 4:
            monkeypatch.setattr(copy_stuck, "_copy", copy)
            partq.copy_stuck(there, "q")
            reader.all()
            for count in (0, 4) if partitioned_again else (0,):
                while_scaling(lambda count=count: scaled(there, count), reader.turn)  # type: ignore[misc]
        return copy(*arguments)

    monkeypatch.setattr(copy_stuck, "_copy", slow)
    partq.copy_stuck(there, "q")
    reader.all()
    assert sorted(number for _, number in reader.seen) == list(range(60))


def test_somebody_whose_last_file_another_one_has_copied_under_another_map(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest is there, and the parent is empty by the time at which it goes on."""
    with_stuck(store, 2)
    commit, begun = Producer._commit, list[int]()

    def slow(producer: Producer, *arguments: Any) -> list[Result]:
        begun.append(0)
        if len(begun) == 10:
            monkeypatch.setattr(Producer, "_commit", commit)
            partq.scale(store, "q", 4)
            assert partq.copy_stuck(store, "q") == 6
        return commit(producer, *arguments)

    monkeypatch.setattr(Producer, "_commit", slow)
    assert partq.copy_stuck(store, "q") == 54
    reader = Reader(store)
    reader.all()
    assert sorted(number for _, number in reader.seen) == list(range(60))


@pytest.mark.parametrize(("read", "commits"), [(0, 12), (40, 4)])
def test_a_replica_that_has_only_the_copies_does_not_become_exclusive(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, read: int, commits: int
) -> None:
    """The pass had read the control table before the copy began; its parent would be read beside them. What was acknowledged is not copied."""
    with_stuck(store, read=read)
    replicate(Store(store), "q", there)
    when(monkeypatch, "steps", 0, lambda: some_of_the_copy(store, monkeypatch, commits))
    replicate(Store(store), "q", there)
    take_over(store, there)
    reader = Reader(there, "x")
    reader.all()
    with pytest.raises(partq.ScalingInProgressError, match="run copy_stuck again"):
        partq.scale(there, "q", 0)
    partq.copy_stuck(there, "q")
    while_scaling(lambda: scaled(there, 0), reader.turn)
    reader.all()
    assert sorted(number for _, number in reader.seen) == list(range(read, 60))
