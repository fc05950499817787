"""The table of one partition: an ordered log of messages (Q1, Q4, Q5).

Each data file carries two partition values, ``base_offset`` and ``_enqueued_at``, and a column ``_row`` that counts 0, 1, 2…;
the offset of a message is ``base_offset + _row`` for any Delta reader. What must outlive the files, which retention
removes, is kept as application transactions of the log and changes in the same commit:

    partq:next               the next offset
    partq:clock              the last `_enqueued_at`, microseconds
    partq:sink/<id>/<map>    the last batch of a sink that is in, under a generation of the partition map
    partq:sink/<id>          the same, under whatever generation
    partq:by/<id>/<query>    the same, with the query that wrote it
    partq:sealed             the last generation under which the table was sealed
    partq:cut/<map>          the next offset at that moment
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.scaling import may_append
from spark_partq.core.schema import Struct, with_columns
from spark_partq.storage.delta import CasTable, Conflict, Created, added, removed, retrying
from spark_partq.storage.store import Store, partition_folder

Ints = NDArray[np.int64]

# Spark's monotonically_increasing_id: the number of the input partition above, the row's number below
SOURCE_SHIFT = 33

NEXT = "partq:next"
CLOCK = "partq:clock"
SEALED = "partq:sealed"
# Is added to that while the queue's replica has taken over: no map of the queue is this old.
FENCED = 1 << 40
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class NewFile:
    """A Parquet file that a task has written and nobody has committed yet."""

    partition: int
    path: str  # relative to the partition's folder
    rows: int
    size_bytes: int
    stats: str  # Delta's statistics, JSON
    order: int  # place of its first row in the order in which the rows were read


@dataclass(frozen=True)
class BatchRecord:
    """Which batch of which sink a commit belongs to, so that a replay can tell that it is in."""

    sink_id: str
    batch_id: int
    query_id: str | None = None

    @property
    def app(self) -> str:
        """Under whatever generation of the partition map."""
        return f"partq:sink/{self.sink_id}"

    @property
    def by(self) -> str | None:
        return f"partq:by/{self.sink_id}/{self.query_id}" if self.query_id else None

    def under(self, generation: int) -> str:
        return f"{self.app}/{generation}"

    def transactions(self, generation: int) -> dict[str, int]:
        apps = [self.app, self.under(generation), *([self.by] if self.by else [])]
        return dict.fromkeys(apps, self.batch_id)


class Sealed(Exception):
    """The partition map under which rows were placed is not in force any more, or is about to end."""


@dataclass(frozen=True)
class FileIndex:
    """The live files of a partition in the order of their offsets.

    `base`, `rows`, `size`, `enqueued_us` have one entry per file; `end[i] == base[i] + rows[i] == base[i + 1]`.
    """

    paths: pa.ChunkedArray | pa.Array
    base: Ints
    rows: Ints
    size: Ints
    enqueued_us: Ints

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
        return str(self.paths[i].as_py())


class PartitionTable:
    """Reads and appends to one partition. Not safe for use by several threads at once."""

    def __init__(self, store: Store, queue: str, partition: int, payload: Struct) -> None:
        self.queue, self.partition = queue, partition
        self.folder = partition_folder(queue, partition)
        self._cas = CasTable(store, self.folder, f"partition {partition} of queue {queue!r}")
        columns = with_columns(payload, ("_row", "long"), ("base_offset", "long"), ("_enqueued_at", "timestamp"))
        self._created = Created(columns, ("base_offset", "_enqueued_at"))
        self._index: FileIndex | None = None
        self._next_offset = 0

    def create(self) -> None:
        """Make the table unless it is there."""
        if not self._cas.exists():
            with contextlib.suppress(Conflict):
                self._cas.create(self._created)

    def refresh(self) -> bool:
        """Look at the log; True if it has changed."""
        changed = self._cas.refresh()
        if changed or self._index is None:
            self._index = None
            self._next_offset = self.recorded(NEXT, 0)
        return changed

    def may_have_changed(self) -> bool:
        """False only if `refresh` would find nothing; costs one look at the file system at most."""
        return self._cas.may_have_changed()

    @property
    def next_offset(self) -> int:
        """The offset that the next message will get, as of the last look."""
        return self._next_offset

    @property
    def first_offset(self) -> int:
        """The offset of the first message that is still there; `next_offset` if there is none."""
        return int(self.index.base[0]) if len(self.index) else self.next_offset

    @property
    def index(self) -> FileIndex:
        """The live files, checked to be dense.

        Raises
        ------
        CorruptTableError
            If a file was committed by something else than this protocol.
        """
        if self._index is None:
            self._index = self._build_index()
        return self._index

    def recorded(self, app: str, default: int = -1) -> int:
        return self._cas.recorded(app, default)

    def append(
        self,
        files: Sequence[NewFile],
        record: BatchRecord | None,
        now: Callable[[], dt.datetime],
        generation: int = 0,
    ) -> int | None:
        """Commit files as the next messages and return the first one's offset; None if `record` says that they are in.

        A lost race costs another small commit; the files stay as they are.

        Parameters
        ----------
        generation : int
            Of the partition map that placed the rows.

        Raises
        ------
        Sealed
            If another generation of the map is in force, or about to be.
        CommitFailedError
            If the store refuses.
        """

        def attempt() -> int | None:
            self.refresh()
            if record and self.recorded(record.under(generation)) >= record.batch_id:
                return None
            if not may_append(self.recorded(SEALED), generation):
                raise Sealed
            base = start = self.next_offset
            clock_us = max(self.recorded(CLOCK, 0), (now() - _EPOCH) // dt.timedelta(microseconds=1))
            adds = []
            for file in files:
                adds.append(added(file.path, file.size_bytes, file.rows, _partition_values(base, clock_us), file.stats))
                base += file.rows
            self._cas.commit(
                self._created,
                adds,
                transactions={NEXT: base, CLOCK: clock_us, **(record.transactions(generation) if record else {})},
            )
            return start

        return retrying(attempt, self._cas.what)

    def seal(self, generation: int) -> int:
        """Let no more rows in that this generation of the map placed, and return the offset at which they end (S5)."""

        def attempt() -> int:
            self.refresh()
            cut = f"partq:cut/{generation}"
            if self.recorded(SEALED) < generation:
                self._cas.commit(self._created, transactions={SEALED: generation, cut: self.next_offset})
                return self.next_offset
            return self.recorded(cut)

        return retrying(attempt, self._cas.what)

    def remove(self, until: Callable[[FileIndex], int]) -> int:
        """Take the first `until(index)` files out of the log and return how many messages they held."""

        def attempt() -> int:
            self.refresh()
            count = until(self.index)
            if count == 0:
                return 0
            index = self.index
            removes = [
                removed(
                    index.path(i),
                    _partition_values(int(index.base[i]), int(index.enqueued_us[i])),
                    int(index.size[i]),
                )
                for i in range(count)
            ]
            self._cas.commit(self._created, removes=removes)
            return int(index.rows[:count].sum())

        return retrying(attempt, self._cas.what)

    def vacuum(self, grace_ms: int) -> int:
        """Delete files that no log has named for `grace_ms` (whole hours, rounded up); return how many."""
        self.refresh()
        gone = self._cas.vacuum(grace_ms)
        self.refresh()
        return gone

    def checkpoint(self) -> None:
        """Write a checkpoint and drop log files that have outlived their retention."""
        self.refresh()
        self._cas.table.create_checkpoint()
        self._cas.table.cleanup_metadata()

    def _build_index(self) -> FileIndex:
        adds = self._cas.adds()
        if not {"num_records", "partition.base_offset", "partition._enqueued_at"} <= set(adds.column_names):
            raise self._corrupt("its files carry no row counts or base offsets")
        adds = adds.select(
            ["path", "size_bytes", "num_records", "partition.base_offset", "partition._enqueued_at"]
        ).sort_by("partition.base_offset")
        if any(adds.column(c).null_count for c in adds.column_names):
            foreign = adds.filter(pc.is_null(adds.column(3))).column("path").to_pylist()[:3]
            raise self._corrupt(f"files without offset or row count were committed to it ({foreign})")
        base, rows = _ints(adds, 3), _ints(adds, 2)
        ends = base + rows
        if len(base) and (np.any(ends[:-1] != base[1:]) or int(ends[-1]) != self._next_offset):
            raise self._corrupt("its files do not make up one run of offsets")
        enqueued = adds.column(4).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        return FileIndex(
            adds.column(0).combine_chunks(), base, rows, _ints(adds, 1), enqueued.to_numpy().astype(np.int64)
        )

    def _corrupt(self, why: str) -> CorruptTableError:
        return CorruptTableError(
            f"partition {self.partition} of queue {self.queue!r} is damaged: {why}. Only this package may write to "
            f"{self._cas.uri}; undo the foreign commit",
            queue=self.queue,
            partition=self.partition,
        )


def enqueued_at(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def _ints(table: pa.Table, column: int) -> Ints:
    return np.asarray(table.column(column).to_numpy(), dtype=np.int64)


def _partition_values(base: int, clock_us: int) -> dict[str, str]:
    # ISO 8601 with Z: the form with a space is read in the session's time zone by some readers
    text = enqueued_at(clock_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"base_offset": str(base), "_enqueued_at": text}


def delta_stats(rows: int, bounds: dict[str, tuple[Any, Any]]) -> str:
    """Statistics of a data file for Delta's readers: the row count, and bounds of integer and date columns."""
    stats: dict[str, Any] = {"numRecords": rows}
    if bounds:
        stats["minValues"] = {name: low for name, (low, _) in bounds.items()}
        stats["maxValues"] = {name: high for name, (_, high) in bounds.items()}
    return json.dumps(stats, default=str)
