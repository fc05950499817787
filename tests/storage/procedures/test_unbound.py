"""Planners whose queue becomes exclusive or partitioned: they are unbound, hear of it, and bind again at once (S6, R2, H6)."""

from __future__ import annotations

from unittest.mock import patch

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.group.facts import Status
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.procedures.consume.between_calls import Coordinator
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.store import Store
from tests.helpers import eventually, opened, put
from tests.planners import Query

HOUR_MS = 3_600_000
EVERYTHING = Limits()


def resize(store: str, count: int) -> None:
    """The next map is in force; what goes may still have to be drained."""
    queue = opened(store)
    scaling.start(queue, count, "live")
    scaling.step(queue)


def query_of_an_exclusive_queue(store: str, messages: int, manual: bool = False) -> Query:
    """The queue is made, and has so many messages."""
    partq.create_queue(store, "q", "v bigint", partitions=0, rebalance_delay_ms=0)
    put(store, PARENT, range(messages))
    return Query(store, "a", manual_acknowledgement=manual)


def owners(store: str) -> dict[int, str | None]:
    group = Group(Store.at(store), "g")
    group.refresh()
    return {number: own.flow for (_, number), own in sorted(group.state.partitions.items())}


@pytest.mark.parametrize("manual", [False, True])
def test_what_was_delivered_and_not_acknowledged_is_lost(store: str, queries: list[Query], manual: bool) -> None:
    """S6, H6: not "revoked", which says that all of it was acknowledged."""
    query = query_of_an_exclusive_queue(store, 10, manual)
    queries.append(query)
    assert query.next(Limits(max_rows=5)) == {PARENT: (0, 5)}
    assert query.told == [("assigned", [["q", PARENT]])]
    resize(store, 2)
    query.told.clear()
    query.next()
    assert query.told == [("lost", [["q", PARENT]]), ("assigned", [["q", 0], ["q", 1]])]


def test_what_everybody_has_acknowledged_is_revoked(store: str, queries: list[Query]) -> None:
    """S6, H6: nothing of it comes again."""
    query = query_of_an_exclusive_queue(store, 10)
    queries.append(query)
    assert query.next() == {PARENT: (0, 10)}
    query.next()
    resize(store, 1)
    query.told.clear()
    query.next()
    assert query.told == [("revoked", [["q", PARENT]]), ("assigned", [["q", 0]])]


@pytest.mark.parametrize("manual", [False, True])
def test_a_partition_that_the_same_consumer_gets_back_at_once(store: str, queries: list[Query], manual: bool) -> None:
    """S6: nobody else had it, so its application goes on with what it was given, and is not given it again."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    query = Query(store, "a", manual_acknowledgement=manual)
    queries.append(query)
    assert query.next(Limits(max_rows=5)) == {0: (0, 5)}
    resize(store, 0)
    assert query.next() == {0: (5, 10)}
    assert query.told == [("assigned", [["q", 0]]), ("assigned", [["q", PARENT]])]


def given(query: Query, limits: Limits = EVERYTHING) -> dict[int, list[tuple[int, int, bool]]]:
    """Of each partition what the tasks of the next micro-batch read, in order: from, to, and whether it is marked as redelivered."""
    found: dict[int, list[tuple[int, int, bool]]] = {}
    if query.next(limits):
        for piece in (piece for task in query.planner.tasks(query.started, query.done) for piece in task):
            part = piece.slice
            first, last = part.base_offset + part.first_row, part.base_offset + part.last_row
            found.setdefault(part.partition, []).append((first, last, piece.redelivered))
    return found


def acknowledge(query: Query, partition: int, offset: int) -> None:
    """Up to this offset, under the epoch of what the query was given last."""
    place = "q", partition
    epochs = {place: query.done.ranges[place].epoch}
    assert partq.acknowledge(query.store, "g", {place: offset}, epochs=epochs) == []


@pytest.mark.parametrize("acknowledged", [0, 2, 6])
def test_what_a_consumer_that_is_gone_had_not_acknowledged_is_marked(
    store: str, queries: list[Query], acknowledged: int
) -> None:
    """S6, H4: exactly that. What another one had goes on with it, and is not marked, nor is what nobody was given."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    first, second = (Query(store, name, manual_acknowledgement=True) for name in "ab")
    queries += [first, second]
    for query in (first, second, first, second):
        query.next()
    for number in range(2):
        put(store, number, range(10))
    (mine,), (theirs,) = (given(query, Limits(max_rows=6)) for query in (first, second))
    if acknowledged:
        acknowledge(second, theirs, acknowledged)
    resize(store, 0)
    second.leave()
    again = [(acknowledged, 6, True)] if acknowledged < 6 else []
    assert given(first) == {mine: [(6, 10, False)], theirs: [*again, (6, 10, False)]}


def test_consumers_of_a_queue_that_becomes_exclusive_are_unbound_when_the_rest_is_drained(
    store: str, queries: list[Query]
) -> None:
    """S6: until then they go on with it. What each gets back comes again, as an acknowledgement by hand was refused meanwhile."""
    group = Group(Store.at(store), "g")
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    query = Query(store, "a", manual_acknowledgement=True)
    queries.append(query)
    query.next()
    resize(store, 0)
    query.next()
    assert query.told == [("assigned", [["q", 0]]), ("assigned", [["q", PARENT]])]
    group.refresh()
    assert "MemberLeft" not in [row["kind"] for row in group.history()]
    acknowledge(query, 0, 10)
    eventually(lambda: query.next() or query.told[4:], "the end of what was there before")
    assert query.told[2:] == [("revoked", [["q", 0]]), ("lost", [["q", PARENT]]), ("assigned", [["q", PARENT]])]
    group.refresh()
    assert [row["forced"] for row in group.history() if row["kind"] == "MemberLeft"] == [True]


def test_what_is_stuck_and_comes_back_is_marked_and_copies_are_not(store: str, queries: list[Query]) -> None:
    """S6: copies are messages of their own; where the parent comes back before they are made, its messages are the old ones."""
    first = query_of_an_exclusive_queue(store, 10, manual=True)
    queries.append(first)
    assert given(first, Limits(max_rows=6)) == {PARENT: [(0, 6, False)]}
    acknowledge(first, PARENT, 2)
    resize(store, 1)
    first.next()
    first.leave()
    resize(store, 0)
    second = Query(store, "b", manual_acknowledgement=True)
    queries.append(second)
    assert given(second, Limits(max_rows=5)) == {PARENT: [(2, 6, True), (6, 7, False)]}
    acknowledge(second, PARENT, 4)
    resize(store, 1)
    assert second.next() == {}
    assert partq.copy_stuck(store, "q") == 6
    assert given(second) == {0: [(0, 6, False)]}


def test_what_is_finished_counts_before_the_parent_is_given_up(store: str, queries: list[Query]) -> None:
    """S6: a process that opened the map has died before it told the group. The query finds the map, and nothing of its last micro-batch is stuck."""
    query = query_of_an_exclusive_queue(store, 5)
    queries.append(query)
    assert query.next() == {PARENT: (0, 5)}
    queue = opened(store)
    scaling.start(queue, 2, "live")
    open_generation(queue)
    query.next()
    query.next()
    assert set(owners(store).values()) == {"a/0"}
    assert partq.describe_queue(store, "q").stuck == 0


def test_a_query_that_is_unbound_tries_to_bind_again_until_the_store_answers(store: str) -> None:
    """S6: though its micro-batch runs, and no planner call comes."""
    query = query_of_an_exclusive_queue(store, 10)
    with patch.object(Planner, "_start_threads"):
        query.next()
    member = query.planner.membership
    coordinator = Coordinator(member)
    coordinator.step()
    resize(store, 2)
    with (
        patch.object(Membership, "refresh", side_effect=partq.StoreUnavailableError("503")),
        pytest.raises(partq.StoreUnavailableError),
    ):
        coordinator.step()
    coordinator.step()
    assert set(owners(store).values()) == {"a/0"}
    query.leave()


def test_a_query_that_has_ended_does_not_bind_again(store: str) -> None:
    """R2: its other thread had begun a step when the query ended. A member without a process would keep the partitions for its session."""
    query = query_of_an_exclusive_queue(store, 10)
    with patch.object(Planner, "_start_threads"):
        query.next()
    coordinator = Coordinator(query.planner.membership)
    resize(store, 2)
    query.leave()
    coordinator.step()
    assert owners(store) == {0: None, 1: None}


@pytest.mark.parametrize(("before", "after"), [(0, 4), (4, 0)])
def test_all_bind_again_without_a_delay(store: str, queries: list[Query], before: int, after: int) -> None:
    """S6, R2: a change of the count is no holddown, however many have to bind again for it."""
    partq.create_queue(store, "q", "v bigint", partitions=before, rebalance_delay_ms=HOUR_MS)
    put(store, PARENT if before == 0 else 0, range(10))
    first, second = Query(store, "a"), Query(store, "b")
    queries += [first, second]
    group = Group(Store.at(store), "g")
    first.next()
    second.next()
    resize(store, after)
    for _ in range(3):
        for query in queries:
            query.next()
    group.refresh()
    assert group.state.status is Status.READY
    if after:
        assert sorted(filter(None, owners(store).values())) == ["a/0", "a/0", "b/0", "b/0"]
