"""A task's work for both kinds of reader: turn slices of files into rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_partq.core.errors import CorruptTableError, OffsetOutOfRangeError, StoreUnavailableError
from spark_partq.core.payload.schema import MESSAGE_COLUMNS
from spark_partq.storage.arrow import integers, repeated
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.slices import Piece, Slice
from spark_partq.storage.store import Store


class FlowPartition(InputPartition):
    """The pieces, in order, that one task reads: the pieces of one flow in a micro-batch."""

    def __init__(self, store: Store, pieces: tuple[Piece, ...], flow: str | None = None) -> None:
        super().__init__(flow)
        self.store, self.pieces, self.flow = store, pieces, flow


class TaskReader:
    """The reader that Spark sends to tasks. It has no options, and does not import the modules that plan."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(cast(FlowPartition, partition), self._schema)


def read(partition: FlowPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches of exactly `schema`: the payload, then the message columns."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    payload = pa.schema(list(arrow)[: -len(MESSAGE_COLUMNS["fields"])])
    for piece in partition.pieces:
        part = piece.slice
        for first, batch, times_us in _planned_rows(partition.store, part, payload):
            n = batch.num_rows
            offset = part.base_offset + first
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    repeated(part.queue, pa.string(), n),
                    repeated(part.partition, pa.int32(), n),
                    integers(np.arange(offset, offset + n)),
                    integers(times_us, arrow.field("_enqueued_at").type),
                    repeated(piece.redelivered, pa.bool_(), n),
                    repeated(partition.flow, pa.string(), n),
                    repeated(piece.epoch, pa.int64(), n),
                ],
                schema=arrow,
            )


def _planned_rows(store: Store, part: Slice, payload: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch, Ints]]:
    """The rows of a slice, as `read_timed`. The reader may come so late that maintenance has deleted the file for a good reason.

    Raises
    ------
    CorruptTableError, QueueNotFoundError
    OffsetOutOfRangeError
        If the queue no longer needs the file.
    """
    try:
        yield from read_timed(store, part, payload)
    except CorruptTableError:
        if _is_needed(store, part):
            raise
        raise OffsetOutOfRangeError(
            f"file {part.path} of partition {part.partition} of queue {part.queue!r} was planned to be read, and since then maintenance has removed "
            "its messages, or has put them into another file. Nothing is damaged. Load the DataFrame again, or start the query again",
            queue=part.queue,
            partition=part.partition,
        ) from None


def _is_needed(store: Store, part: Slice) -> bool:
    """Whether the queue still has a file, as far as that can be read. Raises `QueueNotFoundError` if it has been created again."""
    from spark_partq.storage.queue.handle import open_queue  # here, as tasks need none of what plans

    try:
        queue = open_queue(store, part.queue)
        if queue.state.queue_id != part.queue_id:
            raise queue.control.created_again()
        table = queue.table(part.partition)
        table.refresh()
        return part.path in table.index.paths
    except (CorruptTableError, StoreUnavailableError):
        return True
