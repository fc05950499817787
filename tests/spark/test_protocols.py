"""Assignors and protocols through real consumers of real queues, without a JVM (K1-K8)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

import spark_partq as partq
from spark_partq.core.group.facts import PartitionState, Status
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests.helpers import eventually, flat, position, put
from tests.queries import Batch, Query, consume, driver, read, source

pytestmark = pytest.mark.usefixtures("ended_queries")


class Consumer:
    """A query that notes what it is given; it can be held up in a micro-batch that has messages of all of `hold`."""

    def __init__(self, store: str, folder: Path, name: str, **options: Any) -> None:
        self.store, self.checkpoint, self.name = store, folder / name, name
        self.options = {"group": "g", "instanceId": name, **options}
        self.rows: list[Row] = []
        self.hold: set[int] = set()
        self.held, self.go_on = threading.Event(), threading.Event()
        self.query = self.start()

    def start(self) -> Query:
        return Query(self.store, self.checkpoint, self.note, **self.options)

    def note(self, batch: Batch, _: int) -> None:
        rows = batch.collect()
        self.rows += rows
        if self.hold and self.hold <= {r._partition for r in rows}:
            self.held.set()
            self.go_on.wait(100)

    def seen(self) -> set[tuple[str, int, int]]:
        return {(r._queue, r._partition, r._offset) for r in self.rows}


@pytest.fixture
def consumer(store: str, tmp_path: Path) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def new(name: str, **options: Any) -> Consumer:
        made.append(Consumer(store, tmp_path, name, **options))
        return made[-1]

    yield new
    for c in made:
        c.go_on.set()


def create(store: str, queue: str, partitions: int, rows: int = 1, **settings: Any) -> None:
    given = {"rebalance_delay_ms": 0, "max_handoff_time_ms": 60_000, **settings}
    partq.create_queue(store, queue, "v bigint", partitions=partitions, **given)
    for partition in range(partitions):
        put(store, partition, range(rows), queue=queue)


def state_of(store: str) -> GroupState:
    group = Group(Store.at(store), "g")
    if group.exists():
        group.refresh()
    return group.state


def settled(store: str, *instances: str) -> partq.GroupDescription:
    """Wait until the group is Ready with exactly these members."""

    def ready() -> bool:
        state = state_of(store)
        return state.status is Status.READY and set(state.members) == set(instances)

    eventually(ready, f"a group of {instances}")
    return partq.describe_group(store, "g")


def loads(found: partq.GroupDescription) -> list[int]:
    """Partitions of each client, in the order of their names."""
    members = sorted(found.members, key=lambda m: m.instance)
    return [sum(len(p) for flow in m.flows for p in flow.partitions.values()) for m in members]


# ---- assignors
@pytest.mark.parametrize(("assignor", "expected"), [("range", [6, 5, 4]), ("roundrobin", [5, 5, 5])])
def test_console_example(store: str, consumer: Callable[..., Consumer], assignor: str, expected: list[int]) -> None:
    """K2, K8: queues of 10 and 5 partitions and 3 clients."""
    create(store, "test1", 10)
    create(store, "test2", 5)
    clients = [consumer(name, queue="test1,test2", assignor=assignor) for name in ("c1", "c2", "c3")]
    found = settled(store, "c1", "c2", "c3")
    assert (found.assignor, found.protocol, loads(found)) == (assignor, "eager", expected)
    everything = {("test1", p, 0) for p in range(10)} | {("test2", p, 0) for p in range(5)}
    eventually(lambda: set().union(*(c.seen() for c in clients)) == everything, "all messages")


@pytest.mark.parametrize(
    ("assignor", "partitions", "flows", "expected"),
    [
        ("range", 5, 2, {0: [0, 1, 2], 1: [3, 4]}),
        ("roundrobin", 6, 3, {0: [0, 3], 1: [1, 4], 2: [2, 5]}),
        ("sticky", 5, 2, None),
        ("cooperative-sticky", 5, 2, None),
        ("weighted", 5, 2, None),
    ],
)
def test_flows_are_members(
    store: str, tmp_path: Path, assignor: str, partitions: int, flows: int, expected: Any
) -> None:
    """K1, K2: the examples of the seed among the flows of one query; the others spread evenly."""
    create(store, "q", partitions)
    rows = flat(consume(store, tmp_path / "cp", group="g", assignor=assignor, flows=flows))
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(int(row._flow.rpartition("/")[2]), []).append(row._partition)
    if expected is not None:
        assert {flow: sorted(mine) for flow, mine in found.items()} == expected
    assert sorted(len(mine) for mine in found.values()) == sorted(
        len(range(i, partitions, flows)) for i in range(flows)
    )


def test_weights(store: str, consumer: Callable[..., Consumer]) -> None:
    """A flow of weight 2 takes twice the share of one of weight 1."""
    create(store, "q", 6)
    consumer("big", queue="q", weight=2)
    settled(store, "big")
    consumer("small", queue="q")
    assert loads(settled(store, "big", "small")) == [4, 2]


def test_unequal_subscriptions(store: str, consumer: Callable[..., Consumer]) -> None:
    """K1: who reads both queues leaves the one that others read too to them."""
    create(store, "one", 4)
    create(store, "two", 4)
    both = consumer("both", queue="one,two", assignor="cooperative-sticky")
    settled(store, "both")
    only = consumer("only", queue="two", assignor="cooperative-sticky")
    found = settled(store, "both", "only")
    assert [(p.queue, p.flow) for p in found.partitions] == [("one", "both/0")] * 4 + [("two", "only/0")] * 4
    for partition in range(4):
        put(store, partition, [7], queue="two")
    eventually(lambda: {("two", p, 1) for p in range(4)} <= only.seen(), "the messages")
    assert {r._queue for r in both.rows if r._offset == 1} <= {"one"}


# ---- protocols
class RecordingListener(partq.RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("assigned", [p for _, p in partitions]))

    def on_partitions_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("revoked", [p for _, p in partitions]))

    def on_partitions_lost(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("lost", [p for _, p in partitions]))


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky"])
def test_who_pauses(store: str, consumer: Callable[..., Consumer], assignor: str) -> None:
    """K4, K5: a third query joins while the second is in the middle of a long micro-batch. With the cooperative protocol the first
    goes on with what it keeps; with the eager one it stands still until the second has given up everything, too."""
    create(store, "q", 6)
    listener = RecordingListener()
    driver().add_listener("g", listener)
    first = consumer("a", queue="q", assignor=assignor)
    settled(store, "a")
    second = consumer("b", queue="q", assignor=assignor)
    settled(store, "a", "b")
    eventually(lambda: len(first.seen() | second.seen()) == 6, "the first messages")
    had = {n: own.flow for (_, n), own in state_of(store).partitions.items()}
    second.hold = {n for n, flow in had.items() if flow == "b/0"}

    def held() -> bool:
        for partition in second.hold:
            put(store, partition, [1])
        return second.held.wait(1)

    eventually(held, "a micro-batch of all its partitions")
    before = len(listener.events)
    consumer("c", queue="q", assignor=assignor)

    def under_way() -> bool:
        state = state_of(store)
        held = {own.state for own in state.partitions.values() if own.flow == "a/0"}
        return (
            "c" in state.members and state.draining and PartitionState.DRAINING not in held
        )  # the first has given up its part

    eventually(under_way, "the handoffs")
    keeps = [n for (_, n), own in state_of(store).partitions.items() if own.flow == "a/0"]
    if assignor == "sticky":
        assert keeps == [] and state_of(store).protocol == "eager"
        everything = sorted(n for n, flow in had.items() if flow == "a/0")
        assert [("revoked", everything)] == listener.events[before:], "in one call, and nothing is assigned yet"
    else:
        assert len(keeps) == 2
        for i in range(3):  # micro-batch after micro-batch, while the second is still in its own
            for partition in keeps:
                put(store, partition, [i])
            eventually(lambda i=i: {("q", p, 1 + i) for p in keeps} <= first.seen(), "what it keeps")
    second.hold = set()
    second.go_on.set()
    settled(store, "a", "b", "c")
    now = {n: own.flow for (_, n), own in state_of(store).partitions.items()}
    assert sorted(list(now.values()).count(flow) for flow in set(now.values())) == [2, 2, 2]
    assert sum(now[n] != had[n] for n in now) == 2, "sticky: no more than balance needs"
    moved = sorted(n for n in now if now[n] != had[n])
    calls = eventually(
        lambda: listener.events[before:] if _assigned(listener.events[before:], moved) else None, "the calls"
    )
    assert not [what for what, _ in calls if what == "lost"]
    revoked = sorted(n for what, numbers in calls for n in numbers if what == "revoked")
    assert revoked == (moved if assignor == "cooperative-sticky" else sorted(now))
    rows = [*first.rows, *second.rows]
    assert not any(r._redelivered for r in rows), "a clean rebalance delivers nothing twice"


def _assigned(events: list[tuple[str, list[int]]], partitions: list[int]) -> bool:
    return set(partitions) <= {n for what, numbers in events for n in numbers if what == "assigned"}


def test_upgrade_by_two_rolling_restarts(store: str, consumer: Callable[..., Consumer]) -> None:
    """K6, K7: eager to cooperative while messages come, and the history says under which protocol each assignment was computed.
    With names of their own nothing moves but what the new assignor wants. (`make long` does it with three applications.)"""
    create(store, "q", 4)
    running = [consumer(name, queue="q", assignor="range") for name in ("a", "b")]
    settled(store, "a", "b")
    group = Group(Store.at(store), "g")
    sent = 1

    def finished() -> bool:
        group.refresh()
        return all(group.position(partition_id) == sent for partition_id in group.state.partitions)

    def restarted(c: Consumer, listed: str) -> bool:
        state = state_of(store)
        known = c.name in state.members and state.members[c.name].assignors == tuple(listed.split(","))
        return known and state.status is Status.READY

    for listed in ("cooperative-sticky,range", "cooperative-sticky"):
        for c in running:
            eventually(finished, "all acknowledgements")  # so that a stop breaks nothing off
            c.query.stop()
            for partition in range(4):
                put(store, partition, [sent])
            sent += 1
            c.options["assignor"] = listed
            c.query = c.start()
            eventually(lambda c=c, listed=listed: restarted(c, listed), "the restart")
    eventually(finished, "all acknowledgements")
    group.refresh()
    computed = [json.loads(row["body"]) for row in group.history() if row["kind"] == "AssignmentComputed"]
    used = [(body["assignor"], body["protocol"]) for body in computed]
    assert used[-3:] == [("range", "eager"), ("cooperative-sticky", "eager"), ("cooperative-sticky", "cooperative")]
    assert not [row for row in group.history() if row["kind"] == "MemberLeft"]
    rows = [*running[0].rows, *running[1].rows]
    assert sorted((r._partition, r._offset) for r in rows) == [(p, o) for p in range(4) for o in range(sent)]


# ---- queues that come and go
def test_a_pattern(store: str, consumer: Callable[..., Consumer]) -> None:
    """K3: a queue that is created is read from its beginning, by all; one that is deleted is given up; one with other columns is
    left out. After a restart it goes on."""
    for name in ("orders-1", "orders-2", "other"):
        create(store, name, 2)
    every = read(store, "", queuePattern="orders-.*")
    assert {r._queue for r in every} == {"orders-1", "orders-2"}
    a = consumer("a", queue="", queuePattern="orders-.*", startingOffsets="latest")
    settled(store, "a")
    b = consumer("b", queue="", queuePattern="orders-.*")
    settled(store, "a", "b")

    def queues() -> set[str]:
        return {q.name for q in state_of(store).queues.values()}

    create(store, "orders-3", 2)
    partq.create_queue(store, "orders-4", "other string", partitions=1)
    eventually(lambda: {("orders-3", p, 0) for p in range(2)} <= a.seen() | b.seen(), "the new queue")
    assert queues() == {"orders-1", "orders-2", "orders-3"}
    assert loads(settled(store, "a", "b")) == [3, 3]
    partq.delete_queue(store, "orders-1")
    eventually(lambda: queues() == {"orders-2", "orders-3"}, "the end of the queue")
    assert [c.query.exception() for c in (a, b)] == [None, None]
    assert loads(settled(store, "a", "b")) == [2, 2]
    put(store, 0, [1], queue="orders-2")
    eventually(lambda: ("orders-2", 0, 1) in a.seen() | b.seen(), "the next message")
    eventually(
        lambda: position(store, "g", 0, "orders-2") == 2, "its acknowledgement"
    )  # so that the stop breaks nothing off
    a.query.stop()
    partq.delete_queue(store, "orders-4")
    create(store, "orders-4", 1)
    # A query that joins before the others have found a queue would start it where its own options say: at the end.
    eventually(
        lambda: queues() == {"orders-2", "orders-3", "orders-4"}, "a queue created again, of the columns of the others"
    )
    a.query = a.start()
    eventually(lambda: ("orders-4", 0, 0) in a.seen() | b.seen(), "a queue created again")
    assert a.query.isActive and b.query.isActive
    assert len(flat([a.rows, b.rows])) == len(a.seen() | b.seen()), "nothing twice"


def test_nothing_matches(store: str) -> None:
    """Bad input: said at once, with what there is."""
    create(store, "q", 1)
    with pytest.raises(partq.QueueNotFoundError, match=r"orders.*its queues: q"):
        source(store, "", queuePattern="orders").schema()
