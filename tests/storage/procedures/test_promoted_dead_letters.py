"""Dead messages that were put back before their queue's replica took over stay put back; those that the replica lacked do not count (S7)."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.queue.handle import state_unless_deleted
from spark_partq.storage.replica import parts
from spark_partq.storage.store import Store
from tests.helpers import opened, position, put
from tests.replicas import (
    Crash,
    crash,
    messages,
    there_fixture,  # noqa: F401
)
from tests.storage.procedures.test_dead_letters import Query, dead


def put_aside(store: str, start: int, end: int) -> None:
    found = opened(store)
    DeadLetters(found.store, "dead", "g").send(found, found.table(0), 1, DeadMessages(start, end, "dead", 1))


def replicated(store: str, there: str, start: int, end: int) -> None:
    """Ten messages of which some were put aside; both queues have their replicas."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    put_aside(store, start, end)
    for name in ("q", "dead"):
        replicate(Store(store), name, there)


def put_aside_by_a_query(store: str, there: str) -> None:
    """Both queues have their replicas; then a group reads ten messages, and puts the one aside that kills it."""
    partq.create_queue(
        store, "q", "v bigint", key="v", partitions=1, rebalance_delay_ms=0, dead_letter_queue="dead", max_deliveries=2
    )
    put(store, 0, range(10))
    for name in ("q", "dead"):
        replicate(Store(store), name, there)
    query = Query(store, {4}, session_timeout_ms=500)
    while not query.run():
        pass


def redriven(store: str) -> list[int]:
    return [m.payload["v"] for m in partq.dead_letters(store, "q") if m.redriven]


def test_what_was_put_back_before_a_promotion(store: str, there: str) -> None:
    """It is not put back again, and nobody waits for it; what comes later is put back once."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    put_aside(store, 2, 5)
    assert partq.redrive(store, "q") == {"q": 3}
    for name in ("q", "dead"):
        replicate(Store(store), name, there)
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert redriven(there) == [2, 3, 4]
    assert partq.redrive(there, "q") == {}
    put_aside(there, 7, 9)
    assert redriven(there) == [2, 3, 4]
    assert partq.redrive(there, "q") == {"q": 2}
    assert redriven(there) == [2, 3, 4, 7, 8] and partq.redrive(there, "q") == {}


def test_what_was_put_back_before_the_primary_was_lost_in_the_middle_of_a_pass(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is in the queue here counts as put back."""
    replicated(store, there, 2, 4)
    put_aside(store, 5, 6)
    assert partq.redrive(store, "q") == {"q": 3}  # a batch of each file
    with monkeypatch.context() as patch:
        patch.setattr("spark_partq.storage.procedures.replicate.go_on", crash)
        with pytest.raises(Crash):
            replicate(Store(store), "q", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert redriven(there) == [] and partq.redrive(there, "q") == {"q": 2}
    assert redriven(there) == [2, 3]
    assert messages(there, 0) == {**dict(enumerate(range(10))), 10: 2, 11: 3}


def test_what_the_replica_lacked_is_put_back(store: str, there: str) -> None:
    """Its messages have the offsets of those that were put back and lost, and they were not."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    put_aside(store, 0, 1)
    replicate(Store(store), "dead", there)
    put_aside(store, 1, 4)
    assert partq.redrive(store, "q") == {"q": 4}
    with mock.patch.object(parts, "_followed", return_value=None):  # a pass that leaves the dead messages out
        replicate(Store(store), "q", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert redriven(there) == [0]
    put_aside(there, 5, 7)
    assert redriven(there) == [0]
    assert partq.redrive(there, "q") == {"q": 2}


def test_what_was_put_aside_beyond_the_position_that_the_replica_had(store: str, there: str) -> None:
    """The dead-message queue was copied after the group had gone on: the new primary puts aside each message that it leaves out."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    replicate(Store(store), "q", there)
    put_aside(store, 5, 6)  # behind what the group had finished
    replicate(Store(store), "dead", there)
    for name in ("q", "dead"):
        promote(Store(there), name)
    for _ in range(2):
        put_aside(there, 0, 5)
    assert sorted(m.payload["v"] for m in partq.dead_letters(there, "q")) == list(range(6))


@pytest.mark.parametrize("before", ["q", "dead"])
def test_what_is_put_aside_and_back_while_a_pass_reads(store: str, there: str, before: str) -> None:
    """Each message is put back once, in the replica, too."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    for name in ("q", "dead"):
        replicate(Store(store), name, there)
    read_queue = Replicator._read_queue

    def redriven_meanwhile(replicator: Replicator, state: QueueState) -> object:
        if state.name == before:
            put_aside(store, 1, 4)
            assert partq.redrive(store, "q") == {"q": 3}
        return read_queue(replicator, state)

    with mock.patch.object(Replicator, "_read_queue", redriven_meanwhile):
        replicate(Store(store), "q", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "dead"):
        promote(Store(there), name)
    put_aside(there, 5, 7)
    partq.redrive(there, "q")
    assert sorted(messages(there, 0).values()) == sorted([*range(10), 1, 2, 3, 5, 6])


def test_a_pass_has_the_dead_messages_that_its_groups_have_put_aside(store: str, there: str) -> None:
    """Else a message would be in neither of the two queues, if the primary is lost before the next pass of the other one."""
    put_aside_by_a_query(store, there)
    assert position(store, "g", 0) == 10
    replicate(Store(store), "q", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert position(there, "g", 0) == 10 and [row[0] for row in dead(there)] == [4]


def test_messages_are_deleted_in_both_queues_or_in_none(store: str, there: str) -> None:
    """The dead-message queue is still a replica: that is told before anything is deleted."""
    replicated(store, there, 2, 5)
    promote(Store(there), "q")
    with pytest.raises(partq.ReplicaError, match=r"queue 'dead' in .* is a replica"):
        partq.delete_messages(there, "q", {"v": 3})
    assert sorted(messages(there, 0).values()) == list(range(10))


def test_a_dead_message_queue_is_made_again_while_a_replicator_runs(store: str, there: str) -> None:
    replicated(store, there, 1, 3)
    running = Replicator(Store(store), "q", there)
    running.sync()
    for place in (store, there):
        partq.delete_queue(place, "dead")
    running.sync()
    partq.alter_queue(store, "q", dead_letter_queue="dead")
    put_aside(store, 4, 5)
    Replicator(Store(store), "dead", there).register()
    running.sync()
    os.rename(store, f"{store}-away")
    with pytest.raises(partq.ReplicaError, match="never ended"):  # no pass of its own has
        promote(Store(there), "dead")
    assert sorted(messages(there, 0, "dead").values()) == [4]


def test_a_dead_message_queue_that_cannot_be_reached(store: str, there: str) -> None:
    """That is told, and the group stays where it was: its dead message would be in neither queue there."""
    put_aside_by_a_query(store, there)

    def state_of(of: Store, name: str) -> QueueState | None:
        if name == "dead":
            raise partq.StoreUnavailableError("the store does not answer", path="queues/dead")
        return state_unless_deleted(of, name)

    with (
        mock.patch.object(parts, "state_unless_deleted", state_of),
        pytest.raises(partq.StoreUnavailableError, match="does not answer"),
    ):
        replicate(Store(store), "q", there)
    assert not os.path.exists(f"{there}/groups/g/control/_delta_log") and dead(there) == []
    replicate(Store(store), "q", there)
    assert position(there, "g", 0) == 10 and [row[0] for row in dead(there)] == [4]


def test_dead_messages_that_cannot_be_copied(store: str, there: str) -> None:
    """That is told; it keeps no message of the queue back, and the group stays where it was, so that nothing is missing there."""
    partq.create_queue(
        store, "q", "v bigint", key="v", partitions=1, rebalance_delay_ms=0, dead_letter_queue="dead", max_deliveries=2
    )
    put(store, 0, range(10))
    query = Query(store, {4}, session_timeout_ms=500)
    while not dead(store):
        query.run()
    for name in ("q", "dead"):
        replicate(Store(store), name, there)
    before = position(there, "g", 0)
    put(store, 0, range(10, 20))
    put_aside(store, 12, 13)
    newest = max(
        Path(store, "queues/dead/partitions/partition=0").glob("*.parquet"), key=lambda path: path.stat().st_mtime
    )
    newest.unlink()
    while not query.run():
        pass
    assert position(store, "g", 0) == 20
    with pytest.raises(partq.CorruptTableError, match=newest.name):
        replicate(Store(store), "q", there)
    assert sorted(messages(there, 0).values()) == list(range(20)) and position(there, "g", 0) == before
