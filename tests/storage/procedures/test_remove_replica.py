"""Replicas that are removed, before and after a promotion (S7)."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import primary
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store
from tests.replicas import (
    Crash,
    assert_equal,
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    there_fixture,  # noqa: F401
)
from tests.scaled import Sink, make, messages, scale, stored


def test_remove(queue: str, there: str) -> None:
    """S7: a replica that was removed is followed no more, and can be taken up again."""
    sync(queue, there)
    assert remove_replica(Store.at(queue), "q", f"{there}/").replicas == ()
    with pytest.raises(partq.ReplicaError, match="no replica of queue"):
        Replicator(Store.at(queue), "q", there).sync()
    with pytest.raises(partq.ReplicaError, match="it has none"):
        remove_replica(Store.at(queue), "q", there)
    put(queue, 0, [1])
    assert sync(queue, there).total_lag == 0
    assert queue_state(Store.at(queue), "q").replicas == (there,)
    assert_equal(queue, there)
    shutil.rmtree(there)
    assert remove_replica(Store.at(queue), "q", there).replicas == ()


@pytest.mark.parametrize("first", ["append", "scale", "delete messages"])
def test_a_fence_that_comes_late_to_a_new_partition(store: str, there: str, first: str) -> None:
    """S7, S1: the promotion slept until it was cancelled and the queue resized; whoever finds the fence takes it back."""
    make(store, 2)
    sync(store, there)
    state = queue_state(Store.at(store), "q")
    fenced = primary.fence(Store.at(store), state, there, state.replica_ids[there])
    assert remove_replica(Store.at(store), "q", there, force=True).fenced_by is None
    scale(store, 3)
    Sink(store).write(0, messages(0, 20))
    primary.fence_partitions(Store.at(store), fenced)
    assert [table(store, n).fenced for n in range(3)] == [False, False, True]
    if first == "append":
        Sink(store).write(1, messages(20, 40))
    elif first == "scale":
        scale(store, 4)
    else:
        assert sum(partq.delete_messages(store, "q", {"k": f"k{n}"}) for n in range(7)) == 20
    assert not table(store, 2).fenced
    assert len([row for rows in stored(store).values() for row in rows]) == {"append": 40, "scale": 20}.get(first, 0)


def test_remove_takes_a_promotion_back(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a primary that was fenced for a promotion that never came about goes on when the replica is removed."""
    sync(queue, there)

    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    monkeypatch.setattr(Replicator, "sync", crash)
    with pytest.raises(Crash):
        promote(Store.at(there), "q")
    assert queue_state(Store.at(queue), "q").fenced_by == there
    state = remove_replica(Store.at(queue), "q", there)
    assert state.fenced_by is None and state.replicas == ()
    assert [table(queue, n).fenced for n in range(2)] == [False, False]
    with pytest.raises(partq.ReplicaError, match="was removed"):
        promote(Store.at(there), "q")


def test_remove_after_the_promotion(queue: str, there: str) -> None:
    """S7: what has taken over is not removed, nor what may have, unless the user says that it is lost."""
    sync(queue, there)
    before = shutil.copytree(queue, f"{queue}-before")
    promote(Store.at(there), "q")
    for store in (queue, before):  # one was fenced, the other comes back from the dead
        with pytest.raises(partq.ReplicaError, match="took over"):
            remove_replica(Store.at(store), "q", there)
    shutil.rmtree(there)
    with pytest.raises(partq.ReplicaError, match="pass force"):
        remove_replica(Store.at(queue), "q", there)
    assert queue_state(Store.at(queue), "q").fenced_by == there
    assert remove_replica(Store.at(queue), "q", there, force=True).fenced_by is None
    assert put(queue, 0, [1]) == 0
    assert remove_replica(Store.at(before), "q", there).replicas == ()
