"""A replica takes over that its primary was followed no more, while passes of another queue copied the group that reads both (S7)."""

from __future__ import annotations

import os

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.store import Store
from tests.clocks import no_grace
from tests.groups import Consumer
from tests.replicas import group_of, maintain, put, there_fixture  # noqa: F401


@pytest.mark.parametrize("floors", [False, True])
@pytest.mark.parametrize("first", ["p", "q"])
def test_a_group_goes_on_at_the_end(store: str, there: str, floors: bool, first: str) -> None:
    """Messages that come get the offsets of those that the group had read: they are given to it, as new ones."""
    for name in ("p", "q"):
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=0)
    consumer = Consumer(store, "i", queues=("p", "q"))
    place = consumer.partition_id(0, "q")
    put(store, 0, range(10), "q")
    for name in ("p", "q"):
        replicate(Store(store), name, there)
    remove_replica(Store(store), "q", there)
    put(store, 0, range(10, 100), "q")
    consumer.ack(0, 100, queue="q")
    if floors:
        with no_grace():
            maintain(store)
    replicate(Store(store), "p", there)
    os.rename(store, f"{store}-away")
    if first == "p":
        promote(Store(there), "p")
        other = Consumer(there, "other", queues=("p",))
    promote(Store(there), "q", force=True)
    if first == "q":
        promote(Store(there), "p")
    group = group_of(there)
    assert (group.position(place), group.delivered(place)) == (10, 10)
    (moved,) = [fact for fact in group.history() if fact["kind"] == "PositionReset"]
    assert (moved["partition"], moved["offset"], moved["flow"], moved["instance"]) == (0, 10, "i/0", "i")
    assert moved["cause"] == "the replica was promoted, which does not have what the group had read of its primary"
    put(there, 0, range(500, 600), "q")
    reader = Consumer(there, "i", queues=("q",))
    assert (reader.group.position(place), reader.group.delivered(place)) == (10, 10)
    if first == "p":  # who reads the other queue was unbound, and binds again
        other.start_again()
        other.group.refresh()
        assert other.group.state.partitions[other.partition_id(0, "p")].flow == "other/0"
    reader.ack(0, 30, queue="q")
    assert group_of(there).position(place) == 30 and diagnose(Store(there)).findings == []


@pytest.mark.parametrize("count", [1, 4])
def test_a_group_that_knows_a_later_resize(store: str, there: str, count: int) -> None:
    """Its partitions are those of the replica now, and it goes on where it was; in the other queue, too."""
    for name in ("p", "q"):
        partq.create_queue(store, name, "v bigint", partitions=2, rebalance_delay_ms=0)
    consumer = Consumer(store, "i", queues=("p", "q"))
    place = consumer.partition_id(0, "q")
    put(store, 0, range(10), "q")
    put(store, 1, range(5), "q")
    for name in ("p", "q"):
        replicate(Store(store), name, there)
    remove_replica(Store(store), "q", there)
    put(store, 0, range(10), "p")
    put(store, 1, range(10, 100), "q")
    consumer.ack(0, 7, queue="p")
    consumer.ack(0, 10, queue="q")
    consumer.ack(1, 95, queue="q")
    partq.scale(store, "q", count)
    consumer.start_again()
    replicate(Store(store), "p", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "p"):
        promote(Store(there), name, force=True)
    partq.scale(there, "q", 3)
    reader = Consumer(there, "i", queues=("p", "q"))
    state = group_of(there).state
    assert sorted(number for id_, number in state.partitions if id_ == place[0]) == [0, 1, 2]
    positions = [reader.group.position((place[0], number)) for number in range(3)]
    assert positions == [10, 5, 0] and reader.group.position(reader.partition_id(0, "p")) == 7
    assert diagnose(Store(there)).findings == []
