"""Which rows of which files hold a range of offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_partq.storage.queue.file_index import FileIndex

if TYPE_CHECKING:  # no task that reads or writes messages needs it
    from spark_partq.core.queue.state import QueueState


@dataclass(frozen=True)
class Slice:
    """Rows ``[first_row, last_row)`` of one file, which has `rows` by the log.

    Attributes
    ----------
    enqueued_us : int
        When they were enqueued, microseconds since 1970; of a segment the last of its messages.
    may_lack : tuple of str
        Columns that were added to the queue, which are null where the file lacks them.
    deleted : int
        So many messages were deleted from the file: then a row has the number in its column ``_row``. Else they are numbered from 0.
    segment : bool
        A row has its time in the column ``_enqueued_at``.
    queue_id : str
        Tells a queue of this name that was deleted and created again since.
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
    deleted: int = 0
    segment: bool = False
    queue_id: str = ""


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
    for i in index.overlapping(start, end):
        base, rows, left = int(index.base[i]), int(index.rows[i]), int(index.left[i])
        low, high = max(start - base, 0), min(end - base, rows)
        at, segment = int(index.enqueued_us[i]), bool(index.is_segment[i])
        lies = name, partition, index.path(i), low, high, base, at, left, may_lack, rows - left, segment
        found.append(Slice(*lies, queue.queue_id))
    return found


def whole_files(queue: QueueState, partition: int, index: FileIndex, start: int, end: int) -> list[Slice]:
    """All rows of the files that hold offsets of ``[start, end)``."""
    files = index.overlapping(start, end)
    if not files:
        return []
    return slices(queue, partition, index, int(index.base[files.start]), int(index.end[files.stop - 1]))
