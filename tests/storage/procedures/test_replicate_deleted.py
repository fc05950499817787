"""A queue at the primary is deleted, created again, or gets a dead-message queue, around a pass or a promotion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.queue import decide
from spark_partq.storage.procedures import primary
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.rivals import Rival
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    OnceHistoryIsChecked,
    clean_log,
    group_of,
    messages,
    once_history_is_checked_fixture,  # noqa: F401
    put,
    sync,
    table,
    there_fixture,  # noqa: F401
)

CONTROL = "queues/q/control"


def of_one_group(store: str, there: str) -> Consumer:
    """Queues `p` and `q`, which group `g` reads, and their replicas."""
    for name in ("p", "q"):
        partq.create_queue(store, name, "v bigint", partitions=1)
        put(store, 0, range(5), queue=name)
    consumer = Consumer(store, "a", queues=("p", "q"), session_timeout_ms=600_000)
    consumer.beat()
    for name in ("p", "q"):
        partq.replicate(store, name, there)
    return consumer


def test_another_queue_of_the_group_is_created_again(store: str, there: str) -> None:
    """S7: a pass of `q` leaves the last copy of the former `p` alone, which can be promoted."""
    of_one_group(store, there)
    delete_queue(Store.at(store), "p")
    partq.create_queue(store, "p", "v bigint", partitions=1)
    put(store, 0, [7], queue="q")
    for _ in range(2):
        assert Replicator(Store.at(store), "q", there).sync().total_lag == 0
    promote(Store.at(there), "p")
    assert sorted(messages(there, 0, "p").values()) == [*range(5)]


@pytest.mark.parametrize("other", [False, True])
def test_a_deletion_is_not_copied(
    store: str, there: str, once_history_is_checked: OnceHistoryIsChecked, other: bool
) -> None:
    """S7: a deletion that begins during a pass, or that of another queue of the group. The copy may be the only one that is left."""
    of_one_group(store, there)
    deleted = "p" if other else "q"

    def delete() -> None:
        open_control(Store.at(store), deleted).decide(decide.delete)

    replicator = Replicator(Store.at(store), "q", there)
    if other:
        delete()
        replicator.sync()
    else:
        once_history_is_checked(CONTROL, delete)
        with pytest.raises(partq.ReplicaError, match="is Deleting"):
            replicator.sync()
    delete_queue(Store.at(store), deleted)
    promote(Store.at(there), deleted)
    assert sorted(messages(there, 0, deleted).values()) == [*range(5)]


def test_a_dead_message_queue_is_set_during_the_pass(
    store: str, there: str, once_history_is_checked: OnceHistoryIsChecked
) -> None:
    """S7, Q8: if the copy's group is past a message that it put aside, the copy of the dead-message queue has it."""
    partq.create_queue(store, "q", "v bigint", partitions=1, dead_letter_queue="dead")
    partq.alter_queue(store, "q", reset=["dead_letter_queue"])
    put(store, 0, range(5))
    consumer = Consumer(store, "a")
    consumer.beat()
    for name in ("q", "dead"):
        partq.replicate(store, name, there)

    def put_aside() -> None:
        partq.alter_queue(store, "q", dead_letter_queue="dead")
        put(store, 0, [0], queue="dead")
        consumer.ack(0, 1)

    once_history_is_checked(CONTROL, put_aside)
    Replicator(Store.at(store), "q", there).sync()
    assert group_of(there).position(consumer.partition_id(0)) == 1 == table(there, 0, "dead").next_offset


def test_a_group_that_is_used_there_and_whose_log_here_was_cleaned_up(store: str, there: str) -> None:
    """S7: passes go on without it, whatever is left of the log here."""
    consumer = of_one_group(store, there)
    promote(Store.at(there), "p")
    delete_queue(Store.at(there), "p")
    consumer.beat()
    for _ in range(8):
        Consumer(store, "b", queues=("p", "q"), session_timeout_ms=600_000).leave()
        consumer.beat()
    for folder in ("groups/g/control", group_of(store).acks_folder):
        clean_log(store, folder)
    put(store, 0, [7], queue="q")
    assert Replicator(Store.at(store), "q", there).sync().total_lag == 0


@pytest.mark.parametrize("as_standby", [False, True])
def test_a_process_that_slept_fences_no_other_queue(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, as_standby: bool
) -> None:
    """S7: it has found that its queue was taken over. Meanwhile the queue is deleted, and another one, or a copy of the new primary, is made."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    sync(store, there)
    os.rename(store, f"{store}-away")
    promote(Store.at(there), "q")
    os.rename(f"{store}-away", store)
    ask = primary.taking_over

    def slept(*arguments: object) -> Iterator[Rival]:
        for rival in ask(*arguments):  # type: ignore[arg-type]
            delete_queue(Store.at(store), "q")
            if as_standby:
                sync(there, store)
            else:
                partq.create_queue(store, "q", "v bigint", partitions=1)
            yield rival

    monkeypatch.setattr(primary, "taking_over", slept)
    partq.maintain(store)
    monkeypatch.undo()
    if as_standby:
        put(there, 0, [9])
        assert Replicator(Store.at(there), "q", store).sync().total_lag == 0
    else:
        assert queue_state(Store.at(store), "q").fenced_by is None
        assert queue_state(Store.at(store), "q").replicas == ()


def test_a_promotion_that_died_is_deleted(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: it had closed the tables of the group, which nobody uses there. Whoever runs a pass of the other queue learns that the group is not copied."""
    consumer = of_one_group(store, there)
    monkeypatch.setattr("spark_partq.storage.procedures.promote.begin_groups_anew", interrupted)
    with pytest.raises(InterruptedError):
        promote(Store.at(there), "p")
    partq.remove_replica(store, "p", there, force=True)
    delete_queue(Store.at(there), "p")
    put(store, 0, [7], queue="q")
    consumer.ack(0, 3, queue="q")
    replicator = Replicator(Store.at(store), "q", there)
    for _ in range(2):
        with pytest.raises(
            partq.ReplicaError, match=r"group 'g' is not copied.*move the folder groups/g of that store"
        ):
            replicator.sync()
    assert len(messages(there, 0, "q")) == 6
    Path(there, "groups/g").rename(Path(there, "former"))
    assert Replicator(Store.at(store), "q", there).sync().total_lag == 0
    assert group_of(there).position(consumer.partition_id(0, "q")) == 3
    replicator.sync()


def test_a_group_that_was_used_there_is_not_copied(store: str, there: str) -> None:
    """S7: nobody need be told of that, also when the queue with which it was used there is deleted there."""
    of_one_group(store, there)
    promote(Store.at(there), "p", force=True)
    Consumer(there, "b", queues=("p",)).leave()
    delete_queue(Store.at(there), "p")
    put(store, 0, [7], queue="q")
    assert Replicator(Store.at(store), "q", there).sync().total_lag == 0


def interrupted(*_: object) -> None:
    raise InterruptedError
