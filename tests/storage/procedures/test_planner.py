"""The planner of a streaming source alone, without Spark around it."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import AssignorError
from spark_partq.core.group.events import Leave
from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.procedures.consume import between_calls
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.helpers import eventually, opened, position, put
from tests.planners import Query
from tests.scaled import Sink, make, messages
from tests.storage.log.tables import MemoryFilesElsewhere


def test_session_expires_between_planning_and_delivering(store: str) -> None:
    """R5, H4: the partitions come back when the process joins again, so what it had planned counts, so it must be delivered."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=60_000)
    put(store, 0, range(5))
    planner = Planner(ConsumerSettings(Store(store), ("q",), flows=2), "g", "a")
    try:
        start = StreamOffset("g", "a", {}, {})
        end = planner.next(start, Limits())
        assert end is not None
        group = Group(Store.at(store), "g")
        group.decide(lambda: [Leave("a", planner.membership.incarnation, expired=True)], "b")
        with planner.membership.lock:  # as the planner's other threads do
            planner.membership.group.refresh()
        given = [piece for task in planner.tasks(start, end) for piece in task]
        assert len(given) == 1
        planner.next(end, Limits())
        assert position(store, "g", 0) == 5
    finally:
        planner.leave()


def replayed(store: str, instance: str, started: StreamOffset, done: StreamOffset) -> list[Any]:
    """What a query that was killed is given when it is started again: by two scans of the same micro-batch."""
    again = Query(store, instance, instance_id=instance)
    scans = [again.planner.tasks(started, done) for _ in range(2)]
    again.leave()
    return scans


@pytest.mark.parametrize("max_deliveries", [None, 3])
def test_each_scan_of_a_replay_has_the_same_rows(store: str, max_deliveries: int | None) -> None:
    """Spark plans a source once for each time that it stands in a micro-batch, as in a union with itself. Such a micro-batch was one delivery."""
    counted = {} if max_deliveries is None else {"max_deliveries": max_deliveries, "dead_letter_queue": "dead"}
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, **counted)
    for number in range(2):
        put(store, number, range(10))
    first = Query(store, "a", instance_id="a")
    first.next()
    first.planner.membership.stopping.set()  # it is killed
    one, two = replayed(store, "a", first.started, first.done)
    assert one == two and any(one)
    group = Group(Store.at(store), "g")
    group.refresh()
    counts = {number for found in group.acks.attempts.values() for _, number in found.values()}
    assert counts == (set() if max_deliveries is None else {2})


def test_starting_offsets_of_partitions_that_are_gone(store: str) -> None:
    """They have said where the group starts; a query that is started again, as ever, goes on where that is."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    first = Query(store, "a", instance_id="a", starting_offsets='{"q": {"0": 1, "1": 2}}')
    given = first.next()
    assert {number: start for number, (start, _) in given.items()} == {0: 1, 1: 2}
    first.next()
    first.planner.membership.stopping.set()
    partq.scale(store, "q", 1, timeout_s=60)
    again = Query(store, "a", instance_id="a", starting_offsets='{"q": {"0": 1, "1": 2}}')
    again.next()
    again.leave()
    two = ConsumerSettings(Store(store), ("q", "r"), starting_offsets='{"q": {"0": 1}, "r": {"0": 0}}')
    partq.create_queue(store, "r", "k string, v bigint", key="k", partitions=1)
    both = Planner(two, "two", "c")
    both.next(StreamOffset("two", "c", {}, {}), Limits())
    partq.delete_queue(store, "r")
    both.membership._subscription.reopen()
    assert both.membership._subscription.first_starts(both.membership.group.state) == {}
    both.leave()
    with pytest.raises(partq.InvalidArgumentError, match="names partition 1"):
        Planner(ConsumerSettings(Store(store), ("q",), starting_offsets='{"q": {"1": 2}}'), "other", "b")


def test_partitions_that_came_since_are_read_from_their_beginning(store: str) -> None:
    """R2: also by a query that starts with `latest` before any member knows of them; so nothing that was written since is left out."""
    make(store, 2)
    sink = Sink(store)
    sink.write(0, messages(0, 20))
    a = Query(store, "a", starting_offsets="latest")
    assert a.next() == {}
    update = scaling.update_groups

    def dies(queue: Queue, *args: Any) -> None:
        if queue.state.partition_count == 4:
            raise KeyboardInterrupt
        update(queue, *args)

    with mock.patch.object(scaling, "update_groups", dies), pytest.raises(KeyboardInterrupt):
        partq.scale(store, "q", 4, timeout_s=60)
    sink.write(1, messages(20, 60))
    b = Query(store, "b", starting_offsets="latest")
    given: dict[int, int] = {}

    def all_came() -> bool:
        for query in (a, b):
            given.update({number: end for number, (_, end) in query.next().items()})
        return sum(given.values()) - sum(t.first_offset for t in opened(store).partitions) >= 60

    eventually(all_came, "all that was written since")
    ends = {table.partition: table.next_offset for table in opened(store).partitions}
    assert {number: given.get(number, 0) for number in (2, 3)} == {number: ends[number] for number in (2, 3)}
    for query in (a, b):
        query.leave()


@pytest.mark.parametrize("lost", [False, True])
def test_what_another_owner_has_read_is_not_lost(store: str, lost: bool) -> None:
    """A query stands still between its looks at the group and at the partitions. Meanwhile another owner reads on, and what it read is removed."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    a = Query(store, "a")
    assert a.next() == {0: (0, 5)}
    put(store, 0, range(5))
    refresh, group = Subscription.refresh, Group(Store.at(store), "g")

    def stands_still(self: Subscription) -> None:
        monkey.undo()
        if not lost:
            group.refresh()
            group.decide(lambda: [Leave("a", a.planner.membership.incarnation, expired=True)], "b")
            b = Query(store, "b")
            eventually(lambda: b.next() == {0: (0, 10)} or b.next() == {0: (5, 10)}, "that b reads")
            b.next()
            b.leave()
        opened(store).partitions[0].remove(len)
        refresh(self)

    monkey = pytest.MonkeyPatch()
    monkey.setattr(Subscription, "refresh", stands_still)
    if lost:
        with pytest.raises(partq.DataLossError, match="messages 5 to 9"):
            a.next()
    else:
        a.next()
        assert position(store, "g", 0) == 10
    a.leave()


def test_a_replay_of_what_another_owner_has_read_meanwhile(store: str) -> None:
    """A query that starts again stands still after its look at the group; another owner reads on, and what it read is removed."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    first = Query(store, "a", instance_id="a")
    assert first.next() == {0: (0, 5)}
    first.planner.membership.stopping.set()  # it is killed
    again = Query(store, "a", instance_id="a")
    refresh, group = Membership.refresh, Group(Store.at(store), "g")

    def stands_still(self: Membership) -> None:
        refresh(self)
        if self is not again.planner.membership or not self.incarnation:
            return
        monkey.undo()
        group.refresh()
        group.decide(lambda: [Leave("a", self.incarnation, expired=True)], "b")
        b = Query(store, "b")
        eventually(lambda: b.next() == {0: (0, 5)}, "that b reads")
        b.next()
        b.leave()
        opened(store).partitions[0].remove(len)

    with pytest.MonkeyPatch.context() as monkey:
        again.planner.membership.join_unless_member(lambda: None)
        monkey.setattr(Membership, "refresh", stands_still)
        assert [piece.slice.path for task in again.planner.tasks(first.started, first.done) for piece in task]
    again.leave()


def test_an_assignor_that_failed_once_stops_no_standby_later(store: str) -> None:
    """K5: another member has computed the assignment."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    a, b = Query(store, "a"), Query(store, "b")
    a.next()
    b.next()
    b.planner.membership.failure = AssignorError("it failed")
    between_calls.Coordinator(b.planner.membership).step()
    assert b.next() == {}
    for query in (a, b):
        query.leave()


def test_a_load_that_shifts_moves_partitions(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`weighted` moves partitions from the flow that has much to do while nobody comes or goes, and the history says why."""
    monkeypatch.setattr(between_calls, "_LOADS_EVERY_S", 0.2)
    partq.create_queue(store, "q", "v bigint", partitions=4, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    settings = ConsumerSettings(Store(store), ("q",), flows=2, assignors=("weighted",))
    planner = Planner(settings, "g", "a")
    group = Group(Store.at(store), "g")

    def owners() -> dict[int, str | None]:
        group.refresh()
        return {number: own.flow for (_, number), own in sorted(group.state.partitions.items())}

    try:
        done = StreamOffset("g", "a", {}, {})
        planner.next(done, Limits())
        before = owners()
        busy = [number for number, flow in before.items() if flow == "a/0"]
        for number in busy:
            put(store, number, range(1_000))

        def moved() -> bool:
            nonlocal done
            done = planner.next(done, Limits(max_rows=10)) or done
            return len({owners()[number] for number in busy}) == 2

        eventually(moved, "the move")
        rows = [row for row in group.history() if row["kind"] == "AssignmentComputed"]
        assert "load" in rows[-1]["cause"]
        loads = {number: load for _, number, load in json.loads(rows[-1]["body"])["loads"]}
        assert all(loads[number] > 500 for number in busy) and len(loads) == 4
    finally:
        planner.leave()


def test_the_history_says_which_instance_decided(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    query = Query(store, "a")
    query.next()
    query.leave()
    kinds = {row["kind"]: row["by"] for row in open_group(Store(store), "g").history()}
    assert {"MemberJoined", "Granted", "MemberLeft"} <= kinds.keys() and {*kinds.values()} == {"a"}


def test_what_the_group_knows_of_its_queues_is_no_news(store: str) -> None:
    """R2: only what is changed is decided."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    query = Query(store, "a")
    query.next()
    subscription, state = query.planner._subscription, query.planner.membership.group.state
    assert subscription.partition_changes(state) is None
    partq.alter_queue(store, "q", rebalance_delay_ms=5_000)
    subscription.refresh()
    assert subscription.partition_changes(state) is not None
    query.leave()


@pytest.mark.parametrize(
    ("files", "waits"),
    [(MemoryFiles(), [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]), (MemoryFilesElsewhere(), [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])],
)
def test_an_idle_query_asks_less_and_less_often(
    files: MemoryFiles, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store about once a second in the end: each look is several requests. A message makes it quick again."""
    slept: list[float] = []
    monkeypatch.setattr(SYSTEM, "sleep", slept.append)
    store = Store.over(files)
    make(store, 1)
    query = Query(store, "a")
    for number in range(2):
        Sink(store).write(number, messages(0, 10))
        assert query.next()
        query.planner.membership.batch_finished(query.done)
        slept.clear()
        while len(slept) < len(waits):
            assert not query.next()
        assert slept == waits
    query.leave()
