"""The live files of a partition in the order of their offsets, kept as they come and go."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.log import Add, Remove
from spark_partq.storage.log.entries import MOST

Ints = NDArray[np.int64]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BASE, _ROWS, _SIZE, _ENQUEUED, _LEFT, _SINCE = _COLUMNS = range(6)
# The tag of a file that was rewritten without some of its messages: how many offsets it has.
OFFSETS = "partq.offsets"
# The tag of a segment: when its first message was enqueued, microseconds since 1970. Its file has a column with the time of each.
SINCE = "partq.since"
_ONE_TIME = -1  # in place of that, of a file whose messages were enqueued at once


class IrregularFiles(ValueError):
    """The files are none that this protocol commits; the text says why."""


@dataclass(frozen=True)
class FileIndex:
    """The files as of one refresh.

    `base`, `rows`, `size`, `enqueued_us`, `left`, `since_us` have one entry per file; `end[i] == base[i] + rows[i] == base[i + 1]`. The
    names begin in `paths` at `first`. Of the `rows` messages with which a file came, `left` are left: others may have been deleted.
    Those of a segment were enqueued from `since_us` to `enqueued_us`; `since_us` is -1 of any other file.
    """

    paths: Sequence[str]
    first: int
    base: Ints
    rows: Ints
    size: Ints
    enqueued_us: Ints
    left: Ints
    since_us: Ints

    def __len__(self) -> int:
        return len(self.base)

    @property
    def end(self) -> Ints:
        return self.base + self.rows

    @property
    def is_segment(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.since_us != _ONE_TIME
        return found

    def overlapping(self, start: int, end: int) -> range:
        """Positions of the files that hold messages of ``[start, end)``."""
        if end <= start:
            return range(0)
        first = int(np.searchsorted(self.end, start, side="right"))
        return range(first, int(np.searchsorted(self.base, end, side="left")))

    def shares(self, start: int, end: int) -> tuple[Ints, Ints]:
        """Of each file that holds messages of ``[start, end)``: how many offsets of these, and their part of its bytes."""
        files = self.overlapping(start, end)
        part = slice(files.start, files.stop)
        rows = np.minimum(self.end[part], end) - np.maximum(self.base[part], start)
        return rows, self.size[part] * rows // np.maximum(self.rows[part], 1)

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
        self._columns: Ints = np.empty((len(_COLUMNS), 16), dtype=np.int64)
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
        return FileIndex(self._paths, self._first, *self._columns[:, self._first : self._last])

    def _end(self) -> int:
        return int(self._columns[_BASE, self._last - 1] + self._columns[_ROWS, self._last - 1])

    def _append(self, columns: Ints, paths: list[str]) -> None:
        ends = columns[_BASE] + columns[_ROWS]
        dense = np.array_equal(ends[:-1], columns[_BASE, 1:]) and np.all(columns[_ROWS] >= 0)
        if not dense or (self._first < self._last and columns[_BASE, 0] != self._end()):
            raise IrregularFiles("its files do not make up one run of offsets")
        live, more = self._last - self._first, len(paths)
        if self._last + more > self._columns.shape[1]:  # room for as many again, so that this is rare
            room = np.empty((len(_COLUMNS), max(16, 2 * (live + more))), dtype=np.int64)
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
    since = time - _EPOCH
    return (86_400 * since.days + since.seconds) * 1_000_000 + since.microseconds


def enqueued_at(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def offsets_of(add: Add) -> int:
    """How many offsets a file has: as many as messages, unless it was rewritten without some of them.

    Raises
    ------
    IrregularFiles
        If its entry in the log does not say so.
    """
    return _offsets(add, add.rows)


def _offsets(add: Add, left: int | None) -> int:
    told = (add.tags or {}).get(OFFSETS)
    if left is None or (
        told is not None and not (told.isascii() and told.isdecimal() and len(told) < 20 and left <= int(told) <= MOST)
    ):
        raise IrregularFiles(f"a file has {left} messages and {told} offsets ({add.path})")
    return left if told is None else int(told)


def times_of(add: Add) -> tuple[int, int]:
    """When the last message of a file was enqueued, and of a segment the first one, else -1; microseconds since 1970.

    Raises
    ------
    IrregularFiles
        If its entry in the log does not say so.
    """
    at, since = str(add.partition_values.get("_enqueued_at")), (add.tags or {}).get(SINCE)
    try:
        last_us = micros_of(dt.datetime.fromisoformat(at))
    except (ValueError, TypeError):
        raise IrregularFiles(f"a file has the time {at!r} ({add.path})") from None
    if since is None:
        return last_us, _ONE_TIME
    if not (since.isascii() and since.isdecimal() and len(since) < 20 and int(since) <= last_us):
        raise IrregularFiles(f"a segment has messages from {since[:30]!r} to {last_us} ({add.path})")
    return last_us, int(since)


def in_place_of(old: Sequence[Add], file: NewFile, at_ms: int) -> tuple[Add, list[Remove]]:
    """The actions of a commit that puts a file in the place of another one without some of its messages, or a segment in that of several."""
    rows, several = sum(map(offsets_of, old)), len(old) > 1
    last_us, since_us = times_of(old[0])
    tags: dict[str, str | None] = {} if file.rows == rows else {OFFSETS: str(rows)}
    if several or since_us != _ONE_TIME:
        tags[SINCE] = str(last_us if since_us == _ONE_TIME else since_us)
    # Who has one time for all its messages, as a reader without this package, has that of the last
    values = {**old[0].partition_values, "_enqueued_at": old[-1].partition_values["_enqueued_at"]}
    add = Add(file.path, file.size_bytes, values, file.stats, at_ms, not several, tags)
    return add, [Remove(gone.path, at_ms, gone.size, gone.partition_values, not several) for gone in old]


def _numbers(add: Add) -> tuple[int, ...]:
    """The columns of a file."""
    left, told = add.rows, add.partition_values.get("base_offset")
    rows = _offsets(add, left)
    try:
        first = int(told or "")
        if not 0 <= first <= MOST - rows:
            raise ValueError
    except ValueError:
        raise IrregularFiles(f"a file has the offset {told!r} ({add.path})") from None
    last_us, since_us = times_of(add)
    return first, rows, add.size, last_us, left or 0, since_us
