"""Manual acknowledgement (H5)."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.group.events import Leave
from spark_partq.core.ids import QueuePartition
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import Claim, acknowledge
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.helpers import eventually, group_state, opened, position, put
from tests.planners import Query


def test_an_epoch_that_is_over_is_refused(store: str) -> None:
    """W2: what was delivered to a former owner is not acknowledged for its successor."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    settings = ConsumerSettings(Store(store), ("q",), manual_acknowledgement=True)
    first, second = Planner(settings, "g", "a"), Planner(settings, "g", "b")
    nothing = StreamOffset("g", "a", {}, {})
    try:
        end = first.next(nothing, Limits())
        assert end is not None
        old = end.ranges["q", 0].epoch
        assert acknowledge(Store(store), "g", {("q", 0): 2}, {("q", 0): old}) == []
        assert second.next(nothing, Limits()) is None
        Group(Store.at(store), "g").decide(lambda: [Leave("a", first.membership.incarnation, expired=True)], "test")
        end = second.next(nothing, Limits())
        assert end is not None and end.ranges["q", 0].epoch > old
        assert acknowledge(Store(store), "g", {("q", 0): 5}, {("q", 0): old}) == [("q", 0)]
        assert position(store, "g", 0) == 2
    finally:
        second.leave()
        first.membership.stopping.set()


def test_what_is_not_acknowledged_comes_again(store: str) -> None:
    """H5: after a restart a query begins where the application has acknowledged, whatever its checkpoint says."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    settings = ConsumerSettings(Store(store), ("q",), manual_acknowledgement=True)
    first = Planner(settings, "g", "a")
    end = first.next(StreamOffset("g", "a", {}, {}), Limits())
    assert end is not None
    assert acknowledge(Store(store), "g", {("q", 0): 2}, {("q", 0): end.ranges["q", 0].epoch}) == []
    first.membership.stopping.set()
    again = Planner(settings, "g", "a")
    try:
        end = again.next(end, Limits())
        assert end is not None and (end.ranges["q", 0].start, end.ranges["q", 0].end) == (2, 5)
    finally:
        again.leave()


def test_a_late_acknowledgement_does_not_undo_a_reset(store: str) -> None:
    """H4: also one that names no epoch, in the driver where the query runs again; the messages that it was given since then count."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(20))
    options = {"manual_acknowledgement": True}
    before = Query(store, "a", **options)
    assert before.next() == {0: (0, 20)}
    assert acknowledge(Store(store), "g", {("q", 0): 5}, claims=claims(store)) == []
    before.leave()
    partq.reset_offsets(store, "g", "earliest")
    again = Query(store, "a", **options)
    assert again.next(Limits(max_rows=3)) == {0: (0, 3)}
    assert acknowledge(Store(store), "g", {("q", 0): 20}, claims=claims(store)) == [("q", 0)]
    assert position(store, "g", 0) == 0
    assert acknowledge(Store(store), "g", {("q", 0): 3}, claims=claims(store)) == []
    assert position(store, "g", 0) == 3
    again.leave()


def claims(store: str) -> dict[QueuePartition, Claim]:
    """What the driver of the query that owns the partition says of it."""
    queue_id = opened(store).state.queue_id
    own = group_state(store).partitions[queue_id, 0]
    return {("q", 0): (queue_id, 0, own.epoch, own.incarnation)}


def test_what_its_queue_has_no_longer_is_refused(store: str) -> None:
    """S2: an acknowledgement that names such a partition, too, counts for the others."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    put(store, 0, range(5))
    planner = Planner(ConsumerSettings(Store(store), ("q",), manual_acknowledgement=True), "g", "a")
    try:
        end = planner.next(StreamOffset("g", "a", {}, {}), Limits())
        assert end is not None
        epochs = {place: planned.epoch for place, planned in end.ranges.items()}
        partq.scale(store, "q", 1)
        partq.maintain(store)
        assert [p.partition for p in partq.describe_group(store, "g").partitions] == [0]
        assert acknowledge(Store(store), "g", {("q", 1): 0, ("q", 0): 5}, epochs) == [("q", 1)]
        assert position(store, "g", 0) == 5
    finally:
        planner.leave()


def test_what_was_given_of_a_deleted_queue_is_refused(store: str) -> None:
    """H5: an acknowledgement that names it, too, counts for the other queues. What nobody was given is an error still."""
    for name in ("p", "q"):
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=0)
        put(store, 0, range(5), queue=name)
    query = Query(store, "a", queues=("p", "q"), manual_acknowledgement=True)
    query.next()
    epochs = {place: planned.epoch for place, planned in query.done.ranges.items()}
    claims = {
        (name, 0): (query.done.queue_ids[name], 0, epoch, query.planner.membership.incarnation)
        for (name, _), epoch in epochs.items()
    }
    partq.delete_queue(store, "p")
    eventually(lambda: query.next() or len(group_state(store).queues) == 1, "the group to go on without queue p")
    assert acknowledge(Store(store), "g", {("p", 0): 5, ("q", 0): 3}, epochs) == [("p", 0)]
    assert position(store, "g", 0) == 3
    assert acknowledge(Store(store), "g", {("p", 0): 5, ("q", 0): 4}, None, claims) == [("p", 0)]
    assert position(store, "g", 0) == 4
    with pytest.raises(partq.InvalidArgumentError, match="group 'g' has no partition 0 of queue 'p'"):
        acknowledge(Store(store), "g", {("p", 0): 5})
    with pytest.raises(partq.InvalidArgumentError, match="group 'g' has no partition 7 of queue 'q'"):
        acknowledge(Store(store), "g", {("q", 7): 5}, {("q", 7): 1})
    query.leave()


def test_what_was_given_of_a_queue_that_is_smaller_now_is_refused(store: str) -> None:
    """H5: its queue was deleted and created again. An acknowledgement that names it, too, counts for the other queues."""
    sizes = {"qa": 1, "qb": 2}
    for name, partitions in sizes.items():
        partq.create_queue(store, name, "v bigint", partitions=partitions, rebalance_delay_ms=0)
        for number in range(partitions):
            put(store, number, range(5), queue=name)
    query = Query(store, "a", queues=(), queue_pattern="q.*", manual_acknowledgement=True)
    query.next()
    epochs = {place: planned.epoch for place, planned in query.done.ranges.items()}
    before = query.done.queue_ids["qb"]
    partq.delete_queue(store, "qb")
    partq.create_queue(store, "qb", "v bigint", partitions=1, rebalance_delay_ms=0)

    def reads_the_new_one() -> bool:
        query.next()
        ids = {queue.name: id_ for id_, queue in group_state(store).queues.items()}
        return ids.get("qb", before) != before and len(group_state(store).partitions) == 2

    eventually(reads_the_new_one, "the group to read the new queue qb")
    assert acknowledge(Store(store), "g", {("qb", 1): 5, ("qa", 0): 3}, epochs) == [("qb", 1)]
    assert position(store, "g", 0, queue="qa") == 3
    query.leave()
