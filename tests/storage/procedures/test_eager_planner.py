"""Planners of an eager group whose applications acknowledge by hand: everything is given up before anything is assigned (H5, K4)."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.facts import PartitionState, Status
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.store import Store
from tests.helpers import eventually, position, put
from tests.planners import Query

ASSIGNORS = ["range", "roundrobin", "sticky"]
BOTH = [["q", 0], ["q", 1]]


class EagerQuery(Query):
    def __init__(self, store: str, instance: str, assignor: str) -> None:
        super().__init__(store, instance, assignors=(assignor,), manual_acknowledgement=True)

    def redelivered(self) -> list[bool]:
        """Of each piece of the last micro-batch whether it is marked."""
        tasks = self.planner.tasks(self.started, self.done)
        return [piece.redelivered for pieces in tasks for piece in pieces]

    def range_of(self, number: int) -> Range:
        return self.done.ranges["q", number]

    def ack(self, number: int, offset: int, epoch: int) -> bool:
        """Whether the acknowledgement is taken."""
        return acknowledge(self.store, "g", {("q", number): offset}, {("q", number): epoch}) == []


@pytest.fixture
def group(store: str) -> Group:
    return Group(Store.at(store), "g")


def two(
    store: str, queries: list[Query], assignor: str, max_handoff_time_ms: int, acked: tuple[int, int] = (0, 0)
) -> tuple[EagerQuery, EagerQuery]:
    """Query a was given 5 messages of each of 2 partitions, and has acknowledged so many, when b joins."""
    partq.create_queue(
        store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=max_handoff_time_ms
    )
    for number in range(2):
        put(store, number, range(5))
    a = EagerQuery(store, "a", assignor)
    queries.append(a)
    assert a.next() == {0: (0, 5), 1: (0, 5)}
    for number, offset in enumerate(acked):
        assert not offset or a.ack(number, offset, a.range_of(number).epoch)
    b = EagerQuery(store, "b", assignor)
    queries.append(b)
    assert b.next() == {}
    return a, b


def states(group: Group) -> list[PartitionState]:
    group.refresh()
    return [own.state for _, own in sorted(group.state.partitions.items())]


def is_ready(group: Group) -> bool:
    group.refresh()
    return group.state.status is Status.READY


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_waits_until_everything_is_acknowledged(store: str, group: Group, queries: list[Query], assignor: str) -> None:
    """H5, K4: one acknowledged partition is not given up alone, and meanwhile nobody is given anything new."""
    a, b = two(store, queries, assignor, 600_000)
    put(store, 0, range(2))
    epochs = [a.range_of(number).epoch for number in range(2)]
    for number, offset in ((0, 5), (1, 4)):
        assert a.ack(number, offset, epochs[number])
        assert a.next() == b.next() == {}
        assert states(group) == [PartitionState.DRAINING] * 2
    assert [what for what, _ in a.told] == ["assigned"] and b.told == []

    assert a.ack(1, 5, epochs[1])
    assert a.next() in ({}, {0: (5, 7)})  # whether its own other thread or this call releases
    eventually(lambda: is_ready(group), "the assignment")
    owners = {number: own.flow for (_, number), own in group.state.partitions.items()}
    assert sorted(owners.values()) == ["a/0", "b/0"]
    rows = group.history()
    computed = max(row["seq"] for row in rows if row["kind"] == "AssignmentComputed")
    assert [row["kind"] for row in rows if row["seq"] in (computed - 2, computed - 1)] == ["Released", "Released"]
    assert not any(row["forced"] for row in rows)
    a.next()
    b.next()
    assert a.told[1] == ("revoked", BOTH) and a.told[2][0] == "assigned"
    assert [what for what, _ in b.told] == ["assigned"] and a.told[2][1] + b.told[0][1] in (BOTH, BOTH[::-1])


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_waits_no_longer_than_the_deadline(store: str, group: Group, queries: list[Query], assignor: str) -> None:
    """H4, H5, K4: everything is taken away; what was not acknowledged comes again, marked, to whoever gets it."""
    a, b = two(store, queries, assignor, 1_000, acked=(5, 2))
    epoch = a.range_of(1).epoch
    eventually(lambda: is_ready(group), "the deadline")
    assert [row["partition"] for row in group.history() if row["kind"] == "Unassigned" and row["forced"]] == [0, 1]
    owners = {number: own.flow for (_, number), own in group.state.partitions.items()}
    assert sorted(owners.values()) == ["a/0", "b/0"]
    taker = {"a/0": a, "b/0": b}[owners[1]]
    assert not a.ack(1, 5, epoch), "an acknowledgement of what was taken away was accepted"
    assert position(store, "g", 1) == 2
    given = {query.instance: query.next() for query in (a, b)}
    assert given.pop(taker.instance) == {1: (2, 5)} and list(given.values()) == [{}]
    assert taker.redelivered() == [True]
    assert a.told[1] == ("lost", BOTH) and a.told[2][0] == "assigned"
    assert taker.ack(1, 5, taker.range_of(1).epoch) and position(store, "g", 1) == 5
