"""A batch that is written again is what was first made durable, whatever is computed then (Q5, S5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.manifest import ManifestName
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.rewrites import MAX_REWRITES
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SYSTEM
from tests.helpers import opened
from tests.scaled import Message, Reader, Sink, assert_in_order, make, messages, stored
from tests.storage.procedures.test_begun import half_of_a_batch, manifests


def rows(store: str) -> list[Message]:
    return sorted(row for part in stored(store).values() for row in part)


@pytest.mark.parametrize("again", [[], messages(100, 107), messages(0, 20, keys=3)], ids=["none", "others", "other keys"])  # fmt: skip
@pytest.mark.parametrize("partitions", [2, 3, 1, 0])
def test_a_replay_with_other_rows(store: str, again: Sequence[Message], partitions: int) -> None:
    """Q5: each row of the first attempt is in once, also if the map changed in between; of the second one none is."""
    make(store, 2)
    half_of_a_batch(store)
    before = rows(store)
    if partitions != 2:
        partq.scale(store, "q", partitions)
    reader = Reader(store)
    assert Sink(store).write(0, again) == 20 - len(before)
    assert_in_order(reader.all(), messages(0, 20))
    assert Sink(store).write(0, again) == 0
    assert Sink(store).write(1, messages(20, 30)) == 10


def test_the_map_changes_twice(store: str) -> None:
    """S5: what is placed again is placed once more, from a second manifest, and in order."""
    make(store, 3)
    sink, counts = Sink(store), iter((5, 2))
    append = PartitionTable.append

    def late(self: PartitionTable, *args: Any) -> int | None:
        count = next(counts, None) if self.partition == 0 else None
        if count is not None:
            scale.scale(opened(store), count)
        return append(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionTable, "append", late)
        assert sink.write(0, messages(0, 60)) == 60
    assert opened(store).state.generation == 2
    assert [path.name[-7:] for path in manifests(store)] == [".0.json", ".1.json", ".2.json"]
    assert_in_order(Reader(store).all(), messages(0, 60))


def test_without_ids_the_files_are_placed_again(store: str) -> None:
    """Q5: rows that have no identity are not computed again either, and leave no manifest."""
    make(store, 2)
    sink, calls = Sink(store, None), []

    def begun() -> None:
        calls.append(1)
        scale.scale(opened(store), 3)

    assert sink.write(0, messages(0, 30), begun) == 30
    assert len(calls) == 1 and manifests(store) == []
    assert_in_order(Reader(store).all(), messages(0, 30))


def test_files_too_old_are_written_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: so that maintenance never deletes what a manifest is about to name; but not for ever."""
    make(store, 2, vacuum_grace_ms=7_200_000)
    now, calls = [0.0], [0]
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: now[0])

    def slow(times: int) -> Any:
        def begun() -> None:
            calls[0] += 1
            now[0] += 3_601 if calls[0] <= times else 0

        return begun

    assert Sink(store).write(0, messages(0, 20), slow(1)) == 20 and calls == [2]
    with pytest.raises(partq.CommitFailedError, match="written 4 times"):
        Sink(store).write(1, messages(20, 40), slow(100))
    assert calls[0] == 2 + MAX_REWRITES + 1
    assert rows(store) == sorted(messages(0, 20)) and len(manifests(store)) == 1


def test_without_ids_files_too_old_are_placed_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: nothing names them before they are committed; they are copied, and not computed again."""
    make(store, 2)
    now, calls = [0.0], []
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: now[0])

    def begun() -> None:
        calls.append(1)
        now[0] += 10 * 86_400

    assert Sink(store, None).write(0, messages(0, 20), begun) == 20 and len(calls) == 1
    assert rows(store) == sorted(messages(0, 20))


def test_files_that_are_gone(store: str) -> None:
    """Q5: a batch that cannot be finished says so, and commits nothing that is not there."""
    make(store, 2)
    half_of_a_batch(store)
    queue = opened(store)
    (name,) = Manifests(queue.store, "q", queue.state.queue_id).names()
    (file,) = Manifests(queue.store, "q", queue.state.queue_id).read(name).left({0: {0}})
    queue.store.files.delete(f"{queue.table(1).folder}/{file.path}")
    before = rows(store)
    with pytest.raises(partq.CommitFailedError, match=r"batch 0 of sink 's' was begun.*is missing. Restore it"):
        Sink(store).write(0, messages(0, 20))
    assert rows(store) == before


def test_a_slow_twin_begins_nothing_anew(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: one that slept until its twin had written the next batch is told so, and adds nothing."""
    make(store, 2)
    find = Batch.find

    def late(self: Batch) -> Any:
        found = find(self)
        monkeypatch.setattr(Batch, "find", find)
        for batch in range(2):
            Sink(store).write(batch, messages(20 * batch, 20 * batch + 20))
        return found

    monkeypatch.setattr(Batch, "find", late)
    with pytest.raises(partq.SinkAheadError):
        Sink(store).write(0, messages(100, 120))
    assert rows(store) == sorted(messages(0, 40))


def test_a_batch_that_begins_between_the_two_looks(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: manifests are listed, then a twin begins and dies, then the tables are read: the batch is finished, not taken for whole."""
    make(store, 2)
    recorded = Batch.recorded

    def late(self: Batch) -> Any:
        monkeypatch.setattr(Batch, "recorded", recorded)
        half_of_a_batch(store)
        return recorded(self)

    monkeypatch.setattr(Batch, "recorded", late)
    assert Sink(store).write(0, messages(100, 120)) > 0
    assert rows(store) == sorted(messages(0, 20))


def test_a_manifest_of_another_history(store: str) -> None:
    """S7: one that a pass put into a replica, after it had taken over, from a primary that had gone another way."""
    make(store, 2)
    half_of_a_batch(store)
    queue = opened(store)
    folder = Manifests(queue.store, "q", queue.state.queue_id)
    (name,) = folder.names()
    strange = folder.read(name)
    for n, other in enumerate(({"generation": 1}, {"placed": {0: (1,)}, "generation": 1}), 1):
        folder.put(type(strange)(**{**vars(strange), **other, "name": ManifestName("s", 0, n), "files": ()}))
    partq.scale(store, "q", 3)
    assert Sink(store).write(0, []) > 0
    assert rows(store) == sorted(messages(0, 20))
    assert [n.number for n in folder.names()] == [0, 1, 2, 3]


def test_an_earlier_or_a_removed_manifest_folder(store: str) -> None:
    """Q1: a producer of a queue that was deleted is told so, and leaves the one of that name alone."""
    make(store, 2)
    sink = Sink(store)
    with pytest.raises(partq.QueueNotFoundError):
        sink.write(0, messages(0, 20), lambda: (partq.delete_queue(store, "q"), make(store, 2)))  # type: ignore[arg-type, func-returns-value]
    assert rows(store) == [] and manifests(store) == []
