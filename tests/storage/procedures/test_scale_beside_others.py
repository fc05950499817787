"""A change of the partition count, or a copy of what is stuck, and what others do meanwhile (S2, S4, S6)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.procedures import copy_stuck, scale
from spark_partq.storage.queue.handle import Queue
from tests.helpers import opened
from tests.planners import Query
from tests.scaled import Reader, Sink, make, messages, stored


# ---- what is stuck
def test_a_copy_that_slept_until_the_queue_was_exclusive_again(store: str) -> None:
    """S6: another one has ended the copy. What came since lies in the parent, and is not stuck."""
    make(store, 0)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 12))
    partq.scale(store, "q", 2)
    start = copy_stuck._start

    def slept(queue: Queue) -> QueueState:
        found = start(queue)
        with mock.patch.object(copy_stuck, "_start", start):
            assert partq.copy_stuck(store, "q") == 12
        reader.all()
        partq.scale(store, "q", 0)
        sink.write(1, messages(12, 20))
        return found

    with mock.patch.object(copy_stuck, "_start", slept):
        assert partq.copy_stuck(store, "q") == 0
    assert [v for _, v in stored(store)[PARENT]] == list(range(12, 20))


def test_a_group_that_knows_the_queue_only_from_before_it_was_exclusive(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: it attached, and its join was committed when the queue had been exclusive and was so no more. It wants what came meanwhile."""
    make(store, 2)
    sink, other = Sink(store), Reader(store, group="h")
    sink.write(0, messages(0, 8))
    commit = ControlTable.commit

    def late(table: ControlTable, facts: Any) -> Any:
        monkeypatch.setattr(ControlTable, "commit", commit)
        other.all()
        partq.scale(store, "q", 0)
        sink.write(1, messages(8, 16))
        other.all()
        assert partq.scale(store, "q", 2).stuck == 8
        return commit(table, facts)

    monkeypatch.setattr(ControlTable, "commit", late)
    joins, given = Query(store, "a", starting_offsets="earliest"), 0
    for turn in range(6):
        if turn == 3:
            assert partq.copy_stuck(store, "q") == 8
        given += sum(end - start for start, end in joins.next().values())
    assert given == 16
    joins.leave()


# ---- another operator
def test_a_change_that_is_taken_back(store: str) -> None:
    """S4: whoever asked for it is told."""
    make(store, 2)
    Sink(store).write(0, messages(0, 8))
    Reader(store)
    waits = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(partq.scale, store, "q", 4, "drain", report=lambda _: waits.set())
        assert waits.wait(20)
        partq.scale(store, "q", 2)
        with pytest.raises(partq.ScalingInProgressError, match="was to have 4 partitions and has 2"):
            asked.result(20)


def test_a_deletion_does_not_undo_a_later_change(store: str) -> None:
    """S4: until the partitions were sealed more came in than was confirmed. Before what is left is removed, somebody else asks for another count."""
    make(store, 4)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 20, keys=20))
    queue, remove = opened(store), scale._remove_the_rest
    goes = sum(p.depth for p in partq.describe_queue(store, "q").partitions if p.partition >= 2)

    def meanwhile(of: Queue, started: QueueState, partitions: int, confirm_lost: int | None) -> None:
        if of.state.scaling is None:
            reader.all()
            partq.scale(store, "q", 1)
        remove(of, started, partitions, confirm_lost)

    opens = scale.open_generation

    def late(of: Queue) -> Any:
        if of.state.scaling is not None and of.state.generation == 0:
            sink.write(1, messages(20, 40, keys=40))
        return opens(of)

    patched = mock.patch.multiple(scale, _remove_the_rest=meanwhile, open_generation=late)
    with patched, pytest.raises(partq.ScalingInProgressError, match="was to have 2 partitions and has 1"):
        scale.scale(queue, 2, "delete", confirm_lost=goes)
    assert partq.describe_queue(store, "q").configured_partitions == 1


@pytest.mark.parametrize("mode", ["live", "delete"])
def test_a_timeout_is_kept_in_each_mode(store: str, mode: Any) -> None:
    """S4: here nobody opens the new map."""
    make(store, 4)
    waits = scale.ScaleProgress("a fence that is being taken back", 1)
    closed = mock.patch.object(scale, "open_generation", return_value=waits)
    with closed, pytest.raises(partq.ScalingInProgressError, match="still waits for a fence"):
        scale.scale(opened(store), 2, mode, timeout_s=0.3)


# ---- groups
def test_nobody_waits_for_members_that_read_another_queue(store: str) -> None:
    """S2: as nobody waits for a group without members."""
    make(store, 4)
    partq.create_queue(store, "q2", "k string, v bigint", key="k", partitions=1)
    Sink(store).write(0, messages(0, 20))
    first, second = Query(store, "a"), Query(store, "b", queues=("q2",))
    first.next()
    first.leave()
    second.next()
    assert partq.scale(store, "q", 2, timeout_s=10).configured_partitions == 2
    second.leave()


def test_a_group_that_comes_later_and_dies(store: str) -> None:
    """S2: whoever waits takes its members out, too, when their sessions are over."""
    make(store, 4)
    Sink(store).write(0, messages(0, 20))
    reader, late = Reader(store, "a", session_timeout_ms=60_000), list[Reader]()

    def comes(_: object) -> None:
        if not late:
            late.append(Reader(store, "b", group="h", session_timeout_ms=300))
            reader.all()

    partq.scale(store, "q", 2, timeout_s=20, report=comes)
    assert late and partq.describe_queue(store, "q").operating_partitions == 4  # until somebody reads in its group
