"""Messages that a group is not given any more go into a dead-message queue: each once, whichever member leaves it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.delivery.positions import lineage
from spark_partq.core.payload.dead_letters import ORIGIN, with_origin
from spark_partq.core.payload.schema import check_same_columns
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.sink_ids import dead_letters_sink
from spark_partq.storage.arrow import arrow_schema, in_schema
from spark_partq.storage.procedures.deliver_range import Source, deliver_range
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class DeadMessages:
    """Messages ``[start, end)`` of a partition, and why they are not delivered any more.

    Attributes
    ----------
    delivery_count : int or None
        How often each message was delivered; None if deliveries were not counted.
    """

    start: int
    end: int
    reason: str
    delivery_count: int | None


class DeadLetters:
    """Sends a group's messages into one dead-message queue. Used by one thread."""

    def __init__(self, store: Store, name: str, group: str) -> None:
        self._group = group
        self._queue = open_queue(store, name)
        self._target = PositionsQueue(self._queue, dead_letters_sink(group))

    def send(self, queue: Queue, table: PartitionTable, epoch: int, messages: DeadMessages, since: int = 0) -> None:
        """Append messages, unless they are in already, whichever process has sent them.

        Parameters
        ----------
        since : int
            As `GroupState.reading_since`: a message that the group is given again may be dead again.

        Raises
        ------
        QueueNotFoundError, SchemaMismatchError, IngressDisabledError, CorruptTableError
            In this case nothing was acknowledged.
        """
        state = queue.state
        columns = with_origin(state.schema)
        self._queue.control.refresh()  # it gets a new column before the queue does
        check_same_columns(
            self._queue.state.schema,
            columns,
            f"a dead message of queue {queue.name!r}",
            f"dead_letter_queue {self._queue.name!r}",
            "Give the queue another dead_letter_queue with alter-queue",
            may_lack=self._queue.state.added,
        )
        deliver_range(
            self._target,
            self._group,
            # Only the present incarnation counts: messages that were put aside under a former one may lie beyond the
            # group's position in the replica.
            Source(
                (state.queue_id, table.partition),
                lineage(state.incarnation, (), table.partition),
                Range(epoch, messages.start, messages.end),
                since,
            ),
            lambda first: self._files(queue, table, messages, first),
        )

    def _files(self, queue: Queue, table: PartitionTable, messages: DeadMessages, first: int) -> list[NewFile]:
        schema, payload = arrow_schema(self._queue.state.schema), arrow_schema(queue.state.schema)
        origin = arrow_schema(ORIGIN)
        dead_at = queue.store.now()

        def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
            for part in slices(queue.state, table.partition, table.index, first, messages.end):
                for row, batch, times_us in read_timed(queue.store, part, payload):
                    offsets = range(part.base_offset + row, part.base_offset + row + batch.num_rows)
                    count = batch.num_rows
                    values = {
                        "origin_queue": [queue.name] * count,
                        "origin_partition": [table.partition] * count,
                        "origin_offset": list(offsets),
                        "origin_enqueued_at": times_us,
                        "origin_group": [self._group] * count,
                        "delivery_count": [messages.delivery_count] * count,
                        "dead_reason": [messages.reason] * count,
                        "dead_at": [dead_at] * count,
                    }
                    added = [pa.array(values[f.name]).cast(f.type) for f in origin]
                    given = pa.RecordBatch.from_arrays([*batch.columns, *added], names=[*payload.names, *origin.names])
                    yield offsets.start, in_schema(given, schema)

        return write_rows(self._queue, rows())
