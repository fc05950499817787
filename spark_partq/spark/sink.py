"""The sink: one Spark job writes the messages' files, then the driver commits each partition's (Q3, Q4, Q5)."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.errors import InvalidArgumentError, QueueNotFoundError, SinkAheadError
from spark_partq.core.names import check_name
from spark_partq.core.schema import check_same_columns
from spark_partq.spark.compat import streaming_query_id
from spark_partq.spark.hashing import partition_column, quoted
from spark_partq.storage.messages import MessageWriter
from spark_partq.storage.partition import BatchRecord, NewFile
from spark_partq.storage.queues import Queue, in_threads, open_queue, queue_state
from spark_partq.storage.rows import now
from spark_partq.storage.store import Store

_PARTITION, _ORDER = "__partq_partition", "__partq_order"
_RESULT = "partition int, path string, rows bigint, size_bytes bigint, stats string, order bigint"

# Up to here the rows are not shuffled: each task writes a file for each partition it has rows of. Beyond, that would
# be too many files, so one task gathers a partition's rows.
_DIRECT_TASKS = 8
_DIRECT_PARTITIONS = 256

_RESULT_ARROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("stats", pa.string()),
        ("order", pa.int64()),
    ]
)
Batches = Iterable[pa.RecordBatch]


class QueueSink:
    """Writes micro-batches into a queue; made by `queue_sink`, for ``writeStream.foreachBatch``."""

    def __init__(self, store: Store, queue: str, order_by: Sequence[str], sink_id: str | None) -> None:
        self._queue: Queue = open_queue(store, queue)
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
        """Write a batch DataFrame; exactly once if the sink has an id and so has the batch."""
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
        self._check_queue()
        record = BatchRecord(*identity[:2], self._queue.state.generation, identity[2]) if identity else None
        check_same_columns(
            self._queue.state.schema, batch.schema.jsonValue(), "the DataFrame", f"queue {self._queue.name!r}"
        )
        if record:
            self._check_not_ahead(record)
        salt = str(record.batch_id) if record else uuid.uuid4().hex
        grace_s = self._queue.state.settings.vacuum_grace_ms / 1000
        done: dict[int, int] = {}
        while True:
            started = time.monotonic()
            files = _write_files(batch, self._queue, self._order_by, salt)
            todo = [part for part in _by_partition(files) if part[0].partition not in done]
            # Files near the age at which maintenance may delete them are written again instead.
            results = self._commit_all(todo, record, started + grace_s / 2 if grace_s else math.inf)
            done.update(r for r in results if r is not None)
            if None not in results:
                return sum(done.values())

    def _commit_all(
        self, parts: list[list[NewFile]], record: BatchRecord | None, deadline: float
    ) -> list[tuple[int, int] | None]:
        return in_threads(self._queue.store, lambda files: self._commit(files, record, deadline), parts)

    def _commit(self, files: list[NewFile], record: BatchRecord | None, deadline: float) -> tuple[int, int] | None:
        """Commit one partition's files; (partition, messages added), or None if the deadline has passed."""
        if time.monotonic() > deadline:
            return None
        table = self._queue.partitions[files[0].partition]
        added = table.append(files, record, now) is not None
        return table.partition, sum(f.rows for f in files) if added else 0

    def _check_queue(self) -> None:
        """Notice that the queue was deleted, or made anew under its name, before anything is written."""
        current = queue_state(self._queue.store, self._queue.name)
        if current.queue_id != self._queue.state.queue_id:
            raise QueueNotFoundError(
                f"queue {current.name!r} was deleted and made anew since this sink was opened; start the query again "
                "with a new checkpoint",
                queue=current.name,
            )
        if current != self._queue.state:
            self._queue = open_queue(self._queue.store, self._queue.name)

    def _check_not_ahead(self, record: BatchRecord) -> None:
        """Refuse a batch that would be skipped although nobody can tell that it was written."""
        self._queue.refresh()
        by = f"partq:by/{record.sink_id}/{record.query_id}"
        for table in self._queue.partitions:
            last = table.recorded(record.app)
            other_query = last == record.batch_id and record.query_id is not None and table.recorded(by) != last
            if last > record.batch_id or other_query:
                raise SinkAheadError(
                    f"sink {record.sink_id!r} has already written batch {last} to queue {self._queue.name!r}, and batch "
                    f"{record.batch_id} of {'another query' if other_query else 'an older position'} came now; it would be "
                    "skipped. Continue with the sink's own checkpoint, or choose another sink_id for a new one",
                    sink_id=record.sink_id,
                    batch_id=record.batch_id,
                    recorded=last,
                    partition=table.partition,
                )


def _write_files(batch: DataFrame, queue: Queue, order_by: Sequence[str], salt: str) -> list[NewFile]:
    """Run the job and return the files of each partition, in the order of their rows."""
    state = queue.state
    columns = [f["name"] for f in state.schema["fields"]]
    # By number: mapInArrow looks columns up by name and takes a dot or a backtick in one for syntax.
    rows = batch.select(
        *(quoted(name).alias(f"_{i}") for i, name in enumerate(columns)),
        partition_column(state, salt).alias(_PARTITION),
        sf.monotonically_increasing_id().alias(_ORDER),
    )
    slots = max(1, batch.sparkSession.sparkContext.defaultParallelism)
    direct = not order_by and slots <= _DIRECT_TASKS and state.operating_partitions <= _DIRECT_PARTITIONS
    if direct:
        rows = rows.coalesce(slots)
    else:
        tasks = min(state.operating_partitions, slots)
        order = [f"_{columns.index(c)}" for c in order_by]
        rows = rows.repartitionById(tasks, _PARTITION).sortWithinPartitions(_PARTITION, *order, _ORDER)
    task = _task(queue.store, state.name, columns, state.key, sorted_input=not direct)
    return sorted((NewFile(**row.asDict()) for row in rows.mapInArrow(task, _RESULT).collect()), key=lambda f: f.order)


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
                partitions.to_numpy().astype(np.int16),  # a stable sort of small integers is a radix sort
                order.to_numpy(),
            )
        if writer:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in writer.finish()], _RESULT_ARROW)

    return write


def _by_partition(files: Iterable[NewFile]) -> list[list[NewFile]]:
    parts: dict[int, list[NewFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return [parts[p] for p in sorted(parts)]
