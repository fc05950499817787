"""When messages were enqueued, and where reading begins and ends when it is asked for as a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import OffsetOutOfRangeError
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Slice

# Of a partition, segments whose times are kept; of each there are as many times as files were put together at most.
_MOST_KNOWN = 2


def times_in(table: PartitionTable, i: int) -> tuple[Ints, Ints]:
    """Of the i-th file the offsets at which messages of another time begin, and these times, microseconds since 1970.

    Raises
    ------
    CorruptTableError
        If it is a segment, and cannot be read.
    """
    index = table.index
    base, rows, at_us, left = (int(column[i]) for column in (index.base, index.rows, index.enqueued_us, index.left))
    if not index.is_segment[i]:
        return np.array([base]), np.array([at_us])
    known = table.segment_times
    if (found := known.get(index.path(i))) is not None:
        return found
    part = Slice(table.queue, table.partition, index.path(i), 0, rows, base, at_us, left, (), rows - left, True)
    read = list(read_timed(table.store, part, pa.schema([])))
    empty = [np.empty(0, dtype=np.int64)]
    offsets = np.concatenate([*empty, *(np.arange(base + row, base + row + len(times)) for row, _, times in read)])
    times = np.concatenate([*empty, *(times for *_, times in read)])
    begin = np.flatnonzero(np.diff(times, prepend=-1))
    while len(known) >= _MOST_KNOWN:
        del known[next(iter(known))]
    return known.setdefault(index.path(i), (offsets[begin], times[begin]))


def first_since(table: PartitionTable, since_us: int) -> int | None:
    """The first message that was enqueued then (microseconds since 1970) or later; None if there is none."""
    i = int(np.searchsorted(table.index.enqueued_us, since_us, side="left"))
    return first_in(table, i, since_us) if i < len(table.index) else None


def first_in(table: PartitionTable, i: int, since_us: int) -> int:
    """The first message of the i-th file that was enqueued then or later, as its last one was."""
    index = table.index
    if not 0 <= index.since_us[i] < since_us:
        return int(index.base[i])
    offsets, times = times_in(table, i)
    found = int(np.searchsorted(times, since_us, side="left"))
    return int(offsets[found] if found < len(offsets) else index.end[i])  # the last ones may be deleted


def enqueued_us(table: PartitionTable, offset: int) -> int | None:
    """When the first message from this offset on was enqueued, microseconds since 1970; None if there is none."""
    files = table.index.overlapping(offset, table.next_offset)
    if not files:
        return None
    offsets, times = times_in(table, files.start)
    if not len(times):  # all were deleted
        return int(table.index.enqueued_us[files.start])
    return int(times[max(0, int(np.searchsorted(offsets, offset, side="right")) - 1)])


def runs(table: PartitionTable) -> Iterator[tuple[int, int, int]]:
    """The messages that were enqueued at the same time, in order: their offsets ``[first, end)``, and that time."""
    for i in range(len(table.index)):
        offsets, times = times_in(table, i)
        ends = [*offsets.tolist(), int(table.index.end[i])][1:]
        yield from zip(offsets.tolist(), ends, times.tolist(), strict=True)


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
