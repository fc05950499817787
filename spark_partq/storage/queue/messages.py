"""Parquet files of messages: written by the sink's tasks, read by the source's.

Memory of both is bounded by a row group, whatever the size of a partition.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.errors import CommitFailedError, CorruptTableError, StoreUnavailableError
from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.arrow import integers, is_like, leaves
from spark_partq.storage.files import FileMissing, Output
from spark_partq.storage.parquet import read_group, repeated_columns
from spark_partq.storage.queue.file_index import Ints, delta_stats
from spark_partq.storage.queue.partition_table import SOURCE_SHIFT
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.store import Store, partition_folder

# A row group is written when a partition has gathered so much, or the largest when all together have gathered more.
ROW_GROUP_BYTES = 16 << 20
_GATHERED_BYTES = 64 << 20
_BATCH_BYTES = 4 << 20
_MAX_BATCH_ROWS = 65_536
# In the file of a segment. The log has one time for a file, and other readers of the table take that.
_TIME = pa.field("_enqueued_at", pa.timestamp("us", "UTC"))
# Of a row group that is read, and so of one that is written: decompressed, and the values of one column, which for a list are many a row.
# Only a row group of a single message can come near them: others are cut long before.
MAX_GROUP_BYTES, MAX_GROUP_VALUES = 1 << 30, 1 << 28


class MessageWriter:
    """Writes the rows of one task: for each partition of the queue a new file, rows in the order given.

    Parameters
    ----------
    schema : pyarrow.Schema
        The payload.
    key : sequence of str
        The key's columns; keys come again and again, so these are dictionary-encoded.
    sorted_input : bool
        Rows come partition by partition, so a file is finished when the next one's rows come.
    """

    def __init__(self, store: Store, queue: str, schema: pa.Schema, key: Sequence[str], sorted_input: bool) -> None:
        self._store, self._queue, self._schema, self._key = store, queue, schema, list(key)
        self._sorted = sorted_input
        self._open: dict[int, MessageFile] = {}
        self._done: list[NewFile] = []
        self._source = -1

    def write(self, batch: pa.RecordBatch, partitions: Ints, order: Ints) -> None:
        """Add rows; row i goes to ``partitions[i]`` and was read at place ``order[i]``.

        The upper bits of `order` are the number of the input partition it was read from. Where a task goes on with another
        one than the next, files are cut, so that the files of all tasks, sorted by their first row, are in reading order.
        """
        with self._all_or_nothing():
            self._write(batch, partitions, order)

    def _write(self, batch: pa.RecordBatch, partitions: Ints, order: Ints) -> None:
        if self._sorted:
            self._split(batch, partitions, order)
            return
        sources = order >> SOURCE_SHIFT
        cuts = np.flatnonzero(np.diff(sources)) + 1
        for first, last in zip([0, *cuts], [*cuts, len(sources)], strict=True):
            if not 0 <= sources[first] - self._source <= 1:
                self._close(list(self._open))
            self._source = int(sources[first])
            self._split(batch.slice(first, last - first), partitions[first:last], order[first:last])

    def finish(self) -> list[NewFile]:
        """Let all files appear; raises `CommitFailedError` as `write` does if they cannot be written."""
        with self._all_or_nothing():
            self._close(list(self._open))
        return self._done

    def discard(self) -> None:
        """Leave no half file behind."""
        for file in self._open.values():
            file.discard()

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What goes wrong leaves no half file behind."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, (OSError, FileMissing, StoreUnavailableError)):
                raise CommitFailedError(
                    f"messages of queue {self._queue!r} cannot be written to {self._store.uri}: {why_unwritten(error)}; nothing was changed. Check "
                    "that the queue is still there, and the space that is left",
                    queue=self._queue,
                ) from error
            raise

    def _split(self, batch: pa.RecordBatch, partitions: Ints, order: Ints) -> None:
        by_partition = np.argsort(partitions, kind="stable")
        numbers, firsts = np.unique(partitions[by_partition], return_index=True)
        rows = batch.take(integers(by_partition)) if len(numbers) > 1 else batch
        if self._sorted:
            self._close([p for p in self._open if p not in numbers])
        for number, first, last in zip(numbers.tolist(), firsts, [*firsts[1:], len(partitions)], strict=True):
            if number not in self._open:
                self._open[number] = MessageFile(
                    self._store, self._queue, number, self._schema, self._key, int(order[by_partition[first]])
                )
            self._open[number].write(rows.slice(first, last - first))
        if sum(file.gathered_bytes for file in self._open.values()) > _GATHERED_BYTES:
            max(self._open.values(), key=lambda file: file.gathered_bytes).flush()

    def _close(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._done.append(self._open[partition].close())
            del self._open[partition]


def why_unwritten(error: Exception) -> str:
    """Why a file of messages could not be written."""
    if isinstance(error, FileMissing):
        return "its folder is gone, or this machine stood still until maintenance deleted the unfinished file"
    return str(error)


class MessageFile:
    """One file being written."""

    def __init__(
        self,
        store: Store,
        queue: str,
        partition: int,
        schema: pa.Schema,
        key: Sequence[str],
        order: int = 0,
        segment: bool = False,
    ) -> None:
        self._queue, self._partition, self._order = queue, partition, order
        self._path = f"part-{store.runtime.new_uuid().hex}.parquet"
        self._schema = schema.append(pa.field("_row", pa.int64()))
        if segment:
            self._schema = self._schema.append(_TIME)
        places = itertools.accumulate((leaves(f.type) for f in schema), initial=0)
        # By their places among the leaves: a field `b` of a struct `a` has the same path as a column `a.b`
        bounded = [pa.types.is_integer(type_) or pa.types.is_date(type_) for type_ in schema.types]
        self._bounded = {n: name for n, name, yes in zip(places, schema.names, bounded, strict=False) if yes}
        self._out = _opened(store, queue, partition, self._path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._out.sink,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(key),
            write_statistics=list(self._bounded.values()),
            metadata_collector=self._metadata,
        )
        self._gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch, numbers: Ints | None = None, times_us: Ints | None = None) -> None:
        """Add rows with these numbers, in a segment with their times; without numbers they are numbered from 0 on."""
        if numbers is None:
            numbers = np.arange(self._rows, self._rows + batch.num_rows)
        self._rows += batch.num_rows
        added = [integers(numbers), *([integers(times_us, _TIME.type)] if times_us is not None else [])]
        self._gathered.append(pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self._schema))
        self.gathered_bytes += self._gathered[-1].nbytes  # of narrow rows most are the numbers
        if self.gathered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            for part in _parts(pa.Table.from_batches(self._gathered)):
                self._writer.write_table(part, row_group_size=part.num_rows)
            self._gathered, self.gathered_bytes = [], 0

    def close(self) -> NewFile:
        self.flush()
        self._writer.close()
        for meta in self._metadata:
            for g in range(meta.num_row_groups):
                self._check_group(meta.row_group(g))
        size = self._out.close()
        stats = delta_stats(self._rows, self._bounds())
        return NewFile(self._partition, self._path, self._rows, size, stats, self._order)

    def discard(self) -> None:
        self._writer.is_open = False  # or it would write its end, when there is no file any more
        self._out.discard()

    def _check_group(self, group: pq.RowGroupMetaData) -> None:
        try:
            check_group(group, [group.column(c) for c in range(group.num_columns)])
        except ValueError as error:
            raise CommitFailedError(
                f"a message of queue {self._queue!r} is too large ({error}); nothing was changed. Keep large values elsewhere, and "
                "put their address into the message",
                queue=self._queue,
            ) from None

    def _bounds(self) -> dict[str, tuple[Any, Any]]:
        groups = [meta.row_group(g) for meta in self._metadata for g in range(meta.num_row_groups)]
        bounds: dict[str, tuple[Any, Any]] = {}
        for place, name in self._bounded.items():
            ends = [s for group in groups if (s := group.column(place).statistics) is not None and s.has_min_max]
            with contextlib.suppress(ValueError, OverflowError):  # Python has no year 10000: no bounds then
                if ends:
                    bounds[name] = min(stats.min for stats in ends), max(stats.max for stats in ends)
        return bounds


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Row groups for these rows. What came in one batch may be much more than one row group is to hold."""
    if table.num_rows < 2 or table.nbytes <= 2 * ROW_GROUP_BYTES:
        yield table
    else:
        half = table.num_rows // 2
        yield from _parts(table.slice(0, half))
        yield from _parts(table.slice(half))


def check_group(group: pq.RowGroupMetaData, columns: Sequence[pq.ColumnChunkMetaData]) -> None:
    """Refuse a row group that would take more memory than the limits: a few kilobytes can hold gigabytes.

    Parameters
    ----------
    columns : sequence
        Those whose own declarations count.

    Raises
    ------
    ValueError
    """
    values = max([group.num_rows, *(column.num_values for column in columns)])
    size = max(
        group.total_byte_size,
        sum(column.total_uncompressed_size for column in columns),
        sum(column.total_compressed_size for column in columns),
    )
    if size > MAX_GROUP_BYTES or values > MAX_GROUP_VALUES:
        raise ValueError(
            f"a row group declares {size:,} bytes and {values:,} values, more than {MAX_GROUP_BYTES:,} or {MAX_GROUP_VALUES:,}"
        )


def _opened(store: Store, queue: str, partition: int, name: str) -> Output:
    try:
        return store.files.open_output(f"{partition_folder(queue, partition)}/{name}")
    except FileMissing as error:
        raise CommitFailedError(
            f"partition {partition} of queue {queue!r} in {store.uri} has no folder (was the queue deleted?); nothing was changed",
            queue=queue,
            partition=partition,
        ) from error


def read_slice(store: Store, piece: Slice, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a slice as (row of the first one, batch of exactly `schema`); where messages were deleted, a batch ends.

    Raises
    ------
    CorruptTableError
        If the file is gone, is no Parquet file, holds other columns or another number of rows, or would take too much memory.
    """
    path = f"{partition_folder(piece.queue, piece.partition)}/{piece.path}"
    try:
        with store.files.open_input(path) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            about = file.metadata
            held = {about.num_rows, sum(about.row_group(g).num_rows for g in range(about.num_row_groups))}
            if held != {piece.rows}:
                raise ValueError(f"it declares {max(held):,} rows, and the log says {piece.rows:,}")
            lacking = _lacking(file.schema_arrow, schema, piece.may_lack) if piece.may_lack else set[str]()
            if piece.deleted:
                yield from _read_sparse(source, file, piece, schema, lacking)
            else:
                yield from _read_groups(source, file, piece.first_row, piece.last_row, schema, lacking)
    except (FileMissing, OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise _corrupt(piece, "it is missing" if isinstance(error, FileMissing) else str(error)) from error


def _corrupt(piece: Slice, reason: str) -> CorruptTableError:
    path = f"{partition_folder(piece.queue, piece.partition)}/{piece.path}"
    return CorruptTableError(
        f"file {path} of queue {piece.queue!r} (offsets {piece.base_offset + piece.first_row} to "
        f"{piece.base_offset + piece.last_row - 1} of partition {piece.partition}) cannot be read: {reason}. "
        "Restore it from a backup; nothing was acknowledged",
        queue=piece.queue,
        partition=piece.partition,
        path=path,
    )


def read_timed(store: Store, piece: Slice, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch, Ints]]:
    """As `read_slice`, and when each row was enqueued, microseconds since 1970."""
    if not piece.segment:
        for row, batch in read_slice(store, piece, schema):
            yield row, batch, np.full(batch.num_rows, piece.enqueued_us)
        return
    for row, batch in read_slice(store, piece, schema.append(_TIME)):
        *columns, times = batch.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select([])
        if times.null_count:
            raise _corrupt(piece, f"{times.null_count} of its messages have no time")
        yield row, rows, times.cast(pa.int64()).to_numpy(zero_copy_only=False)


def rows_left(store: Store, piece: Slice) -> Ints:
    """The numbers of those rows of a slice that were not deleted.

    Raises
    ------
    CorruptTableError
        As `read_slice`.
    """
    runs = read_slice(store, piece, pa.schema([pa.field("_row", pa.int64())]))
    return np.concatenate([np.empty(0, np.int64), *(rows.column(0).to_numpy() for _, rows in runs)])


def _lacking(held: pa.Schema, wanted: pa.Schema, may_lack: Collection[str]) -> set[str]:
    """Those of the columns that were added which a file lacks: also one of another type, whose fact was lost with a primary."""
    types = {name: wanted.field(name).type for name in wanted.names if name in may_lack}
    return {
        name for name, type_ in types.items() if name not in held.names or not is_like(held.field(name).type, type_)
    }


def _read_groups(
    source: Any, file: pq.ParquetFile, first: int, last: int, schema: pa.Schema, lacking: Collection[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    # The rows are counted by a column that every file has if it lacks all that are wanted.
    names = [name for name in schema.names if name not in lacking] or ["_row"]
    row = 0
    for g in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(g)
        end = row + group.num_rows
        if row < last and end > first:
            repeated = repeated_columns(file, g, names)
            check_group(group, repeated)
            wide = group.total_byte_size // max(1, group.num_rows)
            size = max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES // max(1, wide)))
            at = row
            for batch in read_group(source, file, g, names, repeated, size, MAX_GROUP_BYTES):
                low, high = max(first - at, 0), min(last - at, batch.num_rows)
                if low < high:
                    part = batch.slice(low, high - low)
                    columns = [_column(part, f, lacking) for f in schema]
                    yield at + low, pa.RecordBatch.from_arrays(columns, schema=schema)
                at += batch.num_rows
                if at >= last:
                    return
            if at != end:
                raise ValueError(f"its row group {g} holds {at - row:,} rows and declares {group.num_rows:,}")
        row = end


def _read_sparse(
    source: Any, file: pq.ParquetFile, piece: Slice, schema: pa.Schema, lacking: Collection[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The same of a file whose rows say their numbers, which only grow. So that of the n-th is from n to n + those that were deleted."""
    numbered = schema.append(pa.field("_row", pa.int64()))
    before = -1
    first, last = max(0, piece.first_row - piece.deleted), min(piece.rows, piece.last_row)
    for _, batch in _read_groups(source, file, first, last, numbered, lacking):
        numbers = np.asarray(batch.column(len(schema)).fill_null(-1), dtype=np.int64)
        if np.any(np.diff(numbers, prepend=before) <= 0):
            raise ValueError(f"its rows are not in the order of their numbers (around {numbers[0]})")
        before = int(numbers[-1])
        low, high = np.searchsorted(numbers, [piece.first_row, piece.last_row]).tolist()
        cuts = (low + 1 + np.flatnonzero(np.diff(numbers[low:high]) > 1)).tolist()
        for first, last in itertools.pairwise([low, *cuts, high] if low < high else []):
            part = batch.slice(first, last - first)
            yield int(numbers[first]), pa.RecordBatch.from_arrays(part.columns[: len(schema)], schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field, lacking: Collection[str]) -> pa.Array:
    return pa.nulls(rows.num_rows, field.type) if field.name in lacking else _cast(rows.column(field.name), field.type)


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    # Parquet written by Spark reads back in nanoseconds and with other field names; Spark wants its exact types
    return column if column.type == type_ else column.cast(type_)
