"""Planners of a group over several queues, of which one is deleted while they run (K3)."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.group.events import HolddownOver, Leave, QueuesChanged
from spark_partq.core.group.facts import Status
from spark_partq.storage.group.ack_table import COMPACT_AFTER
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import create as creation
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.procedures.consume import subscription
from spark_partq.storage.procedures.consume.application import Message
from spark_partq.storage.procedures.consume.between_calls import Coordinator
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened, put
from tests.planners import Query as Told
from tests.scaled import Crash, half_deleted


class Query:
    """A planner that names queues."""

    def __init__(
        self, store: str, instance: str, *queues: str, done: StreamOffset | None = None, pattern: str | None = None
    ) -> None:
        self.planner = Planner(ConsumerSettings(Store(store), queues, pattern), "g", instance)
        self.done = done or StreamOffset("g", instance, {}, {})
        if done is not None:
            self.planner.check_checkpoint(done)

    def next(self) -> dict[tuple[str, int], tuple[int, int]]:
        """What the next micro-batch has of each partition."""
        end = self.planner.next(self.done, Limits())
        if end is None:
            return {}
        self.done = end
        return {p: (r.start, r.end) for p, r in end.ranges.items() if r.end > r.start}

    def leave(self) -> None:
        self.planner.leave()


@pytest.fixture
def group(store: str, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Of two queues with two partitions each; members look at every call whether they are there."""
    monkeypatch.setattr(subscription, "_CHECK_S", -1.0)
    for queue in ("q", "r"):
        partq.create_queue(store, queue, "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=0)
        for number in (0, 1):
            put(store, number, range(5), queue=queue)
    return Group(Store.at(store), "g")


def test_who_names_others_goes_on_with_them(store: str, group: Group, queries: list[Query]) -> None:
    """K3: its partitions are gone, the others are assigned anew, and nobody is stopped."""
    both, one = Query(store, "a", "q", "r"), Query(store, "b", "q")
    queries += [both, one]
    for _ in range(3):
        both.next()
        one.next()
    partq.delete_queue(store, "r")
    for number in (0, 1):
        put(store, number, range(5))
    seen = {**both.next(), **one.next(), **both.next(), **one.next()}
    assert seen == {("q", 0): (5, 10), ("q", 1): (5, 10)}
    group.refresh()
    assert [queue.name for queue in group.state.queues.values()] == ["q"]
    assert group.state.status is Status.READY and len({own.flow for own in group.state.partitions.values()}) == 2


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("removed", ["replica", "partitions", "control"])
def test_a_deletion_that_is_under_way(
    store: str,
    group: Group,
    queries: list[Query],
    caplog: pytest.LogCaptureFixture,
    removed: str,
    expired: bool,
) -> None:
    """K3: it stops when it has removed one part of the queue. A query that names others goes on with them, also if its session has expired
    since; a query that names none is told."""
    both, alone = Query(store, "a", "q", "r"), Query(store, "b", "r")
    queries += [both, alone]
    for _ in range(3):
        both.next()
        alone.next()
    half_deleted(store, "r", removed)
    if expired:
        group.refresh()
        group.decide(lambda: [Leave(m.instance, m.incarnation, True) for m in group.state.members.values()])
    for number in (0, 1):
        put(store, number, range(5))
    assert {**both.next(), **both.next()} == {("q", 0): (5, 10), ("q", 1): (5, 10)}
    group.refresh()
    assert [queue.name for queue in group.state.queues.values()] == ["q"]
    assert caplog.messages.count("queue r was deleted; group and query go on with their other queues") == 1
    with pytest.raises(partq.QueueNotFoundError, match="'r'"):
        alone.next()


@pytest.mark.parametrize("removed", ["replica", "partitions", "control"])
def test_a_query_with_a_pattern_starts_beside_it(store: str, group: Group, queries: list[Query], removed: str) -> None:
    """K3: without the queue that is being deleted."""
    half_deleted(store, "r", removed)
    queries.append(Query(store, "a", pattern="q|r"))
    assert queries[0].next() == {("q", 0): (0, 5), ("q", 1): (0, 5)}
    error = partq.QueueNotFoundError if removed == "control" else partq.QueueNotReadyError
    with pytest.raises(error):
        Query(store, "b", pattern="r.*").next()


@pytest.mark.parametrize("files", range(1, 6))
def test_a_query_with_a_pattern_starts_beside_a_promoted_queue_that_is_being_deleted(
    store: str, queries: list[Query], tmp_path: Path, files: int
) -> None:
    """K3, S7: whichever files are left of the table that says that it was a replica."""
    partq.create_queue(store, "r", "v bigint", partitions=1)
    there = str(tmp_path / "there")
    partq.replicate(store, "r", there)
    partq.promote(there, "r")
    partq.create_queue(there, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(there, 0, range(5))
    half_deleted(there, "r", "replica", files)
    queries.append(Query(there, "a", pattern="q|r"))
    assert queries[0].next() == {("q", 0): (0, 5)}
    with pytest.raises(partq.QueueNotReadyError, match="'r'"):
        Query(there, "b", pattern="r")


def test_a_query_with_a_pattern_starts_beside_a_queue_that_is_being_made(
    store: str, group: Group, queries: list[Query]
) -> None:
    """K3: it reads the queue when it is made."""
    with mock.patch.object(creation, "make_tables", side_effect=Crash), pytest.raises(Crash):
        partq.create_queue(store, "q2", "v bigint", partitions=1)
    queries.append(Query(store, "a", pattern="q.*"))
    assert queries[0].next() == {("q", 0): (0, 5), ("q", 1): (0, 5)}
    partq.create_queue(store, "q2", "v bigint", partitions=1, exist_ok=True)
    put(store, 0, range(3), queue="q2")
    assert {**queries[0].next(), **queries[0].next()} == {("q2", 0): (0, 3)}


def test_its_partitions_are_just_being_released(store: str, queries: list[Told]) -> None:
    """K3: while the application of its only queue is told of that, another member sees that the queue was deleted."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=60_000)

    class Slow(Told):
        def request(self, message: Message, timeout_s: float | None = None) -> Message:
            if message.get("revoked"):
                partq.delete_queue(store, "q")
                other.group.decide(lambda: [QueuesChanged(gone=(other.ids["q"],))], "b")
            return {}

    query = Slow(store, "a")
    queries.append(query)
    with mock.patch.object(Planner, "_start_threads"):
        query.next()
    other = Consumer(store, "b")
    with pytest.raises(partq.QueueNotFoundError, match=r"'q' in .* this query has no other queue to read"):
        query.next()


def test_a_query_joins_again_at_the_second_try(
    store: str, queries: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K3, S6: what it saw of the deletion at the first try is not forgotten."""
    monkeypatch.setattr(subscription, "_CHECK_S", -1.0)
    for queue, partitions in (("q", 0), ("r", 1)):
        partq.create_queue(store, queue, "v bigint", partitions=partitions, rebalance_delay_ms=0)
    both, group = Query(store, "a", "q", "r"), Group(Store.at(store), "g")
    queries.append(both)
    with mock.patch.object(Planner, "_start_threads"):
        both.next()
    coordinator = Coordinator(both.planner.membership)
    coordinator.step()
    half_deleted(store, "r", "partitions")
    scaling.start(opened(store), 1, "live")
    scaling.step(opened(store))
    update_groups(opened(store))
    with (
        mock.patch.object(Group, "decide", side_effect=partq.StoreUnavailableError("503")),
        pytest.raises(partq.StoreUnavailableError),
    ):
        coordinator.step()
    coordinator.step()
    assert both.next() == {}
    group.refresh()
    assert [queue.name for queue in group.state.queues.values()] == ["q"] and set(group.state.members) == {"a"}


def test_a_queue_that_is_put_back_from_a_backup(store: str, group: Group, queries: list[Query]) -> None:
    """K3: a query that went on without it does not take it from another query, which reads it again."""
    both = Query(store, "a", "q", "r")
    queries.append(both)
    both.next()
    backup = shutil.copytree(f"{store}/queues/r", f"{store}-r")
    partq.delete_queue(store, "r")
    both.next()
    Path(backup).rename(f"{store}/queues/r")
    one = Query(store, "b", "r")
    queries.append(one)
    one.next()
    both.next()
    put(store, 0, range(3), queue="r")
    assert one.next()["r", 0][1] == 8


def test_a_query_that_joins_again_first_keeps_what_it_had(store: str, queries: list[Query]) -> None:
    """K3, R5: it is back within the delay; that it is the first that sees a deletion takes nothing away from it."""
    for queue in ("q", "r"):
        partq.create_queue(store, queue, "v bigint", partitions=2, rebalance_delay_ms=600_000)
    both, other = Query(store, "a", "q", "r"), Query(store, "b", "q", "r")
    queries += [both, other]
    group = Group(Store.at(store), "g")
    for query in queries:
        with mock.patch.object(Planner, "_start_threads"):
            query.next()
    group.refresh()
    group.decide(lambda: [HolddownOver(group.state.status_seq)])
    for _ in range(2):
        for query in queries:
            query.next()

    def owners() -> list[str | None]:
        group.refresh()
        (queue_id,) = [queue_id for queue_id, queue in group.state.queues.items() if queue.name == "q"]
        return [group.state.partitions[queue_id, number].flow for number in range(2)]

    before = owners()
    half_deleted(store, "r", "partitions")
    group.decide(lambda: [Leave("a", both.planner.membership.incarnation, True)])
    both.next()
    assert owners() == before and "a/0" in before


def test_who_names_no_other_is_told(store: str, group: Group, queries: list[Query]) -> None:
    """K3: there is nothing left that it could read; a member that reads another queue goes on."""
    alone, other = Query(store, "a", "r"), Query(store, "b", "q")
    queries.append(other)
    alone.next()
    other.next()
    partq.delete_queue(store, "r")
    with pytest.raises(partq.QueueNotFoundError, match="'r'"):
        alone.next()
    put(store, 0, range(5))
    assert other.next() == {("q", 0): (5, 10)}


def test_the_last_of_them_is_deleted(store: str, group: Group) -> None:
    """K3: one after the other."""
    both = Query(store, "a", "q", "r")
    both.next()
    partq.delete_queue(store, "r")
    both.next()
    partq.delete_queue(store, "q")
    with pytest.raises(partq.QueueNotFoundError, match="'q'"):
        both.next()


@pytest.mark.parametrize("seen", [False, True])
def test_it_is_created_again(store: str, group: Group, queries: list[Query], seen: bool) -> None:
    """K3: another queue, whose offsets the checkpoint does not know; also if somebody else brings it into the group."""
    both = Query(store, "a", "q", "r")
    both.next()
    partq.delete_queue(store, "r")
    if seen:
        both.next()
    partq.create_queue(store, "r", "v bigint", partitions=2, rebalance_delay_ms=0)
    queries.append(Query(store, "b", "r"))
    queries[0].next()
    with pytest.raises(partq.CheckpointMismatchError, match="'r' was deleted and created again"):
        both.next()


def test_who_opened_the_former_one_does_not_bring_it_back(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query stands still while it joins: the group keeps the queue that is there by then, and its position in it."""
    attach = Subscription.attach

    def and_stand_still(read: Subscription, group: Group) -> None:
        attach(read, group)
        monkeypatch.undo()
        partq.delete_queue(store, "r")
        partq.create_queue(store, "r", "v bigint", partitions=1)
        put(store, 0, range(5), queue="r")
        prompt = Query(store, "a", "r")
        prompt.next()
        prompt.next()
        prompt.planner.leave()

    partq.create_queue(store, "r", "v bigint", partitions=2)
    late = Query(store, "late", "r")
    monkeypatch.setattr(Subscription, "attach", and_stand_still)
    with pytest.raises(partq.QueueNotFoundError, match="'r' was deleted and created again"):
        late.next()
    group = Group(Store.at(store), "g")
    group.refresh()
    assert [group.position(partition_id) for partition_id in group.state.partitions] == [5]


def test_the_checkpoint_still_serves(store: str, group: Group, queries: list[Query]) -> None:
    """K3: who starts again without the name goes on where it was; a queue that is still there may not be left out."""
    both = Query(store, "a", "q", "r")
    both.next()
    both.planner.leave()
    with pytest.raises(partq.CheckpointMismatchError, match="belongs to queue 'r'"):
        Query(store, "a", "q", done=both.done)
    partq.delete_queue(store, "r")
    queries.append(Query(store, "a", "q", done=both.done))
    put(store, 1, range(5))
    assert queries[0].next()["q", 1][1] == 10


def test_its_acknowledgements_are_forgotten(store: str, group: Group) -> None:
    """By a member that has seen that the group read it."""
    consumer = Consumer(store, "a", queues=("q", "r"))
    for queue in ("q", "r"):
        consumer.ack(0, 3, queue=queue)
    group.refresh()
    assert {queue_id for (queue_id, _), *_ in group.acks.rows} == set(consumer.ids.values())
    partq.delete_queue(store, "r")
    consumer.group.decide(lambda: [QueuesChanged({}, {}, (consumer.ids["r"],))], "test")
    for _ in range(COMPACT_AFTER):
        consumer.group.refresh()
        consumer.beat()
    group.refresh()
    assert {queue_id for (queue_id, _), *_ in group.acks.rows} == {consumer.ids["q"]}
