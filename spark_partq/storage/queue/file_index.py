"""The live files of a partition in the order of their offsets, kept as they come and go."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_partq.storage.log import Add
from spark_partq.storage.log.entries import MOST

Ints = NDArray[np.int64]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BASE, _ROWS, _SIZE, _ENQUEUED, _LEFT = range(5)
# The tag of a file that was rewritten without some of its messages: how many offsets it has.
OFFSETS = "partq.offsets"


class IrregularFiles(ValueError):
    """The files are none that this protocol commits; the text says why."""


@dataclass(frozen=True)
class FileIndex:
    """The files as of one refresh.

    `base`, `rows`, `size`, `enqueued_us`, `left` have one entry per file; `end[i] == base[i] + rows[i] == base[i + 1]`. The names begin
    in `paths` at `first`. Of the `rows` messages with which a file came, `left` are left: others may have been deleted.
    """

    paths: Sequence[str]
    base: Ints
    rows: Ints
    size: Ints
    enqueued_us: Ints
    left: Ints
    first: int = 0

    def __len__(self) -> int:
        return len(self.base)

    @property
    def end(self) -> Ints:
        return self.base + self.rows

    def overlapping(self, start: int, end: int) -> range:
        """Positions of the files that hold messages of ``[start, end)``."""
        if end <= start:
            return range(0)
        first = int(np.searchsorted(self.end, start, side="right"))
        return range(first, int(np.searchsorted(self.base, end, side="left")))

    def path(self, i: int) -> str:
        return self.paths[self.first + i]


class GrowingIndex:
    """Files are appended at the end and taken away at the beginning; what that costs does not depend on how many there are.

    Views that were handed out stay as they are: new files go behind their end, and what is moved is copied.

    Raises
    ------
    IrregularFiles
        From here and from `apply`, if the files do not make up one run of offsets.
    """

    def __init__(self, files: Iterable[Add] = ()) -> None:
        self._paths: list[str] = []
        self._columns: Ints = np.empty((5, 16), dtype=np.int64)
        self._first = self._last = 0
        self.apply(list(files), ())

    def apply(self, added: Sequence[Add], removed: Iterable[str]) -> None:
        """Append the files that were added, then take away the first ones, which were removed."""
        rows = sorted((_numbers(add), add.path) for add in added)
        if len(rows) == 1 and self._first < self._last < self._columns.shape[1]:
            ((numbers, path),) = rows  # what comes most often, many times faster
            if numbers[_BASE] != self._end():
                raise IrregularFiles("its files do not make up one run of offsets")
            self._columns[:, self._last] = numbers
            self._paths.append(path)
            self._last += 1
        elif rows:
            self._append(np.array([numbers for numbers, _ in rows], dtype=np.int64).T, [path for _, path in rows])
        gone = set(removed)
        if gone != set(self._paths[self._first : self._first + len(gone)]):
            raise IrregularFiles("its files do not make up one run of offsets")
        self._first += len(gone)

    def check_end(self, next_offset: int) -> None:
        if self._first < self._last and self._end() != next_offset:
            raise IrregularFiles("its files do not make up one run of offsets")

    def view(self) -> FileIndex:
        base, rows, size, enqueued_us, left = self._columns[:, self._first : self._last]
        return FileIndex(self._paths, base, rows, size, enqueued_us, left, self._first)

    def _end(self) -> int:
        return int(self._columns[_BASE, self._last - 1] + self._columns[_ROWS, self._last - 1])

    def _append(self, columns: Ints, paths: list[str]) -> None:
        ends = columns[_BASE] + columns[_ROWS]
        dense = np.array_equal(ends[:-1], columns[_BASE, 1:]) and np.all(columns[_ROWS] >= 0)
        if not dense or (self._first < self._last and columns[_BASE, 0] != self._end()):
            raise IrregularFiles("its files do not make up one run of offsets")
        live, more = self._last - self._first, len(paths)
        if self._last + more > self._columns.shape[1]:  # room for as many again, so that this is rare
            room = np.empty((5, max(16, 2 * (live + more))), dtype=np.int64)
            room[:, :live] = self._columns[:, self._first : self._last]
            self._columns, self._paths = room, self._paths[self._first : self._last]
            self._first, self._last = 0, live
        self._columns[:, self._last : self._last + more] = columns
        self._paths += paths
        self._last += more


def partition_values(base: int, enqueued_us: int) -> dict[str, str | None]:
    """What a file's entry in the log says of its messages."""
    # ISO 8601 with Z: the form with a space is read in the session's time zone by some readers
    text = enqueued_at(enqueued_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"base_offset": str(base), "_enqueued_at": text}


def delta_stats(rows: int, bounds: dict[str, tuple[Any, Any]]) -> str:
    """Statistics of a data file for Delta's readers: the row count, and bounds of integer and date columns."""
    stats: dict[str, Any] = {"numRecords": rows}
    if bounds:
        stats["minValues"] = {name: low for name, (low, _) in bounds.items()}
        stats["maxValues"] = {name: high for name, (_, high) in bounds.items()}
    return json.dumps(stats, default=str)


def micros_of(time: dt.datetime) -> int:
    """Microseconds since 1970."""
    return (time - _EPOCH) // dt.timedelta(microseconds=1)


def enqueued_at(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def offsets_of(add: Add) -> int:
    """How many offsets a file has: as many as messages, unless it was rewritten without some of them.

    Raises
    ------
    IrregularFiles
        If its entry in the log does not say so.
    """
    left = add.rows
    told = (add.tags or {}).get(OFFSETS)
    if left is None or (told is not None and not (told.isascii() and told.isdecimal() and left <= int(told) <= MOST)):
        raise IrregularFiles(f"a file has {left} messages and {told} offsets ({add.path})")
    return left if told is None else int(told)


def _numbers(add: Add) -> tuple[int, int, int, int, int]:
    """First offset, offsets, bytes and time of a file, and the messages that are left in it."""
    values: Mapping[str, str | None] = add.partition_values
    base, at, left = values.get("base_offset"), values.get("_enqueued_at"), add.rows
    if base is None or at is None or left is None:
        raise IrregularFiles(f"files without offset or row count were committed to it ({add.path})")
    rows = offsets_of(add)
    try:
        enqueued, first = dt.datetime.fromisoformat(at), int(base)
        if not 0 <= first <= MOST - rows:
            raise ValueError
        return first, rows, add.size, micros_of(enqueued), left
    except (ValueError, TypeError):
        raise IrregularFiles(f"a file has the offset {base!r} and the time {at!r} ({add.path})") from None
