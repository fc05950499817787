"""The sink: a Spark job, or the driver, writes the messages' files. Then the driver commits the files of each partition (Q3, Q4, Q5)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame

from spark_partq.core.errors import InvalidArgumentError, SchemaMismatchError
from spark_partq.core.ids import PartitionId
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import MESSAGE_COLUMNS, Struct, check_same_columns, type_name
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.spark.compat import streaming_query_id
from spark_partq.spark.hashing import partition_column
from spark_partq.spark.micro_batch import (
    SOURCE,
    MicroBatch,
    check_traceable,
    micro_batch,
    offsets_digest,
    queue_ends,
    writing_once,
)
from spark_partq.spark.turns import in_turn
from spark_partq.spark.write_job import WrittenRows, count_rows, write_files
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.store import Store

_ADDED = frozenset(field["name"] for field in MESSAGE_COLUMNS["fields"])


class QueueSink:
    """Writes micro-batches into a queue; made by `queue_sink`, for ``writeStream.foreachBatch``.

    Attributes
    ----------
    added : int
        How many messages the last micro-batch has added to the queue: 0 if all of them were in the queue already, or if the queue takes no
        messages. If several queries share the sink, the last micro-batch of any of them.
    """

    def __init__(
        self, store: Store, queue: str, order_by: Sequence[str], sink_id: str | None, exactly_once: bool = False
    ) -> None:
        self._turn = threading.RLock()
        self._queue: Queue = open_queue(store, queue)
        self._producer = Producer(self._queue)
        self._order_by, self._exactly_once = tuple(order_by), exactly_once
        self._by_group: dict[str, PositionsQueue] = {}
        self._last: WrittenRows | None = None
        self.added = 0
        self._sink_id = None if sink_id is None else check_name("sink", sink_id)
        columns = {field["name"]: field["type"] for field in self._queue.state.schema["fields"]}
        of_source = SOURCE if exactly_once else ()
        for column in self._order_by:
            if column not in columns and column not in of_source:
                raise InvalidArgumentError(
                    f"order_by column {column!r} is not a column of queue {queue!r}, which has {', '.join(columns)}",
                    column=column,
                    queue=queue,
                )
            if "map<" in (name := type_name(columns.get(column))):
                raise InvalidArgumentError(
                    f"order_by column {column!r} of queue {queue!r} is {name}, and maps have no order; choose another column",
                    column=column,
                    queue=queue,
                )

    @in_turn
    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.added = 0
        name = self._queue.name
        again = (
            f"this micro-batch has been written to queue {name!r} by a sink of the same name before: those rows are in, and the queue takes these "
            "rows for them. Leave the first call as it is, and give the second sink a sink_id of its own. One call with all rows (union) would "
            "leave out the second call's rows of this micro-batch"
        )
        with writing_once(batch, "queue", self._queue.store.uri, name, self._sink_id or "", otherwise=again):
            self._write_micro_batch(batch, batch_id)

    def _write_micro_batch(self, batch: DataFrame, batch_id: int) -> None:
        if self._exactly_once:
            self.added = self._deliver_once(batch)
            return
        query_id = streaming_query_id(batch.sparkSession)
        sink_id = self._sink_id or query_id
        if sink_id is None:
            raise InvalidArgumentError("outside of a streaming query the sink needs a sink_id; or use partq.append")
        digest = None if query_id is None else offsets_digest(batch)
        self.added = self._write(batch, BatchRecord(sink_id, int(batch_id), query_id, digest))

    @in_turn
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
        return self._write(df, BatchRecord(self._sink_id, batch_id))

    def _write(self, batch: DataFrame, record: BatchRecord | None) -> int:
        """Append the rows and return how many messages were added (0 for a batch that is already in the queue)."""
        queue, salt = self._queue, uuid.uuid4().hex if record is None else str(record.batch_id)

        self._producer.refresh()
        _check_columns(batch.schema.jsonValue(), queue)

        def files() -> Sequence[NewFile]:
            partition = partition_column(queue.state, batch.columns, salt)
            self._last = write_files(batch, queue, self._order_by, partition, last=self._last)
            return self._last.files

        return self._producer.write(record, files, batch.count)

    def _deliver_once(self, batch: DataFrame) -> int:
        """Append the results of messages of other queues: each once, whichever query delivers the messages. Returns how many messages were added."""
        planned = micro_batch(batch)
        target = self._by_group.get(planned.group)
        if target is None:
            target = PositionsQueue(self._queue, positions_sink(planned.group, self._sink_id))
            self._by_group[planned.group] = target
        ends = partial(queue_ends, batch, planned)
        self._last, added = append_once(target, planned, batch, self._order_by, self._sink_id, ends, last=self._last)
        return added


def append_once(
    target: PositionsQueue,
    planned: MicroBatch,
    batch: DataFrame,
    order_by: Sequence[str] = (),
    name: str | None = None,
    next_offsets: Callable[[Collection[PartitionId]], Mapping[PartitionId, int]] | None = None,
    since: Mapping[PartitionId, int] | None = None,
    last: WrittenRows | None = None,
    to_the_end: bool = False,
) -> tuple[WrittenRows | None, int]:
    """Append those rows of a micro-batch that a queue lacks. The columns that the source adds are not written.

    Parameters
    ----------
    planned : MicroBatch
        Which messages the rows may come from.
    name : str, optional
        Tells apart several uses of one sink in a micro-batch (`position_app`).
    next_offsets, since
        As in `deliver_once`.
    last : WrittenRows, optional
        What this returned for the micro-batch before.
    to_the_end : bool
        Positions move to the end of the planned range, also if there are no rows: no other query will read those messages.

    Returns
    -------
    tuple
        What was written last, for the next micro-batch, and how many messages were added.

    Raises
    ------
    InvalidArgumentError, SchemaMismatchError
        Before anything is written.
    """
    queue = target.queue
    check_traceable(batch)
    given: Struct = batch.schema.jsonValue()
    payload: Struct = {**given, "fields": [f for f in given["fields"] if f["name"] not in _ADDED]}
    try:
        _check_columns(payload, queue)
    except SchemaMismatchError:
        queue.control.refresh()  # the queue may have a new column
        _check_columns(payload, queue)
    salt = uuid.uuid4().hex
    found = WrittenRows([], {})

    def write(left: Mapping[PartitionId, int]) -> Written[Prepared]:
        nonlocal found
        wanted, found = planned.wanted(left), WrittenRows([], {})

        def files() -> Sequence[NewFile]:
            nonlocal found, last
            partition = partition_column(queue.state, batch.columns, salt)
            last = found = write_files(batch, queue, order_by, partition, wanted, last)
            return found.files

        def messages() -> int:
            nonlocal found
            found = count_rows(batch, wanted)
            return found.counted

        prepared = target.prepare(files, messages)
        ends = {place: planned.by_id[place].end for place in left} if to_the_end else planned.with_ids(found.ends)
        return Written([prepared], ends)

    target.begin()
    is_new = deliver_once(target, queue.store.runtime, planned.group, name, planned.by_id, write, next_offsets, since)
    return last, sum(file.rows for file in found.files) if is_new else 0


def _check_columns(given: Struct, queue: Queue) -> None:
    """Rows may lack columns that were added to the queue: null is written into these columns."""
    check_same_columns(queue.state.schema, given, "the DataFrame", f"queue {queue.name!r}", may_lack=queue.state.added)
