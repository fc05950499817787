"""What an application is told of its partitions, and when a query that reads what there is has ended (H1, K1, K4)."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.errors import AssignorError, ListenerError
from spark_partq.core.group.events import HolddownOver, Leave
from spark_partq.core.group.invariants import check_state
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import eventually, put
from tests.planners import Query
from tests.replicas import there_fixture  # noqa: F401


class Told(Query):
    """It keeps everything that its application is told, in order."""

    def request(self, message: Any, timeout_s: float | None = None) -> Any:
        if message.get("assigned"):
            self.told.append(("assigned", message["assigned"]))
        if "batch" in message:
            self.told.append(("batch", sorted(p for of in message["batch"]["owned"].values() for p in of)))
        return {}


def group_of(store: str) -> Group:
    group = Group(Store(store), "g")
    group.refresh()
    return group


def test_a_partition_is_told_before_the_first_micro_batch_that_has_it(store: str) -> None:
    """K4: also if the same planner call found it, here a queue that matches the pattern."""
    partq.create_queue(store, "q1", "v bigint", partitions=1, rebalance_delay_ms=0)
    query = Told(store, "a", queues=(), queue_pattern="q.*")
    query.next()
    partq.create_queue(store, "q2", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5), queue="q2")
    eventually(query.next, "its messages")
    assert query.told[-2:] == [("assigned", [["q2", 0]]), ("batch", [["q1", 0], ["q2", 0]])]
    query.leave()


def test_what_another_query_owns_is_lost_and_not_revoked(store: str) -> None:
    """K4: a query is stopped that does not know yet that its session has expired."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    query = Query(store, "a")
    query.next()
    other = Consumer(store, "b")
    group_of(store).decide(lambda: [Leave("a", query.planner.membership.incarnation, expired=True)], "b")
    other.ack(0, 5)
    query.leave()
    assert [what for what, _ in query.told] == ["assigned", "lost"]


def test_what_drains_while_the_application_is_told(store: str) -> None:
    """K4: a third member joins meanwhile. Only the partitions of which the application was told are released then; it is told of the others later."""
    partq.create_queue(store, "q", "v bigint", partitions=6, rebalance_delay_ms=0, max_handoff_time_ms=600_000)
    others = list[Consumer]()

    class Slow(Query):
        def request(self, message: Any, timeout_s: float | None = None) -> Any:
            if message.get("revoked") and len(others) == 1:
                others.append(Consumer(store, "c"))
            return super().request(message, timeout_s)

    query = Slow(store, "a")
    with mock.patch.object(Planner, "_start_threads"):
        query.next()
        others.append(Consumer(store, "b"))
        query.next()
        query.next()
    query.leave()
    gone = [sorted(number for _, number in partitions) for what, partitions in query.told if what != "assigned"]
    assert [what for what, _ in query.told] == ["assigned", "revoked", "revoked", "revoked"]
    assert gone == [[3, 4, 5], [2], [0, 1]]


def test_a_listener_that_fails_between_planner_calls_stops_the_query(store: str) -> None:
    """K4: it is not called again, and nothing is released as if it had succeeded."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=600_000)
    for number in range(2):
        put(store, number, range(5))
    calls = list[object]()
    failed = threading.Event()

    class Failing(Query):
        def request(self, message: Any, timeout_s: float | None = None) -> Any:
            if message.get("revoked"):
                calls.append(message)
                failed.set()
                raise ListenerError("a listener of group 'g' failed: the query stops", group="g")
            return {}

    query, other = Failing(store, "a"), Query(store, "b")
    query.next()
    query.planner.membership.batch_finished(query.done)
    other.next()
    assert failed.wait(20)
    with pytest.raises(ListenerError):
        query.next()
    assert len(calls) == 1
    other.leave()
    query.planner.membership.stopping.set()


def test_a_query_that_reads_what_there_is_waits_for_acknowledgements(store: str) -> None:
    """K1, H5: what only `maxUnackedPerFlow` holds back is still to be read."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    query = Query(store, "a", manual_acknowledgement=True, max_unacked_per_flow=6)
    query.planner.stop_at_current_ends()
    assert query.next() == {0: (0, 6)}
    (own,) = group_of(store).state.partitions.values()
    later = threading.Timer(0.5, acknowledge, (Store(store), "g", {("q", 0): 6}, {("q", 0): own.epoch}))
    later.start()
    assert query.next() == {0: (6, 10)}
    assert query.next() == {}
    query.leave()


def test_a_query_that_reads_what_there_is_does_not_wait_for_an_assignor_that_fails(store: str) -> None:
    """K1: nobody can say who reads the rest."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    query = Query(store, "a")
    query.planner.stop_at_current_ends()
    query.next()
    query.planner.membership.failure = AssignorError("it fails")
    with pytest.raises(AssignorError):
        query.planner._is_at_end()
    query.planner.membership.failure = None
    query.leave()


def test_a_standby_gets_nothing_of_a_queue_that_it_does_not_read(store: str) -> None:
    """I7: a query is back with all that it read, within the holddown; it gets what it had, though it kept a part."""
    for name in ("asia", "eu", "us"):
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=600_000)
    small = Query(store, "small", queues=("eu",), flows=2)
    both = Query(store, "both", queues=("asia", "us"), instance_id="both")
    queries = [small, both]
    for query in queries:
        query.next()
    if group_of(store).state.status != "Ready":
        group = group_of(store)
        group.decide(lambda: [HolddownOver(group.state.status_seq)], "test")
        for query in queries:
            query.next()
    assert {own.flow for own in group_of(store).state.partitions.values()} == {"small/0", "both/0"}
    for queues in (("asia",), ("asia", "us")):
        both.planner.membership.stopping.set()  # it is killed, and started again
        both = Query(store, "both", queues=queues, instance_id="both")
        both.next()
    group = group_of(store)
    check_state(group.state, group.acks)
    owners = {group.state.queues[queue_id].name: own.flow for (queue_id, _), own in group.state.partitions.items()}
    assert owners == {"asia": "both/0", "eu": "small/0", "us": "both/0"}
    for query in (small, both):
        query.planner.membership.stopping.set()


def test_nobody_waits_for_the_members_of_a_copied_group(store: str, there: str) -> None:
    """S7: a rebalancer of all groups there has nothing to wait for."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a")
    partq.replicate(store, "q", there)
    watcher = Rebalancer(Store(there))
    list(watcher.step())
    assert watcher.settled
