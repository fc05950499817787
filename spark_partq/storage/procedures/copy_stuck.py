"""What is left in the parent of a queue that became partitioned, moved into its partitions (S6).

It is done like a sink does it, without Spark: each of the parent's files is a batch, whose number is the file's base offset. So a
copy that was interrupted goes on, two at once do no harm, and the map may change meanwhile. It may not become that of an exclusive
queue, though: then the parent's messages would be read where they are, too. In a queue that was promoted the tables tell what is missing.
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
    """Copy what some group has not acknowledged of the parent, and return how many messages this call added.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive, or a dead-message queue.
    ScalingInProgressError
        If it is about to become exclusive.
    QueueFencedError, ReplicaError
    """
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue, opening=True)
    if queue.state.holds_dead_messages and queue.state.copying is None:
        raise InvalidArgumentError(
            f"queue {queue.name!r} holds dead messages, which are put back from its parent, too; copies would be put back once more. Run "
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
        # By then the copy may have ended elsewhere, and the queue been exclusive again: what came since is not stuck.
        end = min(started.end_of_parent, parent.next_offset)
        for piece in slices(queue.state, PARENT, index, start, end):
            copied += _copy(queue, producer, piece)
        queue.control.decide(lambda state: stuck.finish_copying(state, start, end))
    remove_files(queue)
    return copied


def _start(queue: Queue) -> QueueState:
    """Decide from which offset on to copy, once for all who do it; `copying` of the state after that is None if nothing is stuck."""

    def facts(state: QueueState) -> Sequence[QueueFact]:
        unread_from = 0
        if state.stuck and state.copying is None:
            queue.table(PARENT).refresh()
            unread_from = stuck_from(queue, settled_groups(queue))
        return stuck.start_copying(state, unread_from)

    return queue.control.decide(facts)


def _copy(queue: Queue, producer: Producer, piece: Slice) -> int:
    producer.refresh()
    # Offsets of the parent only grow, so do the numbers of the batches.
    record = BatchRecord(STUCK_SINK, piece.base_offset)
    try:
        added = producer.write(record, lambda: _write_files(queue, piece), lambda: 0, heed_ingress=False)
    except SinkAheadError:
        added = 0  # a later file was begun, which is only done when this one is in
    if not added and may_be_inherited(queue.state, piece):
        added = producer.write_missing(record, lambda: write_missing(queue, record))
    return added


def _write_files(queue: Queue, piece: Slice) -> list[NewFile]:
    """Write the rows of a file into files of the partitions where the map in force puts them."""

    # The number of a row, by which one without a key goes, is its offset in the parent
    rows = read_slice(queue.store, replace(piece, may_lack=queue.state.added), arrow_schema(queue.state.schema))
    return write_rows(queue, ((piece.base_offset + first, batch) for first, batch in rows))


def close_parent(queue: Queue) -> bool:
    """If every group has acknowledged all that was left in the parent, say that nothing is stuck any more; was that so?"""
    measured = queue.state
    if not measured.stuck or measured.copying is not None or left_in_parent(queue, settled_groups(queue)):
        return False
    end = queue.table(PARENT).next_offset
    return not queue.control.decide(lambda state: stuck.close_parent(state, measured, end)).stuck
