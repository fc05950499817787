"""A partition that is taken from a query by force, and comes back to it while it still runs: what it was given of it before counts no more."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.group.events import DeadlinePassed
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.store import Store
from tests.helpers import opened, position, put
from tests.planners import Query
from tests.storage.procedures import test_lifetimes as lifetimes

HOUR_MS = 3_600_000


def take_by_force(store: str) -> None:
    """The time of each handoff is over."""
    group = Group(Store.at(store), "g")
    group.refresh()
    due = [DeadlinePassed(p, own.handoff) for p, own in group.state.partitions.items() if own.handoff >= 0]
    group.decide(lambda: due)


def make(store: str, **settings: object) -> None:
    partq.create_queue(
        store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=HOUR_MS, **settings
    )


def taken_and_returned(a: Query, b: Query, store: str) -> None:
    """Partition 1 goes to `b` by force, which leaves."""
    assert b.next() == {}
    take_by_force(store)
    assert a.next() == {}
    assert ("lost", [["q", 1]]) in a.told
    b.next()
    b.leave()


def test_it_takes_no_room_of_its_flow(store: str, queries: list[Query]) -> None:
    """H5: the application cannot acknowledge it any more, so it would be in the way for ever."""
    make(store)
    put(store, 1, range(10))
    a = Query(store, "a", manual_acknowledgement=True, max_unacked_per_flow=5)
    queries.append(a)
    assert a.next() == {1: (0, 5)} and a.next() == {}
    taken_and_returned(a, Query(store, "b", manual_acknowledgement=True), store)
    assert a.next() == {1: (0, 5)}


def test_what_is_too_old_behind_it_does_not_stop_it(store: str, queries: list[Query]) -> None:
    """Q8: what was planned was removed unread, and the next message has outlived its TTL. The query goes on behind both."""
    partq.create_queue(
        store, "q", "v bigint, ttl int", key="v", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=HOUR_MS,
        message_ttl_column="ttl",
    )  # fmt: skip
    lifetimes.put(store, 0, [None] * 5, partition=1)
    a = Query(store, "a", fail_on_data_loss=False)
    queries.append(a)
    started = a.done
    assert a.next() == {1: (0, 5)}
    planned, a.done = a.done, started  # the micro-batch takes long
    taken_and_returned(a, Query(store, "b", fail_on_data_loss=False), store)
    lifetimes.put(store, 5, [0], partition=1)
    table = opened(store).table(1)
    partq.alter_queue(store, "q", max_bytes=int(table.index.size[-1]))
    partq.maintain(store, "q")
    table.refresh()
    assert table.first_offset == 5
    lifetimes.put(store, 6, [None] * 5, partition=1)
    a.done = planned
    assert a.next() == {1: (6, 11)}
    a.next()
    assert position(store, "g", 1) == 11


@pytest.mark.parametrize("manual", [False, True])
def test_what_it_never_lost_goes_on(store: str, queries: list[Query], manual: bool) -> None:
    """S6, H5: all members bind again, as another queue became partitioned. What an application acknowledges by hand comes again: that may have
    been refused meanwhile.
    """
    partq.create_queue(store, "x", "v bigint", partitions=0, rebalance_delay_ms=0)
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    a = Query(store, "a", queues=("x", "q"), manual_acknowledgement=manual, max_unacked_per_flow=5 if manual else None)
    queries.append(a)
    assert a.next() == {0: (0, 5 if manual else 10)} and a.next() == {}
    queue = opened(store, "x")
    scaling.start(queue, 2, "live")
    scaling.step(queue)
    assert a.next() == ({0: (0, 5)} if manual else {}) and a.next() == {}
    if manual:
        place = "q", 0
        assert partq.acknowledge(store, "g", {place: 2}, epochs={place: a.done.ranges[place].epoch}) == []
        assert a.next() == {0: (5, 7)}
