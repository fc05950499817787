"""Settings of a queue and the number of its partitions."""

from __future__ import annotations

from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.settings import QueueSettings, check_partition_count


def test_defaults() -> None:
    assert QueueSettings.parse({}).model_dump() == {
        "rebalance_delay_ms": 5_000,
        "max_handoff_time_ms": 3_000,
        "retention_ms": None,
        "min_retention_ms": 0,
        "max_bytes": None,
        "vacuum_grace_ms": 86_400_000,
        "segment_ms": 3_600_000,
        "max_clock_skew_ms": 600_000,
        "durability": "process",
        "reject_to_sender": "including_when_shutdown",
        "max_deliveries": None,
        "message_ttl_ms": None,
        "message_ttl_column": None,
        "expired_messages": "discard",
        "dead_letter_queue": None,
        "dead_letter_order": "skip",
    }


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"retention": 5}, ["retention", "retention_ms"]),
        ({"retention_ms": -1}, ["retention_ms"]),
        ({"retention_ms": "5"}, ["retention_ms"]),
        ({"retention_ms": 1.0}, ["retention_ms"]),
        ({"retention_ms": True}, ["retention_ms"]),
        ({"retention_ms": 10**18}, ["retention_ms"]),
        ({"rebalance_delay_ms": None}, ["rebalance_delay_ms"]),
        ({"reject_to_sender": True}, ["reject_to_sender"]),
        ({"reject_to_sender": "never"}, ["reject_to_sender", "including_when_shutdown"]),
        ({"max_deliveries": 0}, ["max_deliveries"]),
        ({"max_deliveries": 3}, ["max_deliveries", "dead_letter_queue"]),
        ({"expired_messages": "dead_letter"}, ["expired_messages", "dead_letter_queue"]),
        ({"message_ttl_ms": 0}, ["message_ttl_ms"]),
        ({"dead_letter_queue": "no/name"}, ["dead_letter_queue"]),
        ({"vacuum_grace_ms": float("nan")}, ["vacuum_grace_ms"]),
        ({"retention_ms": -1, "max_handoff_time_ms": "x"}, ["retention_ms", "max_handoff_time_ms"]),
    ],
    ids=str,
)
def test_wrong_settings(wrong: dict[str, Any], named: list[str]) -> None:
    """Every wrong setting is named at once."""
    with pytest.raises(partq.InvalidArgumentError) as caught:
        QueueSettings.parse(wrong)
    assert all(name in str(caught.value) for name in named)


def test_clocks_may_differ_by_a_quarter_of_the_grace() -> None:
    least = QueueSettings.parse({"vacuum_grace_ms": 3_600_000, "max_clock_skew_ms": 900_000})
    assert least.max_clock_skew_ms * 4 == least.vacuum_grace_ms


@pytest.mark.parametrize("count", [0, 1, 2, 4096])
def test_partition_counts(count: int) -> None:
    """Q1, S6: 1 to 4096, or 0 for an exclusive queue."""
    assert check_partition_count(count) == count


@pytest.mark.parametrize("count", [-1, 4097, 2**40, 1.0, "8", True, None, float("nan")], ids=repr)
def test_wrong_partition_counts(store: str, count: Any) -> None:
    """Q1: anything else is refused before anything is written."""
    with pytest.raises(partq.InvalidArgumentError, match="1 to 4096"):
        partq.create_queue(store, "q", "a int", partitions=count)
    with pytest.raises(partq.NotAStoreError):
        partq.list_queues(store)
