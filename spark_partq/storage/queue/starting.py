"""Where reading begins and ends when it is asked for as a time."""

from __future__ import annotations

import numpy as np

from spark_partq.core.errors import OffsetOutOfRangeError
from spark_partq.storage.queue.partition_table import PartitionTable


def first_since(table: PartitionTable, since_us: int) -> int | None:
    """The first message that was enqueued then (microseconds since 1970) or later; None if there is none."""
    i = int(np.searchsorted(table.index.enqueued_us, since_us, side="left"))
    return int(table.index.base[i]) if i < len(table.index) else None


def offset_at_time(table: PartitionTable, timestamp_ms: int, strategy: str) -> int:
    """The first message whose `_enqueued_at` is not before `timestamp_ms` (milliseconds since 1970).

    Raises
    ------
    OffsetOutOfRangeError
        If there is none and `strategy` is not ``latest``; as Spark's Kafka source does.
    """
    first = first_since(table, timestamp_ms * 1000)
    if first is not None:
        return first
    if strategy == "latest":
        return table.next_offset
    raise OffsetOutOfRangeError(
        f"startingTimestamp={timestamp_ms}: partition {table.partition} of queue {table.queue!r} has no message of that time or "
        "later; use an earlier time, or set startingOffsetsByTimestampStrategy=latest",
        queue=table.queue,
        partition=table.partition,
    )
