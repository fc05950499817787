"""Queries that read several queues, of which one is created, deleted or changed while a micro-batch runs."""

from __future__ import annotations

from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.consume import subscription
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.store import Store
from tests.helpers import eventually, group_state, opened, position, put
from tests.planners import Query

ALL: dict[str, Any] = {"queues": (), "queue_pattern": "q.*", "session_timeout_ms": 60_000}


@pytest.fixture(autouse=True)
def _listed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries with a pattern list the queues at each call, and not once a second."""
    monkeypatch.setattr(subscription, "_CHECK_S", -1.0)


def make(store: str, name: str, partitions: int, count: int = 5) -> None:
    partq.create_queue(store, name, "v bigint", partitions=partitions, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    for table in opened(store, name).partitions:
        put(store, table.partition, range(count), queue=name)


def test_a_query_that_its_own_call_unbinds_goes_on(store: str) -> None:
    """S6, Trigger.AvailableNow: the query itself finds that a queue became partitioned; it reads the other queue to the end."""
    make(store, "qa", 0, count=2)
    make(store, "qb", 2, count=10)
    query = Query(store, "one", **ALL)
    query.planner.stop_at_current_ends()
    query.next(Limits(max_rows=6))
    scale.start(opened(store, "qa"), 2, "live")
    assert open_generation(opened(store, "qa")) is None  # the process dies before it tells the groups
    while query.next(Limits(max_rows=6)):
        pass
    assert [position(store, "g", number, "qb") for number in range(2)] == [10, 10]
    assert group_state(store).members.keys() == {"one"}
    query.leave()


def unbound_in_a_micro_batch(store: str) -> Query:
    """A query that reads two queues, and that the group unbinds while a micro-batch runs, as one of them becomes partitioned."""
    make(store, "qa", 0)
    make(store, "qb", 1)
    query = Query(store, "one", starting_offsets="latest", **ALL)
    query.next()
    for name, number in (("qa", -1), ("qb", 0)):
        put(store, number, range(5), queue=name)
    assert query.next()
    before = group_state(store).members["one"].incarnation
    partq.scale(store, "qa", 2)

    def is_back() -> bool:
        member = group_state(store).members.get("one")
        return member is not None and member.incarnation != before

    eventually(is_back, "that it joins again, though its planner is not called")
    return query


def test_a_query_that_is_unbound_in_a_micro_batch_is_alive(store: str) -> None:
    """S6: nobody deletes its group or sets it back."""
    query = unbound_in_a_micro_batch(store)
    with pytest.raises(partq.GroupActiveError):
        partq.delete_group(store, "g")
    with pytest.raises(partq.GroupActiveError):
        partq.reset_offsets(store, "g", "earliest")
    query.planner.membership.batch_finished(query.done)
    eventually(lambda: position(store, "g", 0, "qb") == 10, "the acknowledgement of what it had before")
    query.leave()


def test_a_queue_that_is_created_while_its_reader_is_unbound_is_read_from_its_beginning(store: str) -> None:
    """K3, S6: whatever a query that joins later starts with."""
    query = unbound_in_a_micro_batch(store)
    make(store, "qnew", 1)
    other = Query(store, "two", starting_offsets="latest", **ALL)
    other.next()
    assert position(store, "g", 0, "qnew") == 0
    other.leave()
    query.leave()


def test_a_partition_of_a_queue_that_another_member_found_is_handed_over(store: str) -> None:
    """H1, K3: between two calls of its planner a query gets a partition of a queue that it does not know, and hands it over."""
    make(store, "qa", 2)
    one, two = Query(store, "one", **ALL), Query(store, "two", **ALL)
    for query in (one, two) * 3:
        query.next()
    make(store, "qb", 4)
    found = opened(store, "qb").state.queue_id

    def owned(instance: str) -> list[int]:
        own = group_state(store).partitions
        return [p for (queue, p), o in own.items() if queue == found and (o.flow or "").startswith(instance)]

    eventually(lambda: not two.next() and len(owned("one")) == 2, "that the query that waits owns two of them")
    three = Query(store, "three", **ALL)

    def is_shared() -> bool:
        two.next(), three.next()
        return len(group_state(store).owned("three/0")) == 2

    eventually(is_shared, "that each has two partitions", 20.0)
    assert len(owned("one")) == 1
    for query in (one, two, three):
        query.leave()


def test_a_replay_is_acknowledged_though_one_of_its_queues_is_gone(store: str) -> None:
    """H4: its process does not know the queue that has left the group meanwhile."""
    make(store, "qa", 1)
    make(store, "qb", 1)
    first = Query(store, "one", **ALL)
    first.next()
    first.planner.membership.stopping.set()  # its process dies
    other = Query(store, "other", **ALL)
    partq.delete_queue(Store(store), "qa")
    eventually(lambda: not other.next() and len(group_state(store).queues) == 1, "that the queue has left the group")
    other.leave()
    again = Query(store, "one", **ALL)
    pieces = [piece for flow in again.planner.tasks(first.started, first.done) for piece in flow]
    assert {piece.slice.queue for piece in pieces} == {"qb"}
    again.planner.membership.batch_finished(first.done)
    eventually(lambda: position(store, "g", 0, "qb") == 5, "the acknowledgement")
    again.leave()
