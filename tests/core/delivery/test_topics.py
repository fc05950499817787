"""X9: from what a queue has of a Kafka topic follows what is read next, or why nothing is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import spark_partq as partq
from spark_partq.core.delivery.positions import missing
from spark_partq.core.delivery.topics import (
    Topic,
    check_follows,
    check_reachable,
    default_name,
    first_positions,
    planned,
    recorded,
    starting_offsets,
)

TOPIC = Topic("orders", "t1", {0: (0, 90), 1: (40, 50), 2: (0, 0)})


def has(**offsets: int) -> dict[str, int]:
    return {f"partq:s/t1/{name[1:]}": offset for name, offset in offsets.items()}


def test_what_a_queue_has() -> None:
    """X9: of a partition of which it has nothing nothing is known, and what other sinks have is not this one's."""
    assert recorded(has(p0=7, p1=45) | {"partq:ss/t2/0": 3}, "s", TOPIC) == {0: 7, 1: 45}
    assert recorded({}, "s", TOPIC) == {}


def test_another_topic_of_the_name() -> None:
    """X9: one that was deleted and created again has other messages with the same offsets."""
    with pytest.raises(
        partq.CheckpointMismatchError, match=r"another topic as sink 's' \(its id is t0\).*created again"
    ) as found:
        recorded(has(p0=7) | {"partq:s/t0/0": 3}, "s", TOPIC)
    assert (found.value.params["topic"], found.value.params["topic_id"], found.value.params["recorded"]) == (
        "orders",
        "t1",
        "t0",
    )


def test_where_to_begin() -> None:
    """X9: behind what the queue has; where it has nothing of a partition, but something of others, nothing is left out."""
    assert json.loads(starting_offsets(TOPIC, {0: 7, 1: 45})) == {"orders": {"0": 7, "1": 45, "2": -2}}
    assert json.loads(starting_offsets(TOPIC, {1: 3})) == {"orders": {"0": -2, "1": 40, "2": -2}}
    assert first_positions(TOPIC, "earliest") == {0: 0, 1: 40, 2: 0}
    assert first_positions(TOPIC, "latest") == {0: 90, 1: 50, 2: 0}
    assert first_positions(replace(TOPIC, readable_ends={0: 70, 1: 50}), "latest") == {0: 70, 1: 50, 2: 0}


def test_what_retention_has_removed() -> None:
    """X9: is an error until somebody says that it may be; what ends just there is none."""
    check_reachable(TOPIC, {0: 90, 1: 40, 2: 0}, True)
    with pytest.raises(
        partq.DataLossError, match="offset 37, and the topic begins at 40: its retention time has removed 3 offsets"
    ):
        check_reachable(TOPIC, {0: 5, 1: 37}, True)
    check_reachable(TOPIC, {0: 5, 1: 37}, False)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_topic_that_shrank(fail_on_data_loss: bool) -> None:
    """X9: new messages would be taken for those that the queue has."""
    with pytest.raises(
        partq.TargetAheadError, match="partition 0 of topic 'orders' up to 91, but that partition ends at 90"
    ):
        check_reachable(TOPIC, {0: 91}, fail_on_data_loss)


def test_a_micro_batch_that_begins_after_what_the_queue_lacks() -> None:
    """Spark's checkpoint has gone on, and the queue has not; what retention has removed is not waited for."""
    check_follows(TOPIC, {0: 12, 1: 45}, {"0": 12, "1": 45, "2": 0}, "q")
    check_follows(TOPIC, {0: 12}, {"0": 11, "1": 40}, "q")  # partition 1 begins at 40
    with pytest.raises(
        partq.CheckpointMismatchError,
        match=r"goes on with offset 13 of partition 0 of topic 'orders', and queue 'q' has its messages up to 12:",
    ):
        check_follows(TOPIC, {0: 12}, {"1": 41, "0": 13}, "q")
    with pytest.raises(
        partq.CheckpointMismatchError,
        match=r"goes on with offset 41 of partition 1 of topic 'orders', and queue 'q' has its messages up to 40:",
    ) as found:
        check_follows(TOPIC, {0: 12}, {"0": 12, "1": 41}, "q")
    told = {name: found.value.params[name] for name in ("topic", "partition", "queue", "position")}
    assert told == {"topic": "orders", "partition": "1", "queue": "q", "position": "40"}


def test_what_a_queue_lacks_of_a_micro_batch() -> None:
    """X9: the positions of a topic are those of a group: what lies below is left out."""
    positions = {("t1", n): p for (_, n), p in planned(TOPIC, {"0": 20, "1": 45, "2": 0}).items()}
    known = {("t1", 0): {"t1": 12}, ("t1", 1): {"t1": 45}}
    assert missing(positions, known) == {("t1", 0): 12}
    assert missing(positions, {}) == {("t1", 0): 0, ("t1", 1): 0}


def test_names() -> None:
    assert default_name("orders.v1") == "kafka.orders.v1"
    for topic in ("o" * 130, "ends."):
        with pytest.raises(partq.InvalidArgumentError, match="give a sink_id with --sink-id"):
            default_name(topic)


def test_too_many_partitions() -> None:
    assert Topic("t", "i", dict.fromkeys(range(4096), (0, 0))).checked()
    with pytest.raises(partq.InvalidArgumentError, match="has 4,097 partitions"):
        Topic("t", "i", dict.fromkeys(range(4097), (0, 0))).checked()
