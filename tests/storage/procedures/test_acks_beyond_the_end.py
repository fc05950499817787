"""An acknowledgement of messages that are not there removes none that come."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened, put


@pytest.fixture
def consumer(store: str) -> Consumer:
    """A process that has joined, of a queue of one partition with 4 messages."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(4))
    return Consumer(store, "a")


@pytest.mark.parametrize("offset", [9, 10**9, 2**63 - 1])
def test_one_bad_row(store: str, consumer: Consumer, offset: int) -> None:
    """Neither what is there nor what comes is removed, no floor is committed, and the doctor tells."""
    consumer.ack(0, offset)
    for messages in (4, 8):
        assert partq.maintain(store)[0].removed_messages == 0
        assert partq.describe_queue(store, "q").depth == 0
        assert opened(store).table(0).first_offset == 0 and opened(store).table(0).next_offset == messages
        consumer.group.refresh()
        assert consumer.group.state.floors == {}
        assert any(
            f"up to {offset}, but the partition ends at {messages}" in str(fault)
            for fault in diagnose(Store(store)).faults
        )
        put(store, 0, range(4))


def test_a_bad_floor(store: str, consumer: Consumer) -> None:
    partition_id = consumer.partition_id(0)
    epoch = consumer.group.state.partitions[partition_id].epoch
    floor = GroupFact(
        Kind.FLOOR, "q", *partition_id, offset=10**9, epoch_before=epoch, epoch=epoch, lineage_epoch=epoch
    )
    consumer.group._control.commit([floor])
    put(store, 0, range(4))
    assert partq.maintain(store)[0].removed_messages == 0
    assert opened(store).table(0).first_offset == 0


def test_the_end_itself_counts(store: str, consumer: Consumer) -> None:
    """What was appended since the queue was opened is there, too."""
    put(store, 0, range(4))
    consumer.ack(0, 8)
    assert partq.maintain(store)[0].removed_messages == 8


@pytest.mark.parametrize(
    ("offset", "refused"),
    [*((n, "at most 4") for n in (5, 10**9, 2**63, -1)), *((n, "does not map partitions") for n in (True, 1.0))],
)
def test_the_function_refuses(store: str, consumer: Consumer, offset: int, refused: str) -> None:
    partition_id = consumer.partition_id(0)
    epoch = consumer.group.state.partitions[partition_id].epoch
    consumer.group.acknowledge([AckRow(consumer.incarnation, 1, *partition_id, epoch, 0, 4)])
    with pytest.raises(partq.InvalidArgumentError, match=refused):
        partq.acknowledge(store, "g", {("q", 0): offset}, epochs={("q", 0): epoch})
