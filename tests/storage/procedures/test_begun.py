"""What maintenance keeps of batches that were begun, and what it removes (Q5, Q8)."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.records import KEPT_MS
from spark_partq.storage.procedures import maintain as maintaining
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from tests.clocks import no_grace, wall_clock
from tests.helpers import opened
from tests.scaled import Sink, make, messages, scale, stored


def half_of_a_batch(store: str, sink_id: str = "s", offsets_digest: str | None = None) -> None:
    """A producer dies when one of two partitions has its part."""
    append = PartitionTable.append

    def half(self: PartitionTable, *args: Any) -> int | None:
        if self.partition == 1:
            raise KeyboardInterrupt
        return append(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionTable, "append", half)
        with pytest.raises(KeyboardInterrupt):
            Sink(store, sink_id, offsets_digest=offsets_digest).write(0, messages(0, 20))


def manifests(store: str) -> list[Path]:
    return sorted(Path(store).glob("queues/q/manifests/*/*.json"))


def test_a_queue_that_is_deleted_meanwhile_gets_no_folder(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q8: maintenance has begun when it is deleted; nothing is left that a command could not remove."""
    make(store, 2)
    queue, close_parent = opened(store), maintaining.close_parent

    def deleted(queue: Queue) -> bool:
        partq.delete_queue(store, "q")
        return close_parent(queue)

    monkeypatch.setattr(maintaining, "close_parent", deleted)
    with pytest.raises(partq.QueueNotFoundError, match="was deleted"):
        maintain(queue)
    assert not Path(store, "queues/q").exists()


def test_a_batch_is_not_taken_for_in_because_its_manifest_went_with_the_queue(store: str) -> None:
    """Q5: a producer goes on with a batch while its queue is deleted and created again: it is told, and can write the batch again."""
    make(store, 2)
    half_of_a_batch(store)
    looks, acts = Batch.was_forgotten, [lambda: partq.delete_queue(store, "q"), lambda: make(store, 2)]

    def late(batch: Batch, *args: Any) -> bool:
        while acts:
            acts.pop(0)()
        return looks(batch, *args)

    with mock.patch.object(Batch, "was_forgotten", late), pytest.raises(partq.QueueNotFoundError):
        Sink(store).write(0, messages(0, 20))
    assert Sink(store).write(0, messages(0, 20)) == 20


def test_files_that_are_still_to_be_committed_stay(store: str) -> None:
    """Q5: however old they are; what nobody has begun goes, and what was committed and removed."""
    make(store, 2)
    half_of_a_batch(store)
    folder = Path(store) / "queues/q/partitions/partition=1"
    (left,) = folder.glob("*.parquet")
    stray = folder / "part-stray.parquet"
    stray.write_bytes(b"x")
    for file in (left, stray):
        os.utime(file, (0, 0))
    with no_grace():
        assert maintain(opened(store)).vacuumed_files == 1
    assert left.exists() and not stray.exists()
    before = len(stored(store)[0])
    assert Sink(store).write(0, []) == 20 - before > 0
    assert sorted(row for rows in stored(store).values() for row in rows) == sorted(messages(0, 20))


def test_files_that_were_placed_again_go(store: str) -> None:
    """Q5: a new map came between the manifest and the commits. Nobody commits the first files any more, which hold what somebody may delete."""
    make(store, 1)
    put, scaled = Batch.put, list[Any]()

    def scaled_behind_it(batch: Batch, manifest: Any) -> Any:
        found = put(batch, manifest)
        if not scaled:
            scaled.append(scale(store, 2))
        return found

    with mock.patch.object(Batch, "put", scaled_behind_it):
        Sink(store).write(0, messages(0, 20))
    assert len(manifests(store)) == 2 and len(list(Path(store).rglob("part-*.parquet"))) == 3
    with no_grace():
        assert maintain(opened(store)).vacuumed_files == 1
    assert sorted(row for rows in stored(store).values() for row in rows) == sorted(messages(0, 20))


def test_files_of_a_damaged_manifest_stay(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows which these are, so none is deleted; messages are removed as ever."""
    make(store, 2, retention_ms=0)
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)):
        half_of_a_batch(store)
    manifests(store)[0].write_bytes(b"{")
    (left,) = (Path(store) / "queues/q/partitions/partition=1").glob("*.parquet")
    os.utime(left, (0, 0))
    with no_grace():
        report = maintain(opened(store))
    assert left.exists() and report.vacuumed_files == 0 and report.removed_messages > 0
    assert "is damaged" in caplog.text
    with pytest.raises(partq.CorruptTableError, match=r"s~0{20}\.0\.json.*restore it from a backup"):
        Sink(store).write(0, messages(0, 20))


def test_which_manifests_go(store: str) -> None:
    """Q5: those of earlier batches; and the last of a sink that no table knows any more, if it is 30 days old."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    first = manifests(store)[0].read_bytes()
    Sink(store).write(1, messages(20, 40))
    assert [path.name[-8:] for path in manifests(store)] == ["1.0.json"]
    manifests(store)[0].with_name("s~00000000000000000000.0.json").write_bytes(first)
    Sink(store, "empty").write(7, [])
    maintain(opened(store))
    assert [path.name for path in manifests(store)] == [
        "empty~00000000000000000007.0.json",
        "s~00000000000000000001.0.json",
    ]
    for path in manifests(store):
        os.utime(path, (path.stat().st_mtime - KEPT_MS / 1000 - 1,) * 2)
    maintain(opened(store))
    assert [path.name for path in manifests(store)] == ["s~00000000000000000001.0.json"]
    assert Sink(store).write(1, messages(20, 40)) == 0


@pytest.mark.parametrize("partitions", [3, 4])
def test_a_manifest_that_does_not_hold_says_nothing_of_files(store: str, partitions: int) -> None:
    """Q5: a pass to a replica slept while that took over, and put what its primary made of the batch under a map of its own."""
    make(store, 2)
    half_of_a_batch(store)
    scale(store, 4)
    (manifest,) = manifests(store)
    other = {
        **json.loads(manifest.read_text()),
        "generation": 1,
        "partition_count": partitions,
        "placed": {},
        "files": [],
    }
    manifest.with_name(manifest.name.replace(".0.json", ".1.json")).write_text(json.dumps(other))
    left = list(Path(store).rglob("part-*.parquet"))
    for file in left:
        os.utime(file, (0, 0))
    with no_grace():
        maintain(opened(store))
    assert all(file.exists() for file in left)
    before = len([row for rows in stored(store).values() for row in rows])
    assert Sink(store).write(0, []) == 20 - before > 0


def test_what_dead_processes_were_writing_goes(store: str) -> None:
    """When it is an hour old."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    folder = manifests(store)[0].parent
    old, young = folder / ".old.tmp", folder / ".young.tmp"
    for file in (old, young):
        file.write_bytes(b"x")
    os.utime(old, (0, 0))
    maintain(opened(store))
    assert not old.exists() and young.exists() and len(manifests(store)) == 1


def test_a_second_name_of_a_manifest_stays(store: str) -> None:
    """Q5: a process died while it put the manifest. To delete the second name would change the time by which everybody judges the manifest."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    (manifest,) = manifests(store)
    second = manifest.parent / ".dead.tmp"
    os.link(manifest, second)
    os.utime(manifest, (0, 0))
    before = manifest.stat()
    maintain(opened(store))
    assert second.exists() and manifest.stat().st_ctime_ns == before.st_ctime_ns
    manifest.unlink()
    maintain(opened(store))
    assert not second.exists()


@pytest.mark.parametrize("was_placed", [True, False])
def test_whoever_comes_back_while_maintenance_forgets_silent_sinks(store: str, was_placed: bool) -> None:
    """Q5: it has found its last batch; what is not in stays durable until it is, and what is in is not put in again."""
    make(store, 2)
    with long_ago(), contextlib.ExitStack() as stack:
        if not was_placed:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
            stack.enter_context(mock.patch.object(PartitionTable, "append", side_effect=KeyboardInterrupt))
        Sink(store).write(0, messages(0, 20))
    aged(store)
    Sink(store, "other").write(0, messages(100, 120))
    find, append = Batch.find, PartitionTable.append

    def slow(batch: Batch) -> Any:
        found = find(batch)
        with mock.patch.object(Batch, "find", find):
            maintain(opened(store))
        return found

    def dies(table: PartitionTable, *args: Any) -> Any:
        if table.partition == 1:
            raise KeyboardInterrupt
        return append(table, *args)

    with mock.patch.object(Batch, "find", slow):
        if was_placed:
            assert Sink(store).write(0, messages(0, 20)) == 0
        else:
            with mock.patch.object(PartitionTable, "append", dies), pytest.raises(KeyboardInterrupt):
                Sink(store).write(0, messages(0, 20))
            Sink(store).write(0, messages(0, 20))
    rows = [row for rows in stored(store).values() for row in rows]
    assert sorted(rows) == sorted(messages(0, 20) + messages(100, 120))


def long_ago() -> Any:
    return wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=KEPT_MS + 86_400_000))


def aged(store: str) -> None:
    """Make all manifests older than the time after which a sink is taken for dead."""
    for path in manifests(store):
        os.utime(path, (0, 0))


def records(store: str, sink_id: str = "s") -> list[int]:
    return [table.recorded(f"partq:sink/{sink_id}") for table in opened(store).partitions]


def test_a_manifest_of_a_silent_sink_stays_as_long_as_its_records(store: str) -> None:
    """Q5: so another query with its sink's id is told so, and not taken for its replay."""
    make(store, 2)
    Sink(store, query_id="first").write(0, messages(0, 20))
    aged(store)
    maintain(opened(store))
    with pytest.raises(partq.SinkAheadError, match="another query"):
        Sink(store, query_id="second").write(0, messages(0, 20))


def test_a_silent_sink_is_forgotten_as_a_whole(store: str) -> None:
    """Q5: by all tables, though others write to one of them only; so its last manifest does not hold files for ever that are rewritten."""
    make(store, 2)
    with long_ago():
        Sink(store, query_id="first").write(0, messages(0, 20))
    aged(store)
    maintain(opened(store))  # nobody has written since: a clock alone ends no sink
    assert records(store) == [0, 0] and len(manifests(store)) == 1
    Sink(store, "other").write(0, [("k0", 20)])
    assert records(store, "other").count(0) == 1
    maintain(opened(store))
    assert records(store) == [-1, -1] and [path.name[:5] for path in manifests(store)] == ["other"]
    gone = sum(partq.delete_messages(store, "q", {"k": f"k{n}"}) for n in range(7))
    with no_grace():
        maintain(opened(store))
    assert gone == 21 and len(list(Path(store).rglob("part-*.parquet"))) == sum(
        len(table.index) for table in opened(store).partitions
    )
    assert Sink(store, query_id="second").write(0, messages(0, 20)) == 20  # the id is free again


def test_a_sink_that_is_half_in_is_never_forgotten(store: str) -> None:
    """Q5: when its query comes back it finishes the batch, and what is in is not doubled."""
    make(store, 2)
    with long_ago():
        half_of_a_batch(store)
    aged(store)
    before = len([row for rows in stored(store).values() for row in rows])
    Sink(store, "other").write(0, messages(100, 120))
    for _ in range(2):
        maintain(opened(store))
    assert 0 in records(store) and len(manifests(store)) == 2
    assert Sink(store).write(0, []) == 20 - before > 0
    assert sorted(row for rows in stored(store).values() for row in rows) == sorted(
        messages(0, 20) + messages(100, 120)
    )


def test_who_forgets_a_sink_dies(store: str) -> None:
    """Q5: when its manifest is gone and one table has forgotten it, the next run goes on with the others."""
    make(store, 2)
    with long_ago():
        Sink(store).write(0, messages(0, 20))
    aged(store)
    Sink(store, "other").write(0, messages(100, 120))
    forget = PartitionTable.forget

    def half(self: PartitionTable, *args: Any) -> None:
        if self.partition == 1:
            raise KeyboardInterrupt
        forget(self, *args)

    with mock.patch.object(PartitionTable, "forget", half), pytest.raises(KeyboardInterrupt):
        maintain(opened(store))
    assert records(store) == [-1, 0] and [path.name[:5] for path in manifests(store)] == ["other"]
    maintain(opened(store))
    assert records(store) == [-1, -1]


def test_a_sink_that_wakes_up_is_not_forgotten(store: str) -> None:
    """Q5: it writes its next batch after maintenance has judged that it is silent."""
    make(store, 2)
    with long_ago():
        Sink(store).write(0, messages(0, 20))
    aged(store)
    Sink(store, "other").write(0, messages(100, 120))
    forget, woken = PartitionTable.forget, list[int]()

    def late(self: PartitionTable, *args: Any) -> None:
        if not woken:
            woken.append(Sink(store).write(1, messages(20, 40)))
        forget(self, *args)

    with mock.patch.object(PartitionTable, "forget", late):
        maintain(opened(store))
    assert woken == [20] and records(store) == [1, 1]
    assert Sink(store).write(1, messages(20, 40)) == 0
