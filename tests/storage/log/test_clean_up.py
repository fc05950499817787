"""The clean-up of a log and of its files: readers beside it, its end at any moment, and what it keeps."""

from __future__ import annotations

import time
from pathlib import Path
from unittest import mock

import pytest
from deltalake import DeltaTable

from spark_partq.storage.files import MemoryFiles, open_files
from spark_partq.storage.log import LONG_LOG, Add, Remove, TableSpec, table, vacuum
from spark_partq.storage.log.folder import CLEAN_UP_EVERY, LogFolder
from spark_partq.storage.log.spec import CHECKPOINT_INTERVALS
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import (
    DAY_MS,
    FIELDS,
    FOLDER,
    HOUR_MS,
    Died,
    Watched,
    age,
    aged_log,
    assert_same,
    checkpoint_path,
    count,
    entries,
    entry_path,
    everything,
    fresh,
    go_on,
    handle,
    made,
    once,
    put_back,
    stored_files,
)


# ---- old entries and checkpoints
def test_a_clean_up_that_slept_deletes_nothing_more(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may have been made anew meanwhile, with entries of the same names."""
    aged_log(files)
    expected = fresh(files)
    slept_s, deleted = [0.0], list[str]()

    def sleep(operation: str, path: str) -> None:
        if operation == "delete" and path.endswith((".json", ".parquet")):
            deleted.append(path)
            slept_s[0] += 40.0

    clock_s = SYSTEM.monotonic_s
    monkeypatch.setattr(type(SYSTEM), "monotonic_s", lambda _: clock_s() + slept_s[0])
    cleaner = handle(Watched(files, after=sleep))
    for n in range(1, 4):  # the next one goes on
        cleaner.log.write_checkpoint()
        assert len(deleted) == n and deleted == sorted(deleted)
    assert_same(fresh(files), expected)


@pytest.mark.parametrize("older_ms", [0, 1])
def test_what_is_as_old_as_the_retention_stays(files: MemoryFiles, older_ms: int) -> None:
    """To the millisecond, beside the newest checkpoint."""
    writer = made(files, 3)
    writer.checkpoint()
    stored = stored_files(files)
    newest_ns = stored[checkpoint_path(3)][1]
    for version in range(4):
        data, _ = stored[entry_path(version)]
        stored[entry_path(version)] = data, newest_ns - (HOUR_MS + older_ms) * 1_000_000
    put_back(files, stored)
    handle(files).log.clean_up(HOUR_MS)
    assert entries(files) == ([3] if older_ms else [0, 1, 2, 3])


def test_commits_clean_up_once_in_so_many_versions(files: MemoryFiles) -> None:
    """Each time the whole folder is listed, and it may hold an hour's entries; old ones go all the same."""
    writer, most = made(files), 0
    with mock.patch.object(LogFolder, "clean_up", autospec=True, side_effect=LogFolder.clean_up) as clean_up:
        for _ in range(3 * CLEAN_UP_EVERY // 30):
            count(writer, 30)
            UPKEEP.wait()
            age(files, 2 * HOUR_MS)
            most = max(most, len(entries(files)))
    assert 3 <= clean_up.call_count <= 4
    assert most <= CLEAN_UP_EVERY + CHECKPOINT_INTERVALS[1]


def test_clean_up_that_dies(files: MemoryFiles) -> None:
    """What is left is one run of entries, every reader reads the same, and the next clean-up finishes it."""
    aged_log(files)
    expected, deletes = fresh(files), 0
    for at in range(100):
        copy = MemoryFiles()
        put_back(copy, stored_files(files))
        left = [at]

        def die(operation: str, _: str, left: list[int] = left) -> None:
            if operation == "delete":
                if left[0] == 0:
                    raise Died
                left[0] -= 1

        dying = handle(Watched(copy, before=die))
        try:
            dying.checkpoint()
        except Died:
            deletes += 1
        found = entries(copy)
        assert found == list(range(found[0], 16))
        assert_same(fresh(copy), expected)
        handle(copy).checkpoint()
        assert entries(copy) == [13, 14, 15]
        assert handle(copy).log.names().checkpoints == [15]
        assert f"{FOLDER}/_delta_log/.dead.tmp" not in everything(copy)
        assert_same(fresh(copy), expected)
        if left[0] > 0:
            break
    assert deletes == 13 + 3 + 2  # entries and checkpoints, what a dead process left, and how late it is


def test_readers_during_a_clean_up(files: MemoryFiles) -> None:
    """At every step of a checkpoint and its clean-up, a new reader and an old one read the same table."""
    aged_log(files)
    old, expected, looks = handle(files), fresh(files), []
    old.refresh()

    def look(operation: str, _: str) -> None:
        looks.append(operation)
        assert_same(fresh(files), expected)
        old.refresh()
        assert_same(old.snapshot, expected)

    handle(Watched(files, look, look)).checkpoint()
    assert looks.count("delete") == 2 * 18


def test_clean_up_during_a_reader_s_steps() -> None:
    """A reader under whom the log goes on and is cleaned up, at any of its steps, reads the newest version."""
    steps = 1
    at = 0
    while at < steps:
        files = MemoryFiles()
        aged_log(files)
        left = [at]

        def act(*_: str, left: list[int] = left, files: MemoryFiles = files) -> None:
            left[0] -= 1
            if left[0] == -1:
                go_on(files)

        reader = handle(watched := Watched(files, before=act))
        reader.refresh()
        steps = max(steps, len(watched.calls))
        assert reader.version in (15, 20)
        with pytest.MonkeyPatch.context() as patch:  # it has slept, so a check is due
            patch.setattr(table, "_CHECK_EVERY_S", -1.0)
            reader.refresh()
        assert_same(reader.snapshot, fresh(files))
        at += 1
    assert steps > 5


def test_clean_up_after_the_store_s_clock_went_back(files: MemoryFiles) -> None:
    """What is left is one run of entries: in a gap a slow handle would take its place for the end of the log."""
    writer = made(files, 5)
    slow = handle(files)
    slow.refresh()
    count(writer, 5)
    age(files, -2 * HOUR_MS)  # from here on the clock is right
    count(writer, 10)
    writer.checkpoint()
    found = entries(files)
    slow.refresh()
    slow.commit(transactions={"mine": 1})
    assert found == list(range(found[0], 21))
    assert fresh(files).transactions["mine"].version == 1


# ---- removed files
def test_tombstones(files: MemoryFiles, clock: list[int]) -> None:
    """A checkpoint remembers a removed file as long as the table's setting says."""
    writer = made(files, deletedFileRetentionDuration="interval 2 hours")
    writer.commit([Add("a", 1, {"base_offset": "0"}), Add("b", 1, {"base_offset": "1"})])
    writer.commit(removes=[Remove("a", clock[0], 1, {"base_offset": "0"})])

    def remembered() -> list[str]:
        count(writer)
        writer.checkpoint()
        snapshot = writer.log.load(tombstones=True)
        assert list(snapshot.files) == ["b"] and snapshot.base == writer.version
        return list(snapshot.tombstones or {})

    assert remembered() == ["a"]
    clock[0] += 2 * HOUR_MS
    assert remembered() == ["a"]
    clock[0] += 1
    assert remembered() == []


def test_tombstones_as_other_readers_see_them(store: str) -> None:
    """delta-rs reads a checkpoint with a removed file."""
    writer = made(open_files(store, {}))
    writer.commit([Add("a", 1, {"base_offset": "0"}), Add("b c", 1, {"base_offset": "1"})])
    writer.commit(removes=[Remove("a", SYSTEM.time_ns() // 1_000_000, 1, {"base_offset": "0"})])
    writer.checkpoint()
    for version in range(writer.version):
        Path(store, entry_path(version)).unlink()
    other = DeltaTable(Path(store) / FOLDER)
    assert (other.version(), [Path(uri).name for uri in other.file_uris()]) == (2, ["b c"])


def test_vacuum_keeps_what_was_removed_just_now(files: MemoryFiles, clock: list[int]) -> None:
    """An old file that was removed a moment ago may still be read: the grace counts from then on, across a checkpoint."""
    clock[0] = time.time_ns() // 1_000_000
    writer = handle(files)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}, configuration=LONG_LOG))
    paths = [f"{FOLDER}/{name}" for name in ("live", "removed", "uncommitted")]
    for path in paths:
        files.put(path, b"x")
    age(files, 2 * DAY_MS, *paths[:2])
    writer.commit([Add("live", 1, {}), Add("removed", 1, {})])
    writer.commit(removes=[Remove("removed", clock[0], 1, {})])
    clock[0] += HOUR_MS // 2
    count(writer)
    writer.checkpoint()
    assert vacuum(writer, HOUR_MS) == 0 and set(paths) <= set(everything(files))
    clock[0] += HOUR_MS
    assert vacuum(writer, HOUR_MS) == 2
    assert set(paths) & set(everything(files)) == {paths[0]}
    assert fresh(files).version == writer.version


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("read", [0, 1])
def test_a_reader_that_slept_before_it_looked_for_the_next_entry(
    monkeypatch: pytest.MonkeyPatch, is_local: bool, read: int
) -> None:
    """Meanwhile the entry was put, and cleaned up. The reader took that for nothing new; or for nothing but what it had read before."""
    files = MemoryFiles()
    writer, slept_s = made(files, 3), [0.0]
    clock_s = SYSTEM.monotonic_s
    monkeypatch.setattr(type(SYSTEM), "monotonic_s", lambda _: clock_s() + slept_s[0])

    def sleep() -> None:
        slept_s[0] += 3_600.0
        count(writer, 5)
        age(files, 2 * HOUR_MS)
        handle(files).checkpoint()
        assert 4 + read not in entries(files)

    watched = Watched(files, is_local=is_local)
    reader = handle(watched)
    reader.refresh()
    count(writer, read)
    watched.before = once("read", entry_path(4 + read), sleep)
    assert reader.refresh() and reader.version == writer.version
