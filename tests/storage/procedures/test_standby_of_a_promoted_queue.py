"""The second replica of a queue follows the first one once that was promoted, and takes over from it (S7)."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures import promote as procedure
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    Crash,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)
from tests.storage.procedures.test_promote import take_away


def promoted(queue: str, there: str, second: str) -> None:
    """Both follow the queue; the first is promoted, and gets messages of its own."""
    put(queue, 0, range(3))
    for _ in range(2):  # from the second pass on each is known to the other
        for location in (there, second):
            sync(queue, location)
    promote(Store.at(there), "q")
    put(there, 0, range(100, 103))


def primary_of(store: str) -> str:
    found = ReplicaTable(Store.at(store), "q").refresh()
    assert found is not None
    return found.primary


@pytest.mark.parametrize("lost", [False, True])
def test_it_takes_over(queue: str, there: str, lost: bool) -> None:
    """The first is no rival: the second has its history, and fences it if it can be reached."""
    second = f"{there}-2"
    promoted(queue, there, second)
    sync(there, second)
    put(there, 0, [103])
    sync(there, second)
    assert primary_of(second) == there
    if lost:
        take_away(there)
    assert promote(Store.at(second), "q").fenced is not lost
    assert sorted(messages(second, 0).values()) == [0, 1, 2, 100, 101, 102, 103]
    if not lost:
        with pytest.raises(partq.QueueFencedError):
            partq.scale(there, "q", 4)


def test_it_could_not_be_told_of_the_promotion(queue: str, there: str) -> None:
    """It follows the first one all the same, so its promotion fences that one, and not the queue of before."""
    second = f"{there}-2"
    put(queue, 0, range(3))
    for location in (there, second):
        sync(queue, location)
    away = take_away(second)
    promote(Store.at(there), "q")
    os.rename(away, second)
    sync(there, second)
    assert promote(Store.at(second), "q").primary == there
    assert queue_state(Store.at(there), "q").fenced_by == second


def test_a_first_pass_that_died_leaves_nothing_to_promote(queue: str, there: str) -> None:
    """It has messages of the first one, and not yet the fact that says which offsets are others now: a sink would lose or repeat results."""
    second = f"{there}-2"
    promoted(queue, there, second)
    apply = TableCopy.apply

    def dies(copy: TableCopy, steps: object) -> int:
        if copy.folder == "queues/q/control":
            raise Crash
        return apply(copy, steps)  # type: ignore[arg-type]

    with mock.patch.object(TableCopy, "apply", dies), pytest.raises(Crash):
        sync(there, second)
    away = take_away(there)
    with pytest.raises(partq.ReplicaError, match="or the first since its primary was itself promoted, never ended"):
        promote(Store.at(second), "q")
    os.rename(away, there)
    sync(there, second)
    take_away(there)
    promote(Store.at(second), "q")
    assert len(queue_state(Store.at(second), "q").former) == 2


def test_back_to_the_first_store_and_on_to_a_third(queue: str, there: str) -> None:
    """The store between them was fenced for the first one, so it stands in nobody's way."""
    second = f"{there}-2"
    put(queue, 0, range(3))
    sync(queue, there)
    promote(Store.at(there), "q")
    partq.delete_queue(queue, "q")
    for _ in range(2):
        sync(there, queue)
    promote(Store.at(queue), "q")
    sync(queue, second)
    assert promote(Store.at(second), "q").fenced


@pytest.mark.parametrize("goes_on", [False, True])
def test_it_follows_the_third_that_took_over_from_the_first(queue: str, there: str, goes_on: bool) -> None:
    """The first is fenced for the third, so it stands in nobody's way; unless it goes on by force."""
    second, third = f"{there}-2", f"{there}-3"
    promoted(queue, there, second)
    sync(there, third)
    promote(Store.at(third), "q")
    sync(third, second)
    assert primary_of(second) == third
    if goes_on:
        take_away(third)
        remove_replica(Store.at(there), "q", third, force=True)
        with pytest.raises(partq.ReplicaError, match=f"another replica of queue 'q', {there}, has taken over"):
            promote(Store.at(second), "q", force=True)
    else:
        assert promote(Store.at(second), "q").fenced
        assert sorted(messages(second, 0).values()) == [0, 1, 2, 100, 101, 102]


def test_the_first_comes_back_after_the_third_took_over_from_it(queue: str, there: str) -> None:
    """Nobody could tell it. The refusal says who took over from whom, and what it advises works: nothing is lost."""
    second, third = f"{there}-2", f"{there}-3"
    promoted(queue, there, second)
    sync(there, third)
    first = take_away(there)
    promote(Store.at(third), "q")
    put(third, 0, [103])
    sync(third, second)
    take_away(third)
    os.rename(first, there)
    for force in (False, True):
        with pytest.raises(partq.ReplicaError, match=f"{there}, has taken over, and {third}.*later.*move its files"):
            promote(Store.at(second), "q", force=force)
    take_away(there)
    promote(Store.at(second), "q")
    assert sorted(messages(second, 0).values()) == [0, 1, 2, 100, 101, 102, 103]


def test_a_store_has_two_names(queue: str, there: str) -> None:
    """Neither a pass under the other one, nor a standby that follows it so, takes it for another store."""
    second = f"{there}-2"
    os.symlink(queue, f"{queue}-link")
    put(queue, 0, range(3))
    for _ in range(3):
        for location in (queue, f"{queue}-link"):
            sync(location, there)
    assert primary_of(there) == queue and queue_state(Store.at(queue), "q").revision <= 3
    sync(queue, second)
    sync(queue, there)
    promote(Store.at(there), "q")
    os.symlink(there, f"{there}-link")
    sync(f"{there}-link", second)
    assert promote(Store.at(second), "q").fenced


def test_a_pass_of_another_queue_of_a_group(queue: str, there: str) -> None:
    """It copies both, and leaves both replicas fit to be promoted."""
    second = f"{there}-2"
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    Consumer(queue, "a", queues=("p", "q")).leave()
    for location in (there, second):
        for name in ("p", "q"):
            partq.replicate(queue, name, location)
    for name in ("p", "q"):
        promote(Store.at(there), name)
    put(there, 0, [100], queue="p")
    sync(there, second)
    for lost in (queue, there):
        take_away(lost)
    promote(Store.at(second), "p")
    assert messages(second, 0, "p") == {0: 100}


def test_a_late_pass_from_the_former_primary(queue: str, there: str) -> None:
    """It ends after a first pass from the new one died: the copy is not whole for that."""
    second = f"{there}-2"
    promoted(queue, there, second)
    lag, apply = Replicator._lag, TableCopy.apply

    def dies(copy: TableCopy, steps: object) -> int:
        if copy.folder == "queues/q/control":
            raise Crash
        return apply(copy, steps)  # type: ignore[arg-type]

    def late(replicator: Replicator, state: QueueState) -> dict[int, int]:
        with mock.patch.object(TableCopy, "apply", dies), pytest.raises(Crash):
            sync(there, second)
        return lag(replicator, state)

    old = Replicator(Store.at(queue), "q", second, taking_over=True)  # it had looked before the queue was fenced
    with mock.patch.object(Replicator, "_lag", late):
        old.sync()
    take_away(there)
    with pytest.raises(partq.ReplicaError, match="never ended"):
        promote(Store.at(second), "q")


def test_force_beside_a_damaged_primary(queue: str, there: str) -> None:
    """It says nothing of who takes over."""
    put(queue, 0, range(3))
    sync(queue, there)
    log = Path(queue, "queues/q/control/_delta_log")
    for entry in log.glob("*.json"):
        entry.write_text("{")
    assert not promote(Store.at(there), "q", force=True).fenced


# ---- promotions that do not end
def interrupted(queue: str, there: str, second: str) -> None:
    """A promotion has fenced the primary, closed the copies, and died."""
    put(queue, 0, range(3))
    for _ in range(2):
        for location in (there, second):
            sync(queue, location)
    with mock.patch.object(procedure, "begin_groups_anew", side_effect=Crash), pytest.raises(Crash):
        promote(Store.at(there), "q")


def test_force_cancels_nothing_that_would_not_help(queue: str, there: str) -> None:
    """The primary is fenced for the other one, which can still be promoted."""
    interrupted(queue, there, f"{there}-2")
    with pytest.raises(partq.ReplicaError, match="If it cannot be promoted, or is lost, remove it"):
        promote(Store.at(f"{there}-2"), "q", force=True)
    promote(Store.at(there), "q")


def test_a_promotion_that_cannot_be_finished_is_taken_back(queue: str, there: str) -> None:
    """By force; then the primary is used again, and another replica can be promoted."""
    second = f"{there}-2"
    interrupted(queue, there, second)
    with pytest.raises(partq.ReplicaError, match="pass force to cancel its promotion"):
        remove_replica(Store.at(queue), "q", there)
    remove_replica(Store.at(queue), "q", there, force=True)
    put(queue, 0, [3])
    assert promote(Store.at(second), "q").fenced
    assert sorted(messages(second, 0).values()) == [0, 1, 2, 3]


def test_a_group_of_two_queues_of_which_one_was_promoted_and_deleted(queue: str, there: str) -> None:
    """The group was used there, so its tables are none of the copy; the other queue's replica goes on, and can be promoted."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, range(3))
    Consumer(queue, "a", queues=("p", "q")).ack(0, 2)
    for name in ("p", "q"):
        partq.replicate(queue, name, there)
    promote(Store.at(there), "p")
    partq.delete_queue(there, "p")
    put(queue, 0, [3])
    assert sync(queue, there).lag == {0: 0, 1: 0}
    assert promote(Store.at(there), "q").fenced
    assert sorted(messages(there, 0).values()) == [0, 1, 2, 3]
