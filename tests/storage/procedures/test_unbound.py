"""Planners whose queue becomes exclusive or partitioned: they are unbound, hear of it, and bind again at once (S6, R2, H6)."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.group.facts import Status
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.store import Store
from tests.helpers import opened, put
from tests.planners import Query

HOUR_MS = 3_600_000


def resize(store: str, count: int) -> None:
    """The next map is in force; what goes may still have to be drained."""
    queue = opened(store)
    scaling.start(queue, count, "live")
    scaling.step(queue)


def owners(store: str) -> dict[int, str | None]:
    group = Group(Store.at(store), "g")
    group.refresh()
    return {number: own.flow for (_, number), own in sorted(group.state.partitions.items())}


@pytest.mark.parametrize("manual", [False, True])
def test_what_was_delivered_and_not_acknowledged_is_lost(store: str, queries: list[Query], manual: bool) -> None:
    """S6, H6: not "revoked", which says that all of it was acknowledged."""
    partq.create_queue(store, "q", "v bigint", partitions=0, rebalance_delay_ms=0)
    put(store, PARENT, range(10))
    query = Query(store, "a", manual_acknowledgement=manual)
    queries.append(query)
    assert query.next(Limits(max_rows=5)) == {PARENT: (0, 5)}
    assert query.told == [("assigned", [["q", PARENT]])]
    resize(store, 2)
    query.told.clear()
    query.next()
    assert query.told == [("lost", [["q", PARENT]]), ("assigned", [["q", 0], ["q", 1]])]


def test_what_everybody_has_acknowledged_is_revoked(store: str, queries: list[Query]) -> None:
    """S6, H6: nothing of it comes again."""
    partq.create_queue(store, "q", "v bigint", partitions=0, rebalance_delay_ms=0)
    put(store, PARENT, range(10))
    query = Query(store, "a")
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
