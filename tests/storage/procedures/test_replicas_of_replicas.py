"""Stores that take over from each other in turn: none is used beside another one, and no message is lost (S7)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.facts import Phase
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.promote import decide_replica, promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica import complete
from spark_partq.storage.replica.manifest_copy import ManifestCopy
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store
from tests.groups import Lasting
from tests.replicas import (
    Crash,
    group_of,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)
from tests.scaled import Message, Sink, hash_of, make, stored, target
from tests.storage.procedures.test_promote import take_away


def replica(store: str) -> Any:
    return ReplicaTable(Store.at(store), "q").refresh()


def in_sync(primary: str, *locations: str) -> None:
    """Replicas that know of each other: each has a pass after the others were made."""
    for _ in range(2):
        for location in locations:
            sync(primary, location)


# ---- the first primary comes back
@pytest.mark.parametrize("lost", [True, False])
def test_a_store_that_took_over_has_become_a_standby(queue: str, there: str, lost: bool) -> None:
    """The first primary stays fenced, or is fenced when it comes back; it does not touch the standby of another store."""
    third = f"{there}-3"
    put(queue, 0, range(3))
    sync(queue, there)
    away = take_away(queue) if lost else ""
    promote(Store.at(there), "q")
    if lost:
        os.rename(away, queue)
    sync(there, third)
    promote(Store.at(third), "q")
    partq.delete_queue(there, "q")
    sync(third, there)
    with pytest.raises(partq.QueueFencedError):
        partq.scale(queue, "q", 4)
    for force in (False, True):
        with pytest.raises(partq.ReplicaError, match=f"it follows {third} since"):
            remove_replica(Store.at(queue), "q", there, force=force)
    assert replica(there).phase is Phase.FOLLOWING and replica(there).primary == third
    with pytest.raises(partq.QueueFencedError):
        partq.scale(queue, "q", 4)


def test_the_first_primary_has_become_a_standby(queue: str, there: str) -> None:
    """Then there are no two primaries."""
    put(queue, 0, range(3))
    sync(queue, there)
    promote(Store.at(there), "q")
    partq.delete_queue(queue, "q")
    sync(there, queue)
    assert not diagnose(Store.at(there)).faults


def test_a_replica_that_a_lost_primary_had_taken(queue: str, there: str) -> None:
    """The primary goes on by force, and takes it back; a pass that ran before does not do so by itself."""
    second = f"{there}-2"
    put(queue, 0, range(3))
    in_sync(queue, there, second)
    running = Replicator(Store.at(queue), "q", second)
    promote(Store.at(there), "q")
    Replicator(Store.at(there), "q", second).register()
    take_away(there)
    remove_replica(Store.at(queue), "q", there, force=True)
    put(queue, 0, range(3, 6))
    with pytest.raises(partq.ReplicaError, match="there is no replica of queue 'q'"):
        running.sync()
    sync(queue, second)
    assert replica(second).primary == queue
    put(queue, 0, range(6, 9))
    assert promote(Store.at(second), "q").fenced
    assert sorted(messages(second, 0).values()) == list(range(9))


def test_a_replica_that_a_lost_primary_had_registered(queue: str, there: str) -> None:
    """The primary goes on by force, and removes it, too: it is not promoted beside that."""
    second = f"{there}-2"
    put(queue, 0, range(3))
    in_sync(queue, there, second)
    promote(Store.at(there), "q")
    Replicator(Store.at(there), "q", second).register()
    take_away(there)
    remove_replica(Store.at(queue), "q", there, force=True)
    assert remove_replica(Store.at(queue), "q", second).replicas == ()
    with pytest.raises(partq.ReplicaError, match="removed"):
        promote(Store.at(second), "q")


# ---- what a lost primary had begun
@pytest.mark.parametrize("when", ["before the pass", "after a pass that died", "while the pass reads"])
@pytest.mark.parametrize("rows", [20, 300])
def test_another_manifest_of_a_batch(store: str, there: str, rows: int, when: str) -> None:
    """One replica has that of the lost primary; the sink computes other rows at the one that takes over, which dies in the midst of them."""
    second, keys = f"{there}-2", [next(f"k{n}" for n in range(9) if target(hash_of(f"k{n}"), 2) == at) for at in (0, 1)]
    make(store, 2)
    Sink(store).write(0, [(key, 0) for key in keys])
    in_sync(store, there, second)
    begun: list[Message] = [(keys[n % 2], n) for n in range(20)]
    again: list[Message] = [(keys[(n + 1) % 2], n) for n in range(rows)]
    with mock.patch.object(Producer, "_commit", side_effect=Crash), pytest.raises(Crash):
        Sink(store).write(1, begun)
    sync(store, second)
    take_away(store)
    promote(Store.at(there), "q")

    def written() -> None:
        with mock.patch.object(PartitionTable, "append", _first_alone(PartitionTable.append)), pytest.raises(Crash):
            Sink(there).write(1, again)

    read_queue = Replicator._read_queue

    def written_meanwhile(replicator: Replicator, state: QueueState) -> object:
        written()  # the manifests are listed
        return read_queue(replicator, state)

    if when == "while the pass reads":
        with mock.patch.object(Replicator, "_read_queue", written_meanwhile):
            sync(there, second)
    else:
        if when == "after a pass that died":
            with mock.patch.object(complete, "has_ended", side_effect=Crash), pytest.raises(Crash):
                sync(there, second)
        written()
        sync(there, second)
    take_away(there)
    promote(Store.at(second), "q")
    Sink(second).write(1, begun)
    assert sorted(row for part in stored(second).values() for row in part) == sorted(
        [*again, *((key, 0) for key in keys)]
    )


@pytest.mark.parametrize("batch_comes", ["before the other pass", "after the other pass"])
def test_a_pass_that_began_before_a_batch(store: str, there: str, batch_comes: str) -> None:
    """Another pass ends meanwhile. The manifest, which has the name of one that the lost primary had begun, is brought, and stays."""
    second, keys = f"{there}-2", [next(f"k{n}" for n in range(9) if target(hash_of(f"k{n}"), 2) == at) for at in (0, 1)]
    make(store, 2)
    Sink(store).write(0, [(key, 0) for key in keys])
    in_sync(store, there, second)
    begun: list[Message] = [(keys[n % 2], n) for n in range(20)]
    with mock.patch.object(Producer, "_commit", side_effect=Crash), pytest.raises(Crash):
        Sink(store).write(1, begun)
    sync(store, second)
    take_away(store)
    promote(Store.at(there), "q")
    read_queue, remove = Replicator._read_queue, ManifestCopy.remove

    def dies(manifests: ManifestCopy) -> None:
        remove(manifests)
        raise Crash

    def slow(replicator: Replicator, state: QueueState) -> object:
        with (
            mock.patch.object(Replicator, "_read_queue", read_queue),
            mock.patch.object(ManifestCopy, "remove", remove),
        ):
            if batch_comes == "after the other pass":
                sync(there, second)
            with mock.patch.object(PartitionTable, "append", _first_alone(PartitionTable.append)), pytest.raises(Crash):
                Sink(there).write(1, begun)
            if batch_comes == "before the other pass":
                sync(there, second)
        return read_queue(replicator, state)

    with (
        mock.patch.object(Replicator, "_read_queue", slow),
        mock.patch.object(ManifestCopy, "remove", dies),
        pytest.raises(Crash),
    ):
        sync(there, second)
    take_away(there)
    promote(Store.at(second), "q")
    Sink(second).write(1, begun)
    assert sorted(row for part in stored(second).values() for row in part) == sorted(
        [*begun, *((key, 0) for key in keys)]
    )


def _first_alone(append: Callable[..., int | None]) -> Callable[..., int | None]:
    def first_alone(self: PartitionTable, *args: Any) -> int | None:
        if self.partition == 1:
            raise Crash
        return append(self, *args)

    return first_alone


# ---- passes that sleep
@pytest.mark.parametrize("took_over", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_promotion_dies_before_its_last_fact(queue: str, there: str, lost: bool, took_over: bool) -> None:
    """A pass that slept meanwhile takes the copy for one of another incarnation; the promotion is finished all the same."""
    put(queue, 0, range(3))
    if took_over:
        first, queue = queue, f"{there}-1"
        in_sync(first, queue, there)
        take_away(first)
        promote(Store.at(queue), "q")
    sync(queue, there)
    lacks = complete.lacks

    def late(*args: Any) -> bool:
        with (
            mock.patch.object(complete, "lacks", lacks),
            mock.patch.object(decide_replica, "finish_promotion", side_effect=Crash),
            pytest.raises(Crash),
        ):
            promote(Store.at(there), "q")
        return lacks(*args)

    with mock.patch.object(complete, "lacks", late), pytest.raises(partq.ReplicaError):
        Replicator(Store.at(queue), "q", there).sync()
    if lost:
        take_away(queue)
    assert promote(Store.at(there), "q").fenced is not lost
    assert sorted(messages(there, 0).values()) == [0, 1, 2]


def test_a_replica_is_made_again_while_a_replicator_runs(queue: str, there: str) -> None:
    """It copies a group that was used there once, with a queue that is gone."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, range(100))
    consumer = Lasting(queue, "a", queues=("p", "q"))
    for name in ("p", "q"):
        partq.replicate(queue, name, there)
    running = Replicator(Store.at(queue), "q", there)
    promote(Store.at(there), "p")
    partq.delete_queue(there, "p")
    consumer.ack(0, 5)
    running.sync()
    remove_replica(Store.at(queue), "q", there)
    partq.delete_queue(there, "q")
    shutil.rmtree(f"{there}/groups/g")
    sync(queue, there)
    consumer.ack(0, 90)
    running.sync()
    assert group_of(there).position(consumer.partition_id(0)) == 90
    assert queue_state(Store.at(there), "q").groups == {"g": 0}
