"""The log of one partition: dense offsets, exactly-once commits, a clock that never goes back (Q1, Q4, Q5)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import Add, Conflict, DeltaLog
from spark_partq.storage.queue import partition_table
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.file_index import FileIndex, IrregularFiles, offsets_of
from spark_partq.storage.queue.partition_table import Fenced, Sealed
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.upkeep import UPKEEP
from tests.helpers import in_parallel, new_file, opened, put
from tests.storage.files.processes import CONTEXT

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    return store


def folder(store: str) -> Path:
    return Path(store) / "queues/q/partitions/partition=0"


def values(store: str) -> list[int]:
    """The payload in offset order, as any Delta reader sees it."""
    table = DeltaTable(folder(store)).to_pyarrow_table()
    offsets = np.asarray(table["base_offset"]) + np.asarray(table["_row"])
    assert sorted(offsets.tolist()) == list(range(len(offsets)))
    return [v for _, v in sorted(zip(offsets.tolist(), table["v"].to_pylist(), strict=True))]


def test_offsets_go_on(queue: str) -> None:
    """Q4: each commit gets the next offsets."""
    assert [put(queue, 0, range(n)) for n in (3, 1, 4)] == [0, 3, 4]
    table = opened(queue).partitions[0]
    assert (table.first_offset, table.next_offset) == (0, 8)
    assert table.index.base.tolist() == [0, 3, 4] and table.index.end.tolist() == [3, 4, 8]
    assert values(queue) == [0, 1, 2, 0, 0, 1, 2, 3]


def test_several_files_in_one_commit(queue: str) -> None:
    """Q4: files of one commit follow each other."""
    files = [
        new_file(queue, "q", 0, {"v": pa.array(range(i * 10, i * 10 + n), pa.int64())}) for i, n in enumerate((2, 5, 1))
    ]
    table = opened(queue).partitions[0]
    assert table.append(files, None) == 0
    assert values(queue) == [0, 1, 10, 11, 12, 13, 14, 20]
    assert table.index.base.tolist() == [0, 2, 7]


def test_a_handle_that_another_thread_lets_go_on(queue: str) -> None:
    """Q4: what was decided on an older version is no commit after a newer one."""
    table = opened(queue).partitions[0]
    others: list[int | None] = []

    def time_us() -> int:
        if not others:
            others.append(None)
            others[0] = put(queue, 0, [10, 11], table=table)
        return SYSTEM.time_ns() // 1_000

    files = [new_file(queue, "q", 0, {"v": pa.array([20, 21, 22], pa.int64())})]
    assert table.append(files, None, time_us=time_us) == 2 and others == [0]
    assert values(queue) == [10, 11, 20, 21, 22]
    assert opened(queue).partitions[0].index.base.tolist() == [0, 2]


def test_threads_that_append_at_once(queue: str) -> None:
    """Q5, Q4: dense offsets, nothing lost, each producer's order kept; also for handles that had refreshed before."""
    handles = [opened(queue).partitions[0] for _ in range(6)]
    for handle in handles:
        assert len(handle.index) == 0

    def produce(number: int) -> list[int | None]:
        return [put(queue, 0, [number * 1000 + i] * (i % 3 + 1), table=handles[number]) for i in range(8)]

    results = in_parallel([lambda n=n: produce(n) for n in range(6)])
    starts = [s for r in results for s in r]  # type: ignore[union-attr]
    assert len(set(starts)) == 48
    found = values(queue)
    assert len(found) == 6 * sum(i % 3 + 1 for i in range(8))
    for number in range(6):
        mine = [v for v in found if v // 1000 == number]
        assert mine == sorted(mine)
    for handle in handles:
        handle.refresh()
        assert handle.next_offset == len(found) and len(handle.index) == 48


def _produce(store: str, number: int) -> None:
    for i in range(6):
        put(store, 0, [number * 1000 + i] * 2)


def test_processes_that_append_at_once(queue: str) -> None:
    """Q5: the same with processes."""
    processes = [CONTEXT.Process(target=_produce, args=(queue, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0, 0]
    assert sorted(values(queue)) == sorted(v for n in range(3) for i in range(6) for v in [n * 1000 + i] * 2)


def test_replay_adds_nothing(queue: str) -> None:
    """Q5: a batch that is recorded is skipped; sinks and generations are told apart."""
    record = BatchRecord("s", 3, "query-1")
    assert put(queue, 0, [1, 2], record=record) == 0
    assert put(queue, 0, [1, 2], record=record) is None
    assert put(queue, 0, [0], record=BatchRecord("s", 2, "query-1")) is None
    assert put(queue, 0, [3], record=BatchRecord("s", 4, "query-1")) == 2
    assert put(queue, 0, [4], record=BatchRecord("t", 3, "query-1")) == 3
    opened(queue).partitions[0].seal(0)
    assert put(queue, 0, [5], record=BatchRecord("s", 3, "query-1"), generation=1) == 4
    assert put(queue, 0, [5], record=BatchRecord("s", 3, "query-1"), generation=1) is None
    assert values(queue) == [1, 2, 3, 4, 5]


def test_seal(queue: str) -> None:
    """S5: a table takes rows of exactly the map in force, and says where those of the one before end."""
    put(queue, 0, [1, 2])
    table = opened(queue).partitions[0]
    with pytest.raises(Sealed):
        put(queue, 0, [9], generation=1)  # not yet
    assert in_parallel([lambda: opened(queue).partitions[0].seal(0) for _ in range(5)]) == [2] * 5
    with pytest.raises(Sealed):
        put(queue, 0, [9])
    assert put(queue, 0, [3], generation=1) == 2
    assert (table.seal(0), table.seal(1), table.seal(0)) == (2, 3, 2)
    assert values(queue) == [1, 2, 3]


def test_fence(queue: str) -> None:
    """S7: a table that is fenced takes neither rows nor a seal, whatever it was sealed under before."""
    put(queue, 0, [1, 2])
    table, other = opened(queue).partitions[0], opened(queue).partitions[0]
    other.refresh()
    assert table.seal(0) == 2
    table.fence(7)
    version = DeltaTable(folder(queue)).version()
    table.fence(7)
    for generation in (0, 1, 2):
        with pytest.raises(Fenced):
            other.seal(generation)
        with pytest.raises(Fenced):
            put(queue, 0, [3], generation=generation, table=other)
    assert DeltaTable(folder(queue)).version() == version
    assert (other.sealed, other.fenced) == (0, True)
    table.unfence(7)
    assert put(queue, 0, [3], generation=1, table=other) == 2
    assert (other.sealed, other.fenced, other.seal(1)) == (0, False, 3)


def test_a_fence_that_was_taken_back_before_it_came(queue: str) -> None:
    """S7: whoever was to fence the table, and slept, leaves it open; a later fence counts."""
    table = opened(queue).partitions[0]
    table.unfence(7)
    table.fence(7)
    assert not table.fenced and put(queue, 0, [1]) == 0
    table.fence(9)
    assert table.fenced
    table.unfence(8)
    assert table.fenced
    table.unfence(9)
    assert not table.fenced


def test_same_batch_by_several_at_once(queue: str) -> None:
    """Q5: of several tries of one batch at the same time one is in."""
    for batch in range(5):
        record = BatchRecord("s", batch)
        found = in_parallel([lambda r=record: put(queue, 0, [7], record=r) for _ in range(5)])
        assert sorted(found, key=str) == [batch, None, None, None, None]
    assert values(queue) == [7] * 5


def test_outcome_of_a_commit_unknown(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: a commit that landed although the store reported an error counts once, with or without a batch id."""
    real, calls = DiskFiles.put_if_absent, []

    def landed(self: DiskFiles, path: str, data: bytes) -> None:
        calls.append(1)
        real(self, path, data)
        if len(calls) == 1:
            raise partq.StoreUnavailableError("timed out")

    monkeypatch.setattr(DiskFiles, "put_if_absent", landed)
    assert put(queue, 0, [1, 2]) == 0
    calls.clear()
    assert put(queue, 0, [3], record=BatchRecord("s", 0)) == 2
    assert values(queue) == [1, 2, 3]


def test_store_that_refuses(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: an error of the store is told, and nothing has changed."""

    def refuse(*_: object, **__: object) -> None:
        raise partq.StoreUnavailableError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFiles, "put_if_absent", refuse)
        with pytest.raises(partq.CommitFailedError, match=r"no space left.*nothing was changed"):
            put(queue, 0, [1])
    assert put(queue, 0, [2]) == 0


def test_enqueued_at_never_goes_back(queue: str) -> None:
    """Q4: when the wall clock is set back, `_enqueued_at` stands still instead."""
    table = opened(queue).partitions[0]
    for minutes in (0, 5, -60, 4, 6):
        put(queue, 0, [minutes], at=NOON + dt.timedelta(minutes=minutes), table=table)
    table.refresh()
    found = (table.index.enqueued_us - int(NOON.timestamp() * 1e6)) // 60_000_000
    assert found.tolist() == [0, 5, 5, 5, 6]
    table.remove(len)
    put(queue, 0, [7], at=NOON - dt.timedelta(days=400), table=table)
    table.refresh()
    assert table.index.enqueued_us.tolist() == [int(NOON.timestamp() * 1e6) + 6 * 60_000_000]


def test_next_offset_outlives_everything(queue: str) -> None:
    """Q4, Q8: after retention of all files, a checkpoint and the removal of the log before it, the offsets go on."""
    record = BatchRecord("s", 9, "query")
    put(queue, 0, range(10), record=record)
    table = opened(queue).partitions[0]
    assert table.remove(len) == 10
    table.checkpoint()
    assert table.vacuum(0) == 1
    log = folder(queue) / "_delta_log"
    version = DeltaTable(folder(queue)).version()
    DeltaTable(folder(queue)).create_checkpoint()
    for file in log.glob("*.json"):
        if int(file.name[:20]) < version:
            file.unlink()
    assert not list(folder(queue).glob("*.parquet"))
    fresh = opened(queue).partitions[0]
    assert (fresh.first_offset, fresh.next_offset) == (10, 10)
    assert put(queue, 0, range(10), record=record) is None
    assert put(queue, 0, [5], record=BatchRecord("s", 10, "query")) == 10
    assert opened(queue).partitions[0].index.base.tolist() == [10]


def test_many_commits(queue: str) -> None:
    """Q4: past the interval of checkpoints the index is still right, for an old handle and a new one."""
    old = opened(queue).partitions[0]
    assert len(old.index) == 0
    for n in range(105):
        put(queue, 0, [n], table=old)
    UPKEEP.wait()
    assert list((folder(queue) / "_delta_log").glob("*checkpoint*"))
    old.refresh()
    fresh = opened(queue).partitions[0]
    assert old.index.base.tolist() == fresh.index.base.tolist() == list(range(105))
    assert values(queue) == list(range(105))


def test_foreign_files_in_the_folder(queue: str) -> None:
    """Q5: files that no log names are no messages."""
    put(queue, 0, [1])
    new_file(queue, "q", 0, {"v": pa.array([9], pa.int64())})
    (folder(queue) / "notes.txt").write_text("x")
    assert values(queue) == [1] and opened(queue).partitions[0].next_offset == 1


def test_foreign_commit(queue: str) -> None:
    """Bad input: rows that another writer committed are noticed and named, not taken for messages."""
    put(queue, 0, [1, 2])
    rows = DeltaTable(folder(queue)).to_pyarrow_table()
    write_deltalake(folder(queue), rows, mode="append")
    with pytest.raises(
        partq.CorruptTableError, match=r"partition 0 of queue 'q' .*2.json: it was committed by delta-rs"
    ):
        _ = opened(queue).partitions[0].index
    with pytest.raises(partq.CorruptTableError):
        partq.describe_queue(queue, "q")


def test_foreign_deletion(queue: str) -> None:
    """Bad input: messages that another writer deleted in the middle are noticed."""
    for n in range(3):
        put(queue, 0, [n])
    DeltaTable(folder(queue)).delete("base_offset = 1")
    with pytest.raises(partq.CorruptTableError, match=r"4.json: it was committed by delta-rs:.* \(DELETE\)"):
        _ = opened(queue).partitions[0].index


def test_removed_table(queue: str) -> None:
    """Bad input: a partition whose log is gone is an error, not an empty partition."""
    table = opened(queue).partitions[0]
    assert table.committed_ms > 0
    for file in (folder(queue) / "_delta_log").iterdir():
        file.unlink()
    with pytest.raises(partq.CorruptTableError, match="partition 0 of queue 'q' has no Delta log"):
        partq.describe_queue(queue, "q")
    assert table.committed_ms == 0


@pytest.mark.parametrize("content", ["{", '{"add": {"path": 5}}\n', "[]"])
def test_damaged_log(queue: str, content: str) -> None:
    put(queue, 0, [1])
    (folder(queue) / "_delta_log" / f"{2:020d}.json").write_text(content)
    with pytest.raises(partq.CorruptTableError, match="the Delta log of partition 0 of queue 'q'"):
        partq.describe_queue(queue, "q")


def test_retention_beside_producers(queue: str) -> None:
    """Q5, Q8: files are removed while others append and remove; every message is removed once or still there."""
    for n in range(20):
        put(queue, 0, [n, n])
    handles = [opened(queue).partitions[0] for _ in range(2)]
    for handle in handles:
        assert len(handle.index) == 20

    def remove(number: int) -> int:
        return sum(handles[number].remove(lambda index: min(2, len(index))) for _ in range(6))

    def produce() -> None:
        for _ in range(10):
            put(queue, 0, [5])

    one, two, done = in_parallel([lambda: remove(0), lambda: remove(1), produce])
    assert done is None
    table = opened(queue).partitions[0]
    assert table.next_offset == 50
    assert one + two == table.first_offset  # type: ignore[operator]
    assert int(table.index.rows.sum()) == 50 - table.first_offset


def test_more_files_than_one_commit_may_name_are_removed(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q8: else nobody could ever maintain a partition that was left alone for long."""
    for _ in range(7):
        put(queue, 0, range(2))
    monkeypatch.setattr(partition_table, "_MOST_REMOVES", 2)
    table = opened(queue).partitions[0]
    log = folder(queue) / "_delta_log"
    before = len(list(log.glob("*.json")))
    assert table.remove(lambda index: int(np.searchsorted(index.end, 10, side="right"))) == 10
    assert (len(list(log.glob("*.json"))) - before, table.first_offset, len(table.index)) == (3, 10, 2)


def test_a_number_without_end_in_a_tag(queue: str) -> None:
    with pytest.raises(IrregularFiles, match="1 messages and 9999"):
        offsets_of(Add("x", 1, {}, '{"numRecords": 1}', 0, True, {"partq.offsets": "9" * 5_000}))


def test_looking_costs_nothing_when_nothing_came(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q7: an idle refresh does not read the log, yet sees the next commit at once."""
    handle = opened(queue)
    table, files, reads = handle.partitions[0], handle.store.files, []
    read = files.read
    monkeypatch.setattr(files, "read", lambda path, most=None: (reads.append(path), read(path, most))[1])
    assert not any(table.refresh() or table.may_have_changed() for _ in range(10))
    assert set(reads) == {f"{table.folder}/_delta_log/{1:020d}.json"}  # only whether there is a next entry
    put(queue, 0, [1])
    assert table.may_have_changed() and table.refresh() and table.next_offset == 1
    assert not table.may_have_changed()


def test_too_many_lost_races(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: a writer that never wins ends with an error of this package."""
    put(queue, 0, [0])
    table, file = opened(queue).partitions[0], new_file(queue, "q", 0, {"v": pa.array([0], pa.int64())})
    monkeypatch.setattr(DeltaLog, "commit", mock.Mock(side_effect=Conflict))
    monkeypatch.setattr(SYSTEM, "sleep", lambda _: None)
    with pytest.raises(partq.CommitFailedError, match="1,000 races"):
        put(queue, 0, [1])
    with pytest.raises(partq.CommitFailedError, match="partition 0 of queue 'q': lost 1,000 races"):
        table.replace([table.index.path(0)], file, FileAge(0.0, 86_400_000, are_named=True))


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 80), st.integers(0, 80))
def test_overlapping(rows: list[int], start: int, end: int) -> None:
    """Q6: the files of a range are exactly those that hold one of its messages."""
    base = np.cumsum([0, *rows])[:-1].astype(np.int64)
    count = np.array(rows, dtype=np.int64)
    index = FileIndex([str(i) for i in range(len(rows))], 0, base, *[count] * 5)
    found = list(index.overlapping(start, end))
    assert found == [i for i in range(len(rows)) if start < base[i] + rows[i] and base[i] < end and start < end]
