"""What a handle costs: requests of a refresh and a commit, and memory."""

from __future__ import annotations

import pickle

import pytest

from spark_partq.storage.files import MemoryFiles, open_files
from spark_partq.storage.log import Add, DeltaLog, Remove, table
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import Watched, assert_same, count, entry_path, handle, made


@pytest.mark.parametrize("live", [1, 1000])
def test_look_that_finds_nothing(store: str, live: int) -> None:
    """On a disk it is one or two operations on files, however many files are live."""
    disk = open_files(store, {})
    made(disk).commit([Add(f"a{n}", 1, {"base_offset": str(n)}) for n in range(live)])
    watched = Watched(disk)
    mine = handle(watched)
    assert len(mine.snapshot.files) == live
    for ask in (mine.refresh, mine.may_have_changed):
        watched.calls.clear()
        assert not ask()
        assert 1 <= len(watched.calls) <= 2, watched.calls
    count(handle(disk))
    watched.calls.clear()
    assert mine.may_have_changed() and mine.refresh()
    assert sum(operation == "read" for operation, _ in watched.calls) == 2  # the new entry, and that there is no other


@pytest.mark.parametrize("live", [1, 1000])
def test_requests_of_a_look_and_a_commit(files: MemoryFiles, live: int) -> None:
    """In an object store a refresh that finds nothing is one request, and a commit two."""
    made(files).commit([Add(f"a{n}", 1, {"base_offset": str(n)}) for n in range(live)])
    watched = Watched(files, is_local=False)
    mine = handle(watched)
    mine.refresh()
    watched.calls.clear()
    assert not mine.refresh()
    assert watched.calls == [("read", entry_path(2))]
    watched.calls.clear()
    mine.commit(transactions={"next": 1})
    assert watched.calls == [("put_if_absent", entry_path(2)), ("read", entry_path(1))]


@pytest.mark.parametrize("asked", [True, False])
def test_memory_of_a_handle(store: str, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    """It grows with the live files and not with the commits, whether or not its owner asks for the changes."""
    monkeypatch.setattr(table, "_MOST_CHANGES", 100)
    writer = made(open_files(store, {}))
    reader = handle(open_files(store, {}))
    reader.take_changes()

    def size_after(commits: int) -> list[int]:
        most = [0, 0]
        for _ in range(commits):
            removes = [Remove(path, 0, 1, {}) for path in writer.snapshot.files]
            writer.commit([Add(f"a{writer.version:08d}", 1, {})], removes)
            reader.refresh()
            if asked:
                reader.take_changes()
            for i, one in enumerate((writer, reader)):
                most[i] = max(most[i], _size(one))
        return most

    before, after = size_after(150), size_after(450)
    assert all(last <= first + 500 for first, last in zip(before, after, strict=True))
    assert_same(reader.snapshot, writer.snapshot)
    changes = reader.take_changes()
    assert changes.reloaded or len(changes.added) <= 100
    UPKEEP.wait()


def _size(one: DeltaLog) -> int:
    return len(pickle.dumps([value for name, value in one.__dict__.items() if not callable(value)]))
