"""Others change a store at the worst moment of a pass: between two of its looks."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.clocks import no_grace
from tests.replicas import (
    OnceHistoryIsChecked,
    assert_equal,
    clean_log,
    faults,
    grow,
    log_names,
    messages,
    once_history_is_checked_fixture,  # noqa: F401
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    there_fixture,  # noqa: F401
)
from tests.storage.procedures.test_maintain import group_at

PARTITION, CONTROL = "queues/q/partitions/partition=0", "queues/q/control"


@pytest.mark.parametrize("promoted", [False, True])
def test_a_log_is_cleaned_up_past_the_copy(
    queue: str, there: str, once_history_is_checked: OnceHistoryIsChecked, promoted: bool
) -> None:
    """S7: the commit after the copy's last one is gone, though there are newer ones. A pass that took that for nothing new lost all of them."""
    put(queue, 0, range(2))
    sync(queue, there)
    for value in range(2, 10):
        put(queue, 0, [value])
    once_history_is_checked(PARTITION, lambda: clean_log(queue, PARTITION))
    if promoted:
        assert promote(Store.at(there), "q").fenced
    else:
        assert Replicator(Store.at(queue), "q", there).sync().total_lag == 0
    assert sorted(messages(there, 0).values()) == [*range(10)]


def test_files_are_deleted_past_the_copy(queue: str, there: str) -> None:
    """S7: it goes on at the checkpoint that maintenance wrote, and writes none: it may have no right to."""
    sync(queue, there)
    put(queue, 0, range(5))
    group_at(queue, "g", {0: 5})
    with no_grace():
        assert partq.maintain(queue, "q")[0].vacuumed_files == 1
    put(queue, 0, [5])
    before = log_names(queue, PARTITION)
    Replicator(Store.at(queue), "q", there).sync()
    assert log_names(queue, PARTITION) == before
    assert_equal(queue, there)


def test_a_control_table_is_cleaned_up_past_the_copy(
    queue: str, there: str, once_history_is_checked: OnceHistoryIsChecked
) -> None:
    """S7, S1: then the copy has the resize that its sealed partitions need, also if the primary is lost."""
    sync(queue, there)
    grow(queue)
    once_history_is_checked(CONTROL, lambda: clean_log(queue, CONTROL))
    Replicator(Store.at(queue), "q", there).sync()
    assert_equal(queue, there)
    shutil.rmtree(queue)
    promote(Store.at(there), "q")
    assert faults(there) == []


def test_a_resize_after_a_pass_has_read_the_map(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: it copies the facts of the new map by the state after them, which explains its seals."""
    sync(queue, there)
    capture = Replicator._capture

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(Replicator, "_capture", capture)
        partq.scale(queue, "q", 4)
        steps, state = capture(*arguments)
        assert steps and state == queue_state(Store.at(queue), "q")
        return steps, state

    monkeypatch.setattr(Replicator, "_capture", late)
    sync(queue, there)
    assert_equal(queue, there)


def test_a_pass_that_slept_leaves_a_newer_queue_alone(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: it has listed the copy's log to trim it. The copy is removed and deleted, and a queue of that name is created there."""
    replicator = Replicator(Store.at(queue), "q", there)
    for value in range(10):
        put(queue, 0, [value])
    replicator.register()
    replicator.sync()
    for value in range(10, 13):
        put(queue, 0, [value])
    clean_log(queue, PARTITION)
    put(queue, 0, [13])
    files, slept = replicator.target.files, list[bool]()
    list_files = files.list_files

    def sleep(folder: str, after: str = "", prefix: str = "") -> object:
        found = list_files(folder, after, prefix)
        if folder == f"{PARTITION}/_delta_log" and trims and not slept:
            slept.append(True)
            remove_replica(Store.at(queue), "q", there)
            delete_queue(Store.at(there), "q")
            partq.create_queue(there, "q", "v bigint", partitions=1)
            put(there, 0, range(100, 105))
        return found

    trims, mirror = list[bool](), TableCopy._mirror_checkpoint

    def trim(copy: TableCopy, jumped: bool) -> None:
        trims[:] = [True] if copy.folder == PARTITION else []
        mirror(copy, jumped)

    monkeypatch.setattr(files, "list_files", sleep)
    monkeypatch.setattr(TableCopy, "_mirror_checkpoint", trim)
    with pytest.raises(partq.ReplicaError, match="was removed while a pass copied to it"):
        replicator.sync()
    assert slept and table(there, 0).next_offset == 5 and sorted(messages(there, 0).values()) == [*range(100, 105)]


@pytest.mark.parametrize("again", [False, True])
def test_a_jump_that_slept_leaves_a_newer_queue_alone(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """S7: it has announced the jump. The copy is removed and deleted, and a queue of that name is created there, now or later."""
    sync(queue, there)
    for value in range(3):
        put(queue, 0, [value])
    clean_log(queue, PARTITION)
    replicator, before, slept = Replicator(Store.at(queue), "q", there), TableCopy._put, []

    def meanwhile(copy: TableCopy, path: str, data: bytes) -> None:
        if not slept and copy.folder == PARTITION:
            slept.append(path)
            remove_replica(Store.at(queue), "q", there)
            delete_queue(Store.at(there), "q")
            if again:
                partq.create_queue(there, "q", "v bigint", partitions=1)
        before(copy, path, data)

    monkeypatch.setattr(TableCopy, "_put", meanwhile)
    with pytest.raises(partq.ReplicaError, match="removed while a pass copied to it"):
        replicator.sync()
    assert slept and slept[0].endswith(".checkpoint.parquet")
    if not again:
        partq.create_queue(there, "q", "v bigint", partitions=1)
    put(there, 0, [7])
    assert messages(there, 0) == {0: 7} and faults(there) == []


def test_the_replica_is_promoted_meanwhile(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the copy has gone on by itself, and the pass says why: nothing was put back to an older state."""
    sync(queue, there)
    put(queue, 0, range(3))
    passed = Replicator._pass

    def promoted(self: Replicator, state: QueueState) -> Any:
        monkeypatch.undo()
        promote(Store.at(there), "q")
        return passed(self, state)

    monkeypatch.setattr(Replicator, "_pass", promoted)
    with pytest.raises(partq.ReplicaError, match="was promoted; nothing is copied there any more"):
        Replicator(Store.at(queue), "q", there).sync()
