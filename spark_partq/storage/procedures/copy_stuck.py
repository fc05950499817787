"""Messages that are stuck in the parent of a queue that became partitioned are copied into its partitions (S6).

The copy works like a sink, without Spark: each of the parent's files is a batch, and the batch's number is the file's base offset. So a
copy that was interrupted goes on, two copies at once do no harm, and the map may change meanwhile. But the queue may not become exclusive
meanwhile: then its consumers would read the messages in the parent, too. In a queue that was promoted the tables tell which messages are
missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_partq.core.errors import InvalidArgumentError, SinkAheadError
from spark_partq.core.queue import stuck
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import STUCK_SINK
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.inspect.backlog import left_in_parent, stuck_from
from spark_partq.storage.procedures.missing_stuck import may_be_inherited, write_missing
from spark_partq.storage.procedures.partition_map import remove_files, update_groups
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.settled import settled_groups
from spark_partq.storage.queue.handle import Queue, check_usable
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import Slice, slices


def copy_stuck(queue: Queue) -> int:
    """Copy those messages of the parent that some group has not acknowledged, and return how many messages this call added.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive, or a dead-message queue.
    ScalingInProgressError
        If the queue is about to become exclusive.
    QueueFencedError, ReplicaError
    """
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue, opening=True)
    if queue.state.holds_dead_messages and queue.state.copying is None:
        raise InvalidArgumentError(
            f"queue {queue.name!r} holds dead messages, and redrive also puts back those in its parent; copies would be put back a second time. Run "
            f"spark-partq dead-letter redrive",
            queue=queue.name,
        )
    update_groups(queue)  # from here on no group moves its position in the parent
    close_parent(queue)
    started = _start(queue)
    start, copied = started.copying, 0
    if start is not None:
        parent = queue.table(PARENT)
        parent.refresh()
        index, producer = parent.index, Producer(queue)
        # Another process may have ended the copy by then, and the queue may have been exclusive again: messages that came since are not
        # stuck.
        end = min(started.end_of_parent, parent.next_offset)
        for piece in slices(queue.state, PARENT, index, start, end):
            copied += _copy(queue, producer, piece)
        queue.control.decide(lambda state: stuck.finish_copying(state, started, end))
    remove_files(queue)
    return copied


def _start(queue: Queue) -> QueueState:
    """Decide from which offset on to copy; all processes that copy use this decision. `copying` of the returned state is None if nothing is stuck."""

    def facts(state: QueueState) -> Sequence[QueueFact]:
        unread_from = 0
        if state.stuck and state.copying is None:
            queue.table(PARENT).refresh()
            unread_from = stuck_from(queue, settled_groups(queue))
        return stuck.start_copying(state, unread_from)

    return queue.control.decide(facts)


def _copy(queue: Queue, producer: Producer, piece: Slice) -> int:
    producer.refresh()
    # The parent's offsets only grow, so the numbers of the batches do, too.
    record = BatchRecord(STUCK_SINK, piece.base_offset)
    try:
        added = producer.write(record, lambda: _write_files(queue, piece), lambda: 0, heed_ingress=False)
    except SinkAheadError:
        added = 0  # a later file was begun, which happens only once this one is in
    if not added and may_be_inherited(queue.state, piece):
        added = producer.write_missing(record, lambda: write_missing(queue, record))
    return added


def _write_files(queue: Queue, piece: Slice) -> list[NewFile]:
    """Write the rows of a file into files of the partitions where the map in force puts them."""

    # The number of a row is its offset in the parent. It decides where a row without a key goes.
    rows = read_slice(queue.store, replace(piece, may_lack=queue.state.added), arrow_schema(queue.state.schema))
    return write_rows(queue, ((piece.base_offset + first, batch) for first, batch in rows))


def close_parent(queue: Queue) -> bool:
    """If every group has acknowledged all that was left in the parent, record that nothing is stuck any more. Returns whether that was so."""
    measured = queue.state
    if not measured.stuck or measured.copying is not None or left_in_parent(queue, settled_groups(queue)):
        return False
    end = queue.table(PARENT).next_offset
    return not queue.control.decide(lambda state: stuck.close_parent(state, measured, end)).stuck
