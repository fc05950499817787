"""What a task does: turn slices of files into rows, for both kinds of reader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_partq.core.payload.schema import MESSAGE_COLUMNS
from spark_partq.storage.queue.messages import Piece, read_slice
from spark_partq.storage.store import Store


class FlowPartition(InputPartition):
    """All that one task reads: the pieces, in order, that a flow is given in a micro-batch."""

    def __init__(self, store: Store, pieces: tuple[Piece, ...], flow: str | None = None) -> None:
        super().__init__(flow)
        self.store, self.pieces, self.flow = store, pieces, flow


def read(partition: FlowPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches of exactly `schema`: the payload, then the message columns."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    payload = pa.schema(list(arrow)[: -len(MESSAGE_COLUMNS["fields"])])
    for piece in partition.pieces:
        part = piece.slice
        for first, batch in read_slice(partition.store, part, payload):
            n = batch.num_rows
            offset = part.base_offset + first
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    pa.repeat(part.queue, n),
                    pa.repeat(pa.scalar(part.partition, pa.int32()), n),
                    pa.array(np.arange(offset, offset + n)),
                    pa.repeat(pa.scalar(part.enqueued_us, arrow.field("_enqueued_at").type), n),
                    pa.repeat(piece.redelivered, n),
                    pa.repeat(pa.scalar(partition.flow, pa.string()), n),
                    pa.repeat(pa.scalar(piece.epoch, pa.int64()), n),
                ],
                schema=arrow,
            )
