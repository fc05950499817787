"""A replica that takes over, and groups that were given what it does not know of (S7, H4)."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.primary import fence
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.scale import scale
from spark_partq.storage.queue.handle import attach_group, open_queue, queue_state
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import put as put_messages
from tests.replicas import put, queue_fixture, sync, there_fixture  # noqa: F401


@pytest.mark.parametrize("deleted", [False, True])
def test_a_group_that_had_only_attached(queue: str, there: str, deleted: bool) -> None:
    """H4, S7: it joins the primary after the last pass, where it is given what is there; at the replica that comes again, marked."""
    put(queue, 0, range(5))
    if deleted:
        Consumer(queue, "i").leave()
        partq.delete_group(queue, "g")
    attach_group(open_queue(Store.at(queue), "q"), "g", int(deleted))
    sync(queue, there)
    found = promote(Store.at(there), "q")
    late = Consumer(queue, "i")
    late.ack(0, 0, delivered=5)
    (finding,) = diagnose(Store.at(there)).findings
    assert found.fenced and "group g is attached and has not joined" in finding.what
    reader = Consumer(there, "i")
    granted = {fact["partition"]: fact["delivered"] for fact in reader.group.history() if fact["kind"] == "Granted"}
    assert {n: granted[n] for n in range(2)} == {0: 5, 1: 0}
    assert [reader.group.delivered(reader.partition_id(n)) for n in range(2)] == [5, 0]
    assert reader.group.position(reader.partition_id(0)) == 0
    reader.beat()
    assert diagnose(Store.at(there)).findings == []
    put(there, 1, range(3))
    assert Consumer(there, "i", group="new").group.delivered(reader.partition_id(1)) == 0, "it began here"


def test_a_primary_that_was_deleted_and_created_again(queue: str, there: str) -> None:
    """S7: the queue of its name is another one, which is neither fenced nor copied."""
    put(queue, 0, range(5))
    sync(queue, there)
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=2)
    put(queue, 0, [7])
    found = promote(Store.at(there), "q")
    assert not found.fenced and found.problem == f"queue 'q' in {queue} was deleted and created again"
    assert put(there, 0, [5]) == 5 and put(queue, 0, [8]) == 1


def test_a_partition_of_which_the_replica_has_not_told_the_group(queue: str, there: str) -> None:
    """H4, S7: a group that learns of a partition at the primary after the last pass may have been given what is there."""
    Consumer(queue, "i")
    scale(open_queue(Store.at(queue), "q"), 3, "live")
    put(queue, 2, range(4), generation=1)
    sync(queue, there)
    promote(Store.at(there), "q")
    reader = Consumer(there, "i")
    assert [reader.group.delivered(reader.partition_id(n)) for n in range(3)] == [0, 0, 4]
    assert diagnose(Store.at(there)).findings == []


def test_a_partition_that_is_removed_and_comes_back(store: str, there: str) -> None:
    """H4, S7: what the primary had delivered after the last pass still comes again marked."""
    partq.create_queue(store, "q", "v bigint", partitions=0, rebalance_delay_ms=0)
    put_messages(store, -1, range(20))
    reader = Consumer(store, "i")
    reader.ack(-1, 5)
    sync(store, there)
    promote(Store.at(there), "q")
    place = reader.partition_id(-1)
    for count in (2, 0):
        partq.scale(there, "q", count)
    group = Consumer(there, "i").group
    assert (group.position(place), group.delivered(place)) == (5, 20)


def test_a_group_that_would_attach_to_a_fenced_queue(queue: str, there: str) -> None:
    """S7: a process that opened the queue before its replica took over gives none of its messages to a group that begins."""
    opened = Subscription(ConsumerSettings(Store.at(queue), ("q",)))
    sync(queue, there)
    state = queue_state(Store.at(queue), "q")
    fence(Store.at(queue), state, there, state.replica_ids[there])
    with pytest.raises(partq.QueueFencedError, match="taken over"):
        opened.attach(Group(Store.at(queue), "g"))
    assert queue_state(Store.at(queue), "q").groups == {}
