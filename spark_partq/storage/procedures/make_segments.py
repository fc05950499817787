"""Small files of messages that stay are merged into segments, so that the cost of a queue does not grow with its age.

Readers read to its end what they have begun, as the former files stay for `vacuum_grace_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_partq.core import format
from spark_partq.core.queue.segments import allow_segments, due
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.queue.file_age import FileAge, FilesTooOld
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import Fenced, PartitionTable
from spark_partq.storage.queue.rewriting import Rows, rewrite
from spark_partq.storage.queue.slices import Slice, slices

# Per partition, so that a pass ends in reasonable time also in a queue that was never maintained.
_MOST_BYTES_A_PASS = 1 << 30


def make_segments(queue: Queue, tables: Sequence[PartitionTable], now_ms: int) -> int:
    """Merge small files of the partitions, as `segment_ms` says. Returns by how many the number of files went down.

    Nothing is done in a partition that is sealed, or to which producers do not write: there each file may be a batch of a copy.

    Parameters
    ----------
    tables : sequence of PartitionTable
        As of their last refresh.
    now_ms : int
        By the store's clock.

    Raises
    ------
    CommitFailedError, CorruptTableError
        If a file cannot be read, or cannot be written again. Segments that were made before are complete.
    """
    generation = queue.state.generation  # by which `_due` tells which partitions producers write to
    found = {table: runs for table in tables if (runs := _due(queue, table, now_ms))}
    if not found:
        return 0
    began_s = queue.store.runtime.monotonic_s()
    queue.control.refresh()  # the state has every column that a file has
    queue.control.decide(allow_segments)
    if format.SEGMENTS not in queue.state.format.features:
        return 0
    age = FileAge(began_s, queue.state.settings.vacuum_grace_ms)
    return sum(queue.store.map(lambda of: _make(queue, generation, age, *of), list(found.items())))


def _due(queue: Queue, table: PartitionTable, now_ms: int) -> list[tuple[int, int]]:
    """The offsets, from and to, of each segment that is to be made."""
    state, period_ms = queue.state, queue.state.settings.segment_ms
    if period_ms is None or table.partition not in state.partition_numbers or table.sealed >= state.generation:
        return []
    index, filled = table.index, 0
    found: list[tuple[int, int]] = []
    for files in due(
        index.base, index.size, index.enqueued_us, ~index.is_segment, table.cuts, period_ms * 1000, now_ms * 1000
    ):
        filled += int(index.size[files.start : files.stop].sum())
        if found and filled > _MOST_BYTES_A_PASS:
            break
        found.append((int(index.base[files.start]), int(index.end[files.stop - 1])))
    return found


def _make(queue: Queue, generation: int, age: FileAge, table: PartitionTable, runs: Sequence[tuple[int, int]]) -> int:
    index, made = table.index, 0
    for start, end in runs:
        files = slices(queue.state, table.partition, index, start, end)
        try:
            if not rewrite(queue, table, files, _rows(queue, files), age, generation):
                break  # the next pass tries again
        except (Fenced, FilesTooOld):
            break
        made += len(files) - 1
    return made


def _rows(queue: Queue, files: Sequence[Slice]) -> Rows:
    schema = arrow_schema(queue.state.schema)
    for part in files:
        for row, batch, times_us in read_timed(queue.store, part, schema):
            first = part.base_offset + row
            yield np.arange(first, first + batch.num_rows), batch, times_us
