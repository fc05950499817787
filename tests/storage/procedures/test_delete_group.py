"""A group is deleted while others make it again, and delete it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.store import Store
from tests.groups import Consumer

Decide = Callable[[QueueState], Sequence[QueueFact]]


def test_a_deletion_that_slept_removes_no_later_acknowledgements(store: str) -> None:
    """Q8: it ended the first group of the name; its folder goes, that of the third stays."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a").leave()
    decide = QueueControl.decide
    third: list[Consumer] = []

    def wakes(self: QueueControl, facts: Decide) -> QueueState:
        with mock.patch.object(QueueControl, "decide", decide):
            Consumer(store, "b").leave()
            partq.delete_group(store, "g")
            third.append(Consumer(store, "c"))
            third[0].ack(0, 9, delivered=12)
        return decide(self, facts)

    with mock.patch.object(QueueControl, "decide", wakes):
        partq.delete_group(store, "g")
    (consumer,) = third
    first, group = consumer.partition_id(0), Group(Store.at(store), "g")
    group.refresh()
    assert (group.position(first), group.delivered(first)) == (9, 12)
    consumer.ack(0, 10)
    assert {path.name for path in Path(store, "groups/g").iterdir()} == {"control", "acks-2"}
