"""What is left in the parent of a queue that became partitioned, moved into its partitions (S6).

It is done like a sink does it, without Spark: each of the parent's files is a batch, whose number is the file's base offset. So a
copy that was interrupted goes on, two at once do no harm, and the map may change meanwhile. It may not become that of an exclusive
queue, though: then the parent's messages would be read where they are, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import InvalidArgumentError, ScalingInProgressError, SinkAheadError
from spark_partq.core.payload.keys import key_hash
from spark_partq.core.queue.partition_map import PARENT, is_in, target
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.inspect.backlog import groups, stuck_from, stuck_messages
from spark_partq.storage.procedures.partition_map import remove_files, tell_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.produce import Producer, Written
from spark_partq.storage.queue.handle import Queue, check_usable
from spark_partq.storage.queue.messages import MessageWriter, Slice, read_slice
from spark_partq.storage.queue.partition_table import BatchRecord, NewFile

SINK = "_stuck"  # a name that no sink of a user can have. Offsets of the parent only grow, so do the numbers of its batches


def copy_stuck(queue: Queue) -> int:
    """Copy what some group has not acknowledged of the parent, and return how many messages this call added.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive.
    ScalingInProgressError
        If it is about to become exclusive.
    QueueFencedError, ReplicaError
    """
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue, opening=True)
    tell_groups(queue)  # from here on no group moves its position in the parent
    close_parent(queue)
    start = _start(queue)
    copied = 0
    if start is not None:
        parent = queue.table(PARENT)
        parent.refresh()
        index, end, producer = parent.index, parent.next_offset, Producer(queue)
        for i in index.overlapping(start, end):
            base, rows = int(index.base[i]), int(index.rows[i])
            piece = Slice(
                queue.name, PARENT, index.path(i), max(0, start - base), rows, base, int(index.enqueued_us[i])
            )
            producer.look()
            try:
                copied += producer.write(
                    BatchRecord(SINK, base),
                    lambda written, piece=piece: _write_files(queue, piece, written),  # type: ignore[misc]
                    lambda _: 0,
                    heed_ingress=False,
                )
            except SinkAheadError:
                continue  # a later file was begun, which is only done when this one is in
        ended = [QueueFact("StuckCopied", {"end": end})]
        queue.control.decide(lambda state: ended if state.stuck and state.copying == start else [])
    remove_files(queue)
    return copied


def _start(queue: Queue) -> int | None:
    """Decide from which offset on to copy, once for all who do it; None if nothing is stuck."""

    def facts(state: QueueState) -> Sequence[QueueFact]:
        if state.first == PARENT:
            raise InvalidArgumentError(
                f"queue {queue.name!r} is exclusive: its consumers read what is in the parent, and nothing is stuck",
                queue=queue.name,
            )
        if not state.stuck or state.copying is not None:
            return []
        if state.scaling is not None and state.scaling.partitions == 0:
            raise ScalingInProgressError(
                f"queue {queue.name!r} is about to become exclusive; then its consumers read what is in the parent",
                queue=queue.name,
            )
        queue.table(PARENT).refresh()
        start = max(stuck_from(queue, groups(queue)), state.gone.get(PARENT, 0))
        return [QueueFact("StuckCopyStarted", {"start": start})]

    return queue.control.decide(facts).copying


def _write_files(queue: Queue, piece: Slice, written: Written) -> list[NewFile]:
    """Write those rows of a file that are not in, into files of the partitions where the map in force puts them."""
    state = queue.state
    schema = arrow_schema(state.schema)
    writer = MessageWriter(queue.store, queue.name, schema, state.key, sorted_input=False)
    for first, batch in read_slice(queue.store, piece, schema):
        hashes = list(_hashes(state, batch, piece.base_offset + first))
        rows = [i for i, hash_ in enumerate(hashes) if not is_in(hash_, state.generations, written)]
        if rows:
            places = np.array([target(hashes[i], state.partitions) for i in rows])
            writer.write(batch.take(pa.array(rows)), places, np.array(rows) + first)
    return sorted(writer.finish(), key=lambda file: file.order)


def _hashes(state: QueueState, batch: pa.RecordBatch, offset: int) -> Iterable[int]:
    """Of a row with a key what every sink makes of it; of one without, its offset in the parent."""
    if not state.key:
        return range(offset, offset + batch.num_rows)
    columns, types = zip(*map(_plain, map(batch.column, state.key), state.key_types), strict=True)
    keys = zip(*(column.to_pylist() for column in columns), strict=True)
    return (offset + i if all(value is None for value in key) else key_hash(key, types) for i, key in enumerate(keys))


def _plain(column: pa.Array, type_: Any) -> tuple[pa.Array, Any]:
    """Times as the integers that are hashed of them: Python has no year 10000."""
    if type_ in ("timestamp", "timestamp_ntz"):
        return column.cast(pa.int64()), "long"
    if type_ == "date":
        return column.cast(pa.int32()), "integer"
    return column, type_


def close_parent(queue: Queue) -> bool:
    """If every group has acknowledged all that was left in the parent, say that nothing is stuck any more; was that so?"""
    if not queue.state.stuck or queue.state.copying is not None or stuck_messages(queue, groups(queue)):
        return False
    copied = [QueueFact("StuckCopied", {"end": queue.table(PARENT).next_offset})]
    queue.control.decide(lambda now: copied if now.stuck and now.copying is None else [])
    return True
