"""The rows that the partitions lack of a partly copied file of the parent (S6, S7), because the map has changed, or a replica took over.

A pass of the replicator copies each partition as it was at some moment, but not all at the same moment. So a part of a file of the parent may be
in, while its manifest is gone, as the primary went on to the next file. The tables tell what is missing. Each table is the beginning of its
original, and files are copied in their order. So a partition that records a file has its part of that file and of each file before. If the
primary had ended a map, the replica has all that this map placed, as the seals are copied before the next map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import PARENT, target
from spark_partq.core.queue.records import STUCK, BatchRecord
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.inspect.backlog import groups, stuck_from
from spark_partq.storage.procedures.place import key_hashes, write_rows
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import Slice, slices


def may_be_inherited(state: QueueState, piece: Slice) -> bool:
    """Whether the primary may have copied this file of the parent, before a replica took over."""
    return bool(state.former) and piece.base_offset < state.former[0].ends.get(PARENT, 0)


def copied_at_the_primary(queue: Queue) -> tuple[int, int]:
    """In a replica: the first offset of the parent's last file of which a partition has a copy, -1 if no partition has one; and the offset of
    the parent's first message that some group still wants.
    """
    copied = max((table.recorded(STUCK) for table in queue.every_table()), default=-1)
    return copied, stuck_from(queue, groups(queue)) if copied >= 0 else 0


def write_missing(queue: Queue, record: BatchRecord) -> list[NewFile]:
    """Write those rows of a file of the parent that no partition has under any map since the queue became partitioned.

    Nothing is written unless the file is still being copied, by the present state of the queue: another process may have ended the copy. Once
    the queue was exclusive again, the tables say nothing about the copy.
    """
    has = _parts(queue, record)
    piece = _original(queue, record)
    if piece is None or any(all(of_map) for of_map in has.values()):
        return []
    hashes: dict[int, Sequence[int]] = {}

    def missing() -> Iterator[tuple[int, pa.RecordBatch]]:
        state = queue.state
        for first, rows in read_slice(queue.store, replace(piece, may_lack=state.added), arrow_schema(state.schema)):
            number = piece.base_offset + first
            of_rows = key_hashes(state, rows, range(number, number + rows.num_rows))
            is_missing = [not any(of_map[target(h, len(of_map))] for of_map in has.values()) for h in of_rows]
            hashes[number] = [h for h, is_so in zip(of_rows, is_missing, strict=True) if is_so]
            if hashes[number]:
                yield number, rows.filter(pa.array(is_missing, pa.bool_()))

    return write_rows(queue, missing(), lambda number, _: hashes.pop(number))


def _original(queue: Queue, record: BatchRecord) -> Slice | None:
    """The slice that is copied as this batch: a file of the parent, from where the copy has begun. None if it is not being copied any more."""
    index, base, started = queue.table(PARENT).index, record.batch_id, queue.state.copying
    if started is None:
        return None
    ends = [int(index.end[file]) for file in index.overlapping(base, base + 1)]
    return next((piece for end in ends for piece in slices(queue.state, PARENT, index, max(base, started), end)), None)


def _parts(queue: Queue, record: BatchRecord) -> dict[int, list[bool]]:
    """For each map since the queue became partitioned, by partition, whether it has its part of a batch, or a part of a later batch."""
    tables = {table.partition: table for table in queue.every_table()}
    counts = [generation.partition_count for generation in queue.state.generations]
    since = max((g for g, count in enumerate(counts) if count == 0), default=-1) + 1
    return {g: [tables[n].has(record, g) for n in range(counts[g])] for g in range(since, len(counts))}
