"""Queues as a plain DataFrame, with offset and time ranges (Q6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_partq.core.delivery.offsets import EARLIEST, LATEST, parse_offsets, resolve
from spark_partq.core.ids import QueuePartition
from spark_partq.spark.options import Options
from spark_partq.spark.reading import FlowPartition, TaskReader
from spark_partq.spark.worker import in_worker
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Piece, slices
from spark_partq.storage.queue.starting import offset_at_time

# A task reads about this many stored bytes, like spark.sql.files.maxPartitionBytes.
_TASK_BYTES = 128 << 20


class BatchReader(DataSourceReader):
    """Reads the requested ranges, as they are at the moment of planning.

    It takes no filters (`pushFilters`). Spark would use the tasks that are planned for a filter again for every other use of the same
    DataFrame. A use without the filter would then lack rows.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        store = self._options.store
        tasks: list[FlowPartition] = []
        for queue, table, start, end in self._ranges(self._options.consumer.open_queues()):
            pieces: list[Piece] = []
            size = 0
            for part in slices(queue.state, table.partition, table.index, start, end):
                pieces.append(Piece(part))
                at = part.base_offset
                size += int(table.index.shares(at + part.first_row, at + part.last_row)[1].sum())
                if size >= _TASK_BYTES:
                    tasks.append(FlowPartition(store, tuple(pieces)))
                    pieces, size = [], 0
            if pieces:
                tasks.append(FlowPartition(store, tuple(pieces)))
        return tasks or [FlowPartition(store, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader(self._schema).read(partition)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_worker, (TaskReader, self._schema)  # Spark pickles a reader for its tasks alone

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
