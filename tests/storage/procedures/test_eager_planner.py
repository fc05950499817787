"""Planners of an eager group whose applications acknowledge by hand: everything is given up before anything is assigned (H5, K4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.group.facts import PartitionState, Status
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.helpers import eventually, position, put

ASSIGNORS = ["range", "roundrobin", "sticky"]
BOTH = [["q", 0], ["q", 1]]


class Query:
    """A planner, and what its application was told of its partitions."""

    connected = True

    def __init__(self, store: str, instance: str, assignor: str) -> None:
        settings = ConsumerSettings(Store(store), ("q",), assignors=(assignor,), manual_acknowledgement=True)
        self.planner = Planner(settings, "g", instance, self.connect)
        self.store, self.instance = store, instance
        self.done = StreamOffset("g", instance, {}, {})
        self.started = self.done
        self.told: list[tuple[str, Any]] = []

    def connect(self, registration: Message, handler: DriverEventHandler) -> Query:
        handler.query_terminated()  # nothing is left to wait for when it leaves
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        self.told += [(what, message[what]) for what in ("assigned", "revoked", "lost") if message.get(what)]
        return {}

    def next(self) -> dict[int, tuple[int, int]]:
        """What the next micro-batch has of each partition; none if there is nothing to do."""
        end = self.planner.next(self.done, Limits())
        if end is None:
            return {}
        self.started, self.done = self.done, end
        return {number: (r.start, r.end) for (_, number), r in end.ranges.items() if r.end > r.start}

    def redelivered(self) -> list[bool]:
        """Of each piece of the last micro-batch whether it is marked."""
        tasks = self.planner.tasks(self.started, self.done)
        return [piece.redelivered for pieces in tasks for piece in pieces]

    def range_of(self, number: int) -> Range:
        return self.done.ranges["q", number]

    def ack(self, number: int, offset: int, epoch: int) -> bool:
        """Whether the acknowledgement is taken."""
        return acknowledge(Store(self.store), "g", {("q", number): offset}, {("q", number): epoch}) == []


@pytest.fixture
def group(store: str) -> Group:
    return Group(Store.at(store), "g")


@pytest.fixture
def started() -> Iterator[list[Query]]:
    """Queries that leave after the test."""
    found: list[Query] = []
    yield found
    for query in found:
        query.planner.leave()


def two(
    store: str, started: list[Query], assignor: str, max_handoff_time_ms: int, acked: tuple[int, int] = (0, 0)
) -> tuple[Query, Query]:
    """Query a was given 5 messages of each of 2 partitions, and has acknowledged so many, when b joins."""
    partq.create_queue(
        store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=max_handoff_time_ms
    )
    for number in range(2):
        put(store, number, range(5))
    a = Query(store, "a", assignor)
    started.append(a)
    assert a.next() == {0: (0, 5), 1: (0, 5)}
    for number, offset in enumerate(acked):
        assert not offset or a.ack(number, offset, a.range_of(number).epoch)
    b = Query(store, "b", assignor)
    started.append(b)
    assert b.next() == {}
    return a, b


def states(group: Group) -> list[PartitionState]:
    group.refresh()
    return [own.state for _, own in sorted(group.state.partitions.items())]


def is_ready(group: Group) -> bool:
    group.refresh()
    return group.state.status is Status.READY


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_waits_until_everything_is_acknowledged(store: str, group: Group, started: list[Query], assignor: str) -> None:
    """H5, K4: one acknowledged partition is not given up alone, and meanwhile nobody is given anything new."""
    a, b = two(store, started, assignor, 600_000)
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
def test_waits_no_longer_than_the_deadline(store: str, group: Group, started: list[Query], assignor: str) -> None:
    """H4, H5, K4: everything is taken away; what was not acknowledged comes again, marked, to whoever gets it."""
    a, b = two(store, started, assignor, 1_000, acked=(5, 2))
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
