"""Retention removes what a group has not read below the cuts of a resize: nobody waits for it (S5, Q8)."""

from __future__ import annotations

import datetime as dt

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from tests.clocks import wall_clock
from tests.helpers import opened
from tests.planners import Query
from tests.scaled import Sink, make, messages

OLD, NEW = messages(0, 20, keys=20), messages(20, 60, keys=20)
LONG_AGO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

Ends = dict[int, int]


def resized(store: str, sink: Sink, count: int) -> None:
    """From 2 partitions to more, all of which get messages of the new map."""
    partq.scale(store, "q", count)
    sink.write(1, NEW)


def removed(store: str) -> Ends:
    """Remove the messages of the old map, which are too old; of each partition the first offset that is left, which is its cut."""
    assert partq.maintain(store)[0].removed_messages == len(OLD)
    queue = opened(store)
    first = {table.partition: table.first_offset for table in queue.partitions}
    assert queue.state.generations[0].cuts == first
    return first


def new_messages(store: str, first: Ends) -> dict[int, tuple[int, int]]:
    return {table.partition: (first[table.partition], table.next_offset) for table in opened(store).partitions}


def finish(store: str, queries: list[Query]) -> int:
    """What the group's lag is when all of its queries have acknowledged what they were given."""
    for query in queries:
        if query.planner._settings.manual_acknowledgement:
            ends = {place: r.end for place, r in query.done.ranges.items()}
            epochs = {place: r.epoch for place, r in query.done.ranges.items()}
            assert partq.acknowledge(store, "g", ends, epochs=epochs) == []
        assert query.next() == {}
    return partq.describe_group(store, "g").lag


def begun(store: str, names: str, manual: bool) -> tuple[Sink, list[Query]]:
    """Old messages in 2 partitions, and queries that go on where something was removed."""
    make(store, 2, retention_ms=3_600_000)
    sink = Sink(store)
    with wall_clock(LONG_AGO):
        sink.write(0, OLD)
    return sink, [Query(store, name, fail_on_data_loss=False, manual_acknowledgement=manual) for name in names]


@pytest.mark.parametrize("manual", [False, True])
def test_removed_before_the_resize_is_seen(store: str, queries: list[Query], manual: bool) -> None:
    """S5: the consumer is at work on one message while the map changes and the rest goes. Then it gets all that is new at once."""
    sink, (query,) = begun(store, "a", manual)
    queries.append(query)
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    resized(store, sink, 4)
    new = new_messages(store, removed(store))
    assert query.next() == new
    assert finish(store, [query]) == 0


@pytest.mark.parametrize("manual", [False, True])
def test_removed_while_the_consumer_waits(store: str, queries: list[Query], manual: bool) -> None:
    """S5: it has seen the new map, and new messages wait for old ones that it has not come to."""
    sink, (query,) = begun(store, "a", manual)
    queries.append(query)
    assert query.next(Limits(max_rows=2)) == {0: (0, 1), 1: (0, 1)}
    resized(store, sink, 4)
    assert query.next(Limits(max_rows=4)) == {0: (1, 3), 1: (1, 3)}
    new = new_messages(store, removed(store))
    assert query.next() == new
    assert finish(store, [query]) == 0


@pytest.mark.parametrize("manual", [False, True])
def test_removed_while_a_consumer_waits_for_another(store: str, queries: list[Query], manual: bool) -> None:
    """S5: of 3 partitions each waits for both of before, also for that of which its owner reads nothing. It need not notice the loss."""
    sink, (slow, waiting) = begun(store, "ab", manual)
    queries += [slow, waiting]
    for query in (slow, waiting, slow, waiting):
        query.next(Limits(max_rows=0))
    resized(store, sink, 3)
    for query in (waiting, slow, waiting, slow):
        query.next(Limits(max_rows=0))
    assert list(waiting.next().values()) == [(0, 10)]
    assert waiting.next() == {}
    new = new_messages(store, removed(store))
    got = waiting.next()
    assert got and got | slow.next() == new
    assert finish(store, queries) == 0
