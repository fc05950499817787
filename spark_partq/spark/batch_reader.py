"""Queues as a plain DataFrame, with offset and time ranges (Q6)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from spark_partq.core.delivery.offsets import EARLIEST, LATEST, parse_offsets, resolve
from spark_partq.core.ids import QueuePartition
from spark_partq.spark.options import Options
from spark_partq.spark.reading import FlowPartition, TaskReader
from spark_partq.storage.queue.file_index import FileIndex, enqueued_at
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.messages import Piece, Slice, slices
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.starting import offset_at_time

# A task reads about so many stored bytes, like spark.sql.files.maxPartitionBytes.
_TASK_BYTES = 128 << 20


class BatchReader(DataSourceReader):
    """Reads the requested ranges, as they are at the moment of planning."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._pruning: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        store = self._options.store
        tasks: list[FlowPartition] = []
        for queue, table, start, end in self._ranges(
            [open_queue(store, name) for name in self._options.consumer.subscribed_queues()]
        ):
            if self._excluded("_queue", queue.name, queue.name) or self._excluded(
                "_partition", table.partition, table.partition
            ):
                continue
            pieces: list[Piece] = []
            size = 0
            for part in self._pruned(slices(queue.name, table.partition, table.index, start, end)):
                pieces.append(Piece(part))
                size += self._bytes(table.index, part)
                if size >= _TASK_BYTES:
                    tasks.append(FlowPartition(store, tuple(pieces)))
                    pieces, size = [], 0
            if pieces:
                tasks.append(FlowPartition(store, tuple(pieces)))
        return tasks or [FlowPartition(store, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader(self._schema).read(partition)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[StructType]]:
        return TaskReader, (self._schema,)  # Spark pickles a reader for its tasks alone

    def _ranges(self, queues: list[Queue]) -> Iterator[tuple[Queue, PartitionTable, int, int]]:
        o = self._options
        numbers = {q.name: q.state.partition_numbers for q in queues}
        starting = parse_offsets("startingOffsets", o.startingOffsets, numbers)
        ending = parse_offsets("endingOffsets", o.endingOffsets, numbers)
        for queue in queues:
            queue.refresh()
            for table in queue.partitions:
                partition = (queue.name, table.partition)
                first, end = table.first_offset, table.next_offset

                def offset(
                    option: str,
                    requested: int | dict[str, dict[int, int]],
                    default: int,
                    partition: QueuePartition = partition,
                    bounds: tuple[int, int] = (first, end),
                ) -> int:
                    value = (
                        requested
                        if isinstance(requested, int)
                        else requested.get(partition[0], {}).get(partition[1], default)
                    )
                    return resolve(option, value, *bounds, *partition, fail_on_data_loss=o.failOnDataLoss)

                low, high = offset("startingOffsets", starting, EARLIEST), offset("endingOffsets", ending, LATEST)
                if o.startingTimestamp is not None:
                    low = offset_at_time(table, o.startingTimestamp, o.startingOffsetsByTimestampStrategy)
                if o.endingTimestamp is not None:
                    high = offset_at_time(table, o.endingTimestamp, "latest")
                yield queue, table, low, high

    def _pruned(self, parts: Iterable[Slice]) -> Iterator[Slice]:
        for part in parts:
            offsets = (part.base_offset + part.first_row, part.base_offset + part.last_row - 1)
            time = enqueued_at(part.enqueued_us)
            if not self._excluded("_offset", *offsets) and not self._excluded("_enqueued_at", time, time):
                yield part

    def _excluded(self, column: str, low: object, high: object) -> bool:
        """Whether no value between `low` and `high` can pass the filters on this column."""
        return any(f.attribute == (column,) and not _may_pass(f, low, high) for f in self._pruning)  # type: ignore[attr-defined]

    @staticmethod
    def _bytes(index: FileIndex, part: Slice) -> int:
        i = int(np.searchsorted(index.base, part.base_offset))
        return int(index.size[i]) * (part.last_row - part.first_row) // max(1, int(index.rows[i]))


class PushdownBatchReader(BatchReader):
    """A `BatchReader` that leaves out files by the filters on `_queue`, `_partition`, `_offset` and `_enqueued_at`.

    Spark still applies every filter to the rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        kinds = (EqualTo, EqualNullSafe, In, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
        self._pruning = [f for f in filters if isinstance(f, kinds)]
        return filters


def _may_pass(f: Filter, low: object, high: object) -> bool:
    def value(v: object) -> object:
        # Spark gives instants in the session's time zone without naming it; such a value prunes nothing
        return None if isinstance(v, dt.datetime) and v.tzinfo is None else v

    if isinstance(f, In):
        return any(value(v) is None or low <= v <= high for v in f.value)
    v = value(f.value)  # type: ignore[attr-defined]
    if v is None:
        return True
    if isinstance(f, (EqualTo, EqualNullSafe)):
        return bool(low <= v <= high)  # type: ignore[operator]
    if isinstance(f, LessThan):
        return bool(low < v)  # type: ignore[operator]
    if isinstance(f, LessThanOrEqual):
        return bool(low <= v)  # type: ignore[operator]
    if isinstance(f, GreaterThan):
        return bool(high > v)  # type: ignore[operator]
    return bool(high >= v)  # type: ignore[operator]
