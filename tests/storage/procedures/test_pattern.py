"""A query that reads all queues whose names match, and one whose queues change, without Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import (
    CheckpointMismatchError,
    QueueFencedError,
    QueueNotFoundError,
    SchemaMismatchError,
)
from spark_partq.core.group.events import Leave, QueuesChanged
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.procedures.consume import subscription
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import group_state, opened, put


class Query:
    """A query, and of each queue and partition what its micro-batches had."""

    def __init__(self, store: str, instance: str = "a", **settings: Any) -> None:
        self.planner = Planner(ConsumerSettings(Store(store), **settings), "g", instance)
        self.done = StreamOffset("g", instance, {}, {})

    def next(self) -> dict[tuple[str, int], tuple[int, int]]:
        end = self.planner.next(self.done, Limits())
        if end is None:
            return {}
        self.done = end
        return {place: (r.start, r.end) for place, r in end.ranges.items() if r.end > r.start}


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query lists the queues before each micro-batch."""
    monkeypatch.setattr(subscription, "_CHECK_S", -1.0)


def create(store: str, name: str, schema: str = "v bigint") -> None:
    partq.create_queue(store, name, schema, partitions=1, rebalance_delay_ms=0, max_handoff_time_ms=0)
    if schema == "v bigint":
        put(store, 0, range(5), queue=name)


@pytest.mark.usefixtures("looks_always")
def test_queues_that_come_and_go(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """A new one is read from its beginning, one that is created again again; nothing is removed from it that the group has not read."""
    create(store, "orders-1")
    create(store, "others")
    query = Query(store, queue_pattern="orders-.*")
    assert query.next() == {("orders-1", 0): (0, 5)}
    create(store, "orders-2")
    with caplog.at_level(logging.WARNING):
        create(store, "orders-3", "w string")
        assert query.next() == {("orders-2", 0): (0, 5)}
        put(store, 0, range(2), queue="orders-2")
        assert query.next() == {("orders-2", 0): (5, 7)}
    refused = [r.getMessage() for r in caplog.records if "other columns" in r.getMessage()]
    assert refused == [
        "queue orders-3 matches the pattern orders-.*, but has other columns than the queues that are read; it is left out"
    ]
    assert opened(store, "orders-2").state.groups == {"g": 0} and opened(store, "orders-3").state.groups == {}
    partq.delete_queue(store, "orders-1")
    assert query.next() == {} and {q.name for q in group_state(store).queues.values()} == {"orders-2"}
    create(store, "orders-1")
    assert query.next() == {("orders-1", 0): (0, 5)}
    query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_queue_with_other_columns_that_appears_while_a_query_starts(store: str) -> None:
    """Spark has asked for the columns already: the queue is left out by this query, too, and the group's other queries go on."""
    create(store, "orders-1")
    running = Query(store, "one", queue_pattern="orders-.*")
    assert running.next() == {("orders-1", 0): (0, 5)}
    columns = opened(store, "orders-1").state.schema
    create(store, "orders-2", "w string")
    late = Query(store, "two", queue_pattern="orders-.*", payload=columns)
    late.next()
    assert {queue.name for queue in group_state(store).queues.values()} == {"orders-1"}
    running.next()
    for query in (running, late):
        query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_queue_that_is_created_again_with_as_many_messages(store: str) -> None:
    """Nothing of the one before counts for it: neither what was planned, nor an acknowledgement, by epochs or by what the query owned."""
    create(store, "day")
    query = Query(store, queue_pattern="day", manual_acknowledgement=True)
    assert query.next() == {("day", 0): (0, 5)}
    before, epoch = query.done, query.done.ranges["day", 0].epoch
    claims = {("day", 0): (before.queue_ids["day"], 0, epoch, query.planner.membership.incarnation)}
    partq.delete_queue(store, "day")
    assert query.next() == {}
    create(store, "day")
    assert query.next() == {("day", 0): (0, 5)}
    assert query.done.ranges["day", 0].epoch > epoch
    (piece,) = (piece for task in query.planner.tasks(before, query.done) for piece in task)
    assert (piece.slice.first_row, piece.slice.last_row) == (0, 5)
    assert acknowledge(Store(store), "g", {("day", 0): 5}, {("day", 0): epoch}) == [("day", 0)]
    assert acknowledge(Store(store), "g", {("day", 0): 5}, claims=claims) == [("day", 0)]
    query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_queue_that_is_created_again_gets_the_partitions_that_it_had(store: str) -> None:
    """Its resize adds them; a late acknowledgement of the queue before does not count there either."""
    partq.create_queue(store, "day", "v bigint", partitions=2, rebalance_delay_ms=0)
    put(store, 1, range(5), queue="day")
    query = Query(store, queue_pattern="day", manual_acknowledgement=True)
    assert query.next() == {("day", 1): (0, 5)}
    epoch = query.done.ranges["day", 1].epoch
    partq.delete_queue(store, "day")
    assert query.next() == {}
    create(store, "day")
    assert query.next() == {("day", 0): (0, 5)}
    partq.scale(store, "day", 2)
    put(store, 1, range(5), queue="day", generation=1)
    acknowledge(Store(store), "g", {("day", 0): 5}, {("day", 0): query.done.ranges["day", 0].epoch})
    while query.next() != {("day", 1): (0, 5)}:
        pass
    assert acknowledge(Store(store), "g", {("day", 1): 5}, {("day", 1): epoch}) == [("day", 1)]
    query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_query_that_stood_still_reads_a_new_queue_from_its_beginning(store: str) -> None:
    """K3: also with ``startingOffsets=latest``, and if it was taken out of its group meanwhile."""
    create(store, "orders-1")
    query = Query(store, queue_pattern="orders-.*", starting_offsets="latest")
    assert query.next() == {}
    membership = query.planner.membership
    membership.group.decide(lambda: [Leave("a", membership.incarnation, expired=True)])
    create(store, "orders-2")
    assert query.next() == {("orders-2", 0): (0, 5)}
    query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_queue_is_deleted_behind_a_query_that_has_listed_it(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another query has read it, and gone on without it: nobody brings it back into the group."""
    for name in ("orders-1", "orders-2"):
        create(store, name)
    partq.delete_queue(store, "orders-2")
    query = Query(store, queue_pattern="orders-.*")
    query.next()
    create(store, "orders-2")
    changes, acts = subscription.Subscription.queue_changes, [None]

    def stands_still(self: subscription.Subscription, group: Group, is_member: bool) -> list[QueuesChanged]:
        found = changes(self, group, is_member)
        if acts:
            acts.pop()
            other = Query(store, "b", queues=("orders-1", "orders-2"))
            other.next()
            partq.delete_queue(store, "orders-2")
            other.next()
            other.planner.leave()
        return found

    monkeypatch.setattr(subscription.Subscription, "queue_changes", stands_still)
    query.next()
    assert [queue.name for queue in group_state(store).queues.values()] == ["orders-1"]
    query.planner.leave()


@pytest.mark.usefixtures("looks_always")
def test_a_queue_with_other_columns_that_the_group_reads(store: str) -> None:
    """Another query of the group has added it: this one may be given its partitions, and cannot read them."""
    create(store, "orders-1")
    query = Query(store, queue_pattern="orders-.*")
    query.next()
    create(store, "orders-2", "w string")
    Consumer(store, "b", queues=("orders-2",))
    with pytest.raises(
        SchemaMismatchError, match="the group reads queue 'orders-2', which matches queuePattern='orders-"
    ):
        query.next()
    query.planner.leave()


def test_nothing_matches(store: str) -> None:
    create(store, "others")
    with pytest.raises(QueueNotFoundError, match=r"matches queuePattern='orders'; its queues: others$"):
        Query(store, queue_pattern="orders")


@pytest.mark.usefixtures("looks_always")
def test_queues_that_are_named_and_deleted(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """It goes on with the others; without any, or with one that is created again, it ends."""
    for name in ("q", "r", "s"):
        create(store, name)
    query = Query(store, queues=("q", "r", "s"))
    assert query.next().keys() == {("q", 0), ("r", 0), ("s", 0)}
    partq.delete_queue(store, "r")
    put(store, 0, range(2))
    with caplog.at_level(logging.WARNING):
        assert query.next() == {("q", 0): (5, 7)}
    assert "queue r was deleted; group and query go on with their other queues" in caplog.text
    assert {q.name for q in group_state(store).queues.values()} == {"q", "s"}
    partq.delete_queue(store, "s")
    create(store, "s")
    with pytest.raises(CheckpointMismatchError, match="queue 's' was deleted and created again while this query ran"):
        query.next()
    for name in ("q", "s"):
        partq.delete_queue(store, name)
    with pytest.raises(QueueNotFoundError):
        query.next()


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("reads", [{"queues": ("orders-1", "orders-2")}, {"queue_pattern": "orders-.*"}])
def test_a_queue_whose_replica_took_over(store: str, tmp_path: Path, reads: dict[str, Any]) -> None:
    """S7: the query ends, and begins no more, however it names the queue: nobody tells it apart from a queue without messages."""
    there = str(tmp_path / "there")
    for name in ("orders-1", "orders-2"):
        create(store, name)
    query = Query(store, **reads)
    assert query.next().keys() == {("orders-1", 0), ("orders-2", 0)}
    partq.replicate(store, "orders-2", there)
    assert partq.promote(there, "orders-2").fenced
    assert query.next() == {}, "it has not heard of it yet"
    for _ in range(2):
        with pytest.raises(QueueFencedError, match=f"queue 'orders-2' .* taken over by its replica in {there}"):
            query.next()
    query.planner.leave()
    with pytest.raises(QueueFencedError):
        Query(store, **reads)


def test_partitions_that_come(store: str) -> None:
    """The group learns of them from the query, which reads them from their beginning on."""
    create(store, "q")
    query = Query(store, queues=("q",), starting_offsets="latest")
    assert query.next() == {}
    partq.scale(store, "q", 3)
    for number in range(3):
        put(store, number, range(2), generation=1)
    found = query.next() | query.next()
    assert found == {("q", 0): (5, 7), ("q", 1): (0, 2), ("q", 2): (0, 2)}
    query.planner.leave()
