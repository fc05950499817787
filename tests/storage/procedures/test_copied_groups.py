"""Groups that are copies of another store's, and queries of a store that holds replicas beside its own queues (S7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import promote as promoting
from spark_partq.storage.procedures.inactive import await_inactive
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import attach_group, open_queue
from spark_partq.storage.replica.group_copies import replica_of
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import group_of, put, table, there_fixture  # noqa: F401
from tests.scaled import Crash
from tests.storage.procedures.test_pattern import Query, create, looks_always  # noqa: F401


def files(store: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}


def lost(store: str) -> None:
    os.rename(store, f"{store}-lost")


@pytest.mark.usefixtures("looks_always")
def test_a_pattern_leaves_out_replicas(store: str, there: str) -> None:
    """Until they are promoted: nothing is committed into a copy, whose passes go on."""
    create(store, "orders-1")
    create(there, "orders-2")
    query = Query(there, queue_pattern="orders-.*")
    assert query.next() == {("orders-2", 0): (0, 5)}
    partq.replicate(store, "orders-1", there)
    copy = files(f"{there}/queues/orders-1")
    assert query.next() == {}
    assert files(f"{there}/queues/orders-1") == copy
    put(store, 0, [5], queue="orders-1")
    partq.replicate(store, "orders-1", there)
    other = Query(there, "b", queue_pattern="orders-.*")
    other.next()
    other.planner.leave()
    query.next()
    partq.promote(there, "orders-1")
    assert query.next() == {("orders-1", 0): (0, 6)}
    query.planner.leave()


def test_only_replicas_match(store: str, there: str) -> None:
    create(store, "q")
    partq.replicate(store, "q", there)
    with pytest.raises(
        partq.QueueNotFoundError, match=r"its queues: q; left out until they are promoted, as they are replicas: q$"
    ):
        Query(there, queue_pattern="q|r")


@pytest.mark.usefixtures("looks_always")
def test_a_pattern_in_a_group_of_which_one_queue_was_promoted(store: str, there: str) -> None:
    """The group is used where that is: it reads the other queue once that is promoted, too."""
    for name in ("p", "q"):
        create(store, name)
    Consumer(store, "a", queues=("p", "q")).ack(0, 2, queue="p")
    for name in ("p", "q"):
        partq.replicate(store, name, there)
    lost(store)
    partq.promote(there, "p")
    query = Query(there, queue_pattern="p|q")
    assert query.next() == {("p", 0): (2, 5)}
    copy = files(f"{there}/queues/q")
    put(there, 0, [5], queue="p")
    assert query.next() == {("p", 0): (5, 6)}
    assert files(f"{there}/queues/q") == copy
    partq.promote(there, "q")
    assert query.next() == {("q", 0): (0, 5)}
    query.planner.leave()


@pytest.mark.parametrize("joined", [True, False])
def test_a_copied_group_is_not_joined(store: str, there: str, joined: bool) -> None:
    """Its own store's queue is not even attached; also if all that is copied yet says no more than that the group reads the replica."""
    create(store, "q")
    create(there, "own")
    if joined:
        Consumer(store, "a").ack(0, 3)
    else:
        attach_group(open_queue(Store.at(store), "q"), "g", 0)
    partq.replicate(store, "q", there)
    before = files(there)
    query = Query(there, queues=("own",))
    with pytest.raises(partq.ReplicaError, match=r"group 'g' .* is a copy .* the replica of queue 'q'.* another group"):
        query.next()
    assert files(there) == before
    put(store, 0, [5])
    assert partq.replicate(store, "q", there).lag == {0: 0}
    partq.promote(there, "q")
    assert query.next() == {("own", 0): (0, 5)}
    query.planner.leave()


def test_a_group_is_used_where_one_of_its_queues_was_promoted(store: str, there: str) -> None:
    for name in ("p", "q"):
        create(store, name)
    Consumer(store, "a", queues=("p", "q")).beat()
    for name in ("p", "q"):
        partq.replicate(store, name, there)
    assert replica_of(group_of(there)) in ("p", "q")
    with pytest.raises(partq.ReplicaError, match="is a copy"):  # whose member nobody takes out here
        await_inactive(Store.at(there), group_of(there))
    lost(store)
    partq.promote(there, "q")
    assert replica_of(group_of(there)) is None


def test_a_group_is_not_copied_once_the_promotion_of_one_of_its_queues_has_begun(store: str, there: str) -> None:
    """The promotion closes the group's tables as they are. Here it is interrupted before that."""
    for name in ("p", "q"):
        create(store, name)
    consumer = Consumer(store, "a", queues=("p", "q"))
    consumer.beat()
    for name in ("p", "q"):
        partq.replicate(store, name, there)
    with mock.patch.object(promoting, "_close", side_effect=Crash), pytest.raises(Crash):
        partq.promote(there, "p")
    consumer.ack(0, 3, queue="q")
    put(store, 0, [5], queue="q")
    copy = files(f"{there}/groups")
    assert partq.replicate(store, "q", there).lag == {0: 0}
    assert files(f"{there}/groups") == copy
    partq.promote(there, "p")
    assert replica_of(group_of(there)) is None


def test_a_group_that_reads_a_queue_of_its_own_store_is_used_there(store: str, there: str) -> None:
    """Also one that an earlier release let into a replica."""
    create(store, "q")
    create(there, "own")
    partq.replicate(store, "q", there)
    Consumer(there, "a", queues=("own", "q")).leave()
    query = Query(there, queues=("own",))
    assert query.next() == {("own", 0): (0, 5)}
    query.planner.leave()


@pytest.mark.parametrize("more", [0, 9])
def test_a_group_of_that_name_which_the_store_has(store: str, there: str, more: int) -> None:
    """It is told each time, and keeps what it has; the queue is copied. A replica that is new is refused."""
    create(store, "q")
    create(there, "own")
    partq.replicate(store, "q", there)
    own = Consumer(there, "a", queues=("own",))
    for _ in range(more):
        own.beat()
    before = group_of(there).state
    Consumer(store, "a").beat()
    put(store, 0, [5])
    replicator = Replicator(Store.at(store), "q", there)
    passes: list[Any] = [replicator.sync, replicator.sync, lambda: partq.replicate(store, "q", there)]
    for one in passes:
        with pytest.raises(partq.ReplicaError, match=r"groups/g/acks is no copy|groups/g/control is no copy") as error:
            one()
        assert not isinstance(error.value, partq.OtherHistoryError)
    assert table(there, 0).next_offset == table(store, 0).next_offset == 6
    assert group_of(there).state == before
    create(store, "r")
    Consumer(store, "b", queues=("r",)).beat()
    with pytest.raises(partq.ReplicaError, match="is no copy"):
        partq.replicate(store, "r", there)
    assert not Path(there, "queues/r").exists()
