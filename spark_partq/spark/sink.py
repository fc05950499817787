"""The sink: one Spark job writes the messages' files, then the driver commits each partition's (Q3, Q4, Q5)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import check_same_columns
from spark_partq.core.queue.manifest import NewFile
from spark_partq.spark.compat import streaming_query_id
from spark_partq.spark.hashing import hash_column, partition_column, quoted
from spark_partq.storage.arrow import texts
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.queue.partition_table import BatchRecord
from spark_partq.storage.store import Store

_PARTITION, _ORDER = "__partq_partition", "__partq_order"
_RESULT = "file"  # the job's one column: a file that a task has written, as JSON

# Up to here the rows are not shuffled: each task writes a file for each partition it has rows of. Beyond, that would
# be too many files, so one task gathers a partition's rows.
_DIRECT_TASKS = 8
_DIRECT_PARTITIONS = 256

Batches = Iterable[pa.RecordBatch]


class QueueSink:
    """Writes micro-batches into a queue; made by `queue_sink`, for ``writeStream.foreachBatch``."""

    def __init__(self, store: Store, queue: str, order_by: Sequence[str], sink_id: str | None) -> None:
        self._queue: Queue = open_queue(store, queue)
        self._producer = Producer(self._queue)
        self._order_by = tuple(order_by)
        self._sink_id = None if sink_id is None else check_name("sink", sink_id)
        for column in self._order_by:
            if column not in [f["name"] for f in self._queue.state.schema["fields"]]:
                raise InvalidArgumentError(
                    f"order_by column {column!r} is not a column of queue {queue!r}", column=column, queue=queue
                )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query_id = streaming_query_id(batch.sparkSession)
        sink_id = self._sink_id or query_id
        if sink_id is None:
            raise InvalidArgumentError("outside of a streaming query the sink needs a sink_id; or use partq.append")
        self._write(batch, (sink_id, int(batch_id), query_id))

    def append(self, df: DataFrame, batch_id: int | None) -> int:
        """Write a batch DataFrame; exactly once if the sink and the batch have ids."""
        if self._sink_id is None and batch_id is None:
            return self._write(df, None)
        is_id = isinstance(batch_id, int) and not isinstance(batch_id, bool) and 0 <= batch_id < 2**63
        if self._sink_id is None or batch_id is None or not is_id:
            raise InvalidArgumentError(
                f"sink_id={self._sink_id!r}, batch_id={batch_id!r}: exactly-once needs both, and a batch_id of 0 or more; "
                "without both every call adds the rows",
                batch_id=batch_id,
            )
        return self._write(df, (self._sink_id, batch_id, None))

    def _write(self, batch: DataFrame, identity: tuple[str, int, str | None] | None) -> int:
        """Append the rows and return how many messages were added (0 for a batch that is already in)."""
        record = BatchRecord(*identity) if identity else None
        queue, salt = self._queue, str(identity[1]) if identity else uuid.uuid4().hex

        self._producer.refresh()
        check_same_columns(queue.state.schema, batch.schema.jsonValue(), "the DataFrame", f"queue {queue.name!r}")
        hash_ = hash_column(queue.state, salt)
        return self._producer.write(
            record,
            lambda: _write_files(batch, queue, self._order_by, partition_column(hash_, queue.state.partition_count)),
            batch.count,
        )


def _write_files(batch: DataFrame, queue: Queue, order_by: Sequence[str], partition: Column) -> list[NewFile]:
    """Run the job and return the files of each partition, in the order of their rows."""
    state = queue.state
    columns = [f["name"] for f in state.schema["fields"]]
    # By number: mapInArrow looks columns up by name and takes a dot or a backtick in one for syntax.
    rows = batch.select(
        *(quoted(name).alias(f"_{i}") for i, name in enumerate(columns)),
        partition.alias(_PARTITION),
        sf.monotonically_increasing_id().alias(_ORDER),
    )
    slots = max(1, batch.sparkSession.sparkContext.defaultParallelism)
    partitions = max(1, state.partition_count)
    direct = not order_by and slots <= _DIRECT_TASKS and partitions <= _DIRECT_PARTITIONS
    if direct:
        rows = rows.coalesce(slots)
    else:
        tasks = min(partitions, slots)
        order = [f"_{columns.index(c)}" for c in order_by]
        rows = rows.repartitionById(tasks, _PARTITION if state.partition_count else sf.lit(0)).sortWithinPartitions(
            _PARTITION, *order, _ORDER
        )
    task = _task(queue.store, state.name, columns, state.key, sorted_input=not direct)
    written = [NewFile(**json.loads(row[_RESULT])) for row in rows.mapInArrow(task, f"{_RESULT} string").collect()]
    return sorted(written, key=lambda file: file.order)


def _task(
    store: Store, queue: str, columns: Sequence[str], key: Sequence[str], *, sorted_input: bool
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        writer: MessageWriter | None = None
        for batch in batches:
            *payload, partitions, order = batch.columns
            schema = pa.schema([field.with_name(name) for field, name in zip(batch.schema, columns, strict=False)])
            writer = writer or MessageWriter(store, queue, schema, key, sorted_input)
            writer.write(
                pa.RecordBatch.from_arrays(payload, schema=schema),
                np.from_dlpack(partitions).astype(np.int16),  # a stable sort of small integers is a radix sort
                np.from_dlpack(order).astype(np.int64, copy=False),
            )
        if writer:
            files = texts([json.dumps(asdict(file)) for file in writer.finish()])
            yield pa.RecordBatch.from_arrays([files], [_RESULT])

    return write
