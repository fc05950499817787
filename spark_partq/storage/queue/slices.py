"""Which rows of which files hold a range of offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_partq.storage.queue.file_index import FileIndex, Ints

if TYPE_CHECKING:  # no task that reads or writes messages needs it
    from spark_partq.core.queue.state import QueueState


@dataclass(frozen=True)
class Slice:
    """Rows ``[first_row, last_row)`` of one file, which has `rows` by the log.

    Attributes
    ----------
    enqueued_us : int
        When they were enqueued, microseconds since 1970; of a segment the first of them.
    sparse : bool
        Messages were deleted from the file: a row has the number in its column ``_row``. Else they are numbered from 0.
    may_lack : tuple of str
        Columns that were added to the queue, which are null where the file lacks them.
    parts : tuple
        Of a segment, for each file from that of the first row on: the row at which it ends, and when it was enqueued.
    """

    queue: str
    partition: int
    path: str
    first_row: int
    last_row: int
    base_offset: int
    enqueued_us: int
    rows: int
    may_lack: tuple[str, ...] = ()
    sparse: bool = False
    parts: tuple[tuple[int, int], ...] = ()

    def enqueued(self, row: int, count: int) -> Ints:
        """When each of the rows from this one on was enqueued, microseconds since 1970."""
        if not self.parts:
            return np.full(count, self.enqueued_us)
        ends, times = np.array(self.parts, dtype=np.int64).T
        found: Ints = times[np.searchsorted(ends, np.arange(row, row + count), side="right")]
        return found


@dataclass(frozen=True)
class Piece:
    """A slice of a file and what its rows say of their delivery."""

    slice: Slice
    epoch: int | None = None
    redelivered: bool = False


def slices(queue: QueueState, partition: int, index: FileIndex, start: int, end: int) -> list[Slice]:
    """The rows of offsets ``[start, end)``, file by file."""
    name, may_lack = queue.name, queue.added
    found = []
    files = index.overlapping(start, end)
    for i in _first_of_each(index, files):
        base, rows, left = int(index.stored_base[i]), int(index.stored_rows[i]), int(index.stored_left[i])
        low, high = max(start - base, 0), min(end - base, rows)
        at, sparse = int(index.enqueued_us[i]), left < rows
        parts = _parts(index, i, files.stop) if rows > index.rows[i] else ()
        found.append(Slice(name, partition, index.path(i), low, high, base, at, left, may_lack, sparse, parts))
    return found


def whole_files(queue: QueueState, partition: int, index: FileIndex, start: int, end: int) -> list[Slice]:
    """All rows of the files that hold offsets of ``[start, end)``."""
    files = index.overlapping(start, end)
    if not files:
        return []
    first, last = int(index.stored_base[files.start]), files.stop - 1
    return slices(queue, partition, index, first, int(index.stored_base[last] + index.stored_rows[last]))


def _first_of_each(index: FileIndex, files: range) -> list[int]:
    """The positions at which another file of the folder begins."""
    if len(files) < 2:
        return list(files)
    bases = index.stored_base[files.start : files.stop]
    return [files.start, *(files.start + 1 + np.flatnonzero(np.diff(bases))).tolist()]


def _parts(index: FileIndex, first: int, stop: int) -> tuple[tuple[int, int], ...]:
    base = index.stored_base[first]
    last = min(stop, int(np.searchsorted(index.stored_base, base, side="right")))
    ends = index.end[first:last] - base
    return tuple(zip(ends.tolist(), index.enqueued_us[first:last].tolist(), strict=True))
