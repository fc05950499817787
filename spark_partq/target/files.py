"""Parquet files of a user's Delta table, written by the tasks of a sink."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark_partq.storage.arrow import integers, leaves
from spark_partq.storage.store import Store

# A row group is written when a file has this much buffered; if all files together have more buffered, the largest one
# is written.
_ROW_GROUP_BYTES = 64 << 20
_GATHERED_BYTES = 256 << 20

_PARTITION_TYPES = frozenset(
    ["string", "integer", "long", "short", "byte", "boolean", "date", "timestamp", "timestamp_ntz"]
)

# From 1970: 0001-01-01, and the day after 9999-12-31.
_FIRST_AND_LAST_DAY = -719_162, 2_932_897
_DAY_US = 86_400_000_000

Values = tuple[str | None, ...]


def is_partition_type(type_: Any) -> bool:
    """Whether values of a column can be partition values."""
    return isinstance(type_, str) and (type_ in _PARTITION_TYPES or type_.startswith("decimal("))


@dataclass(frozen=True)
class TableFile:
    """A Parquet file that a task has written and that is not committed yet.

    Attributes
    ----------
    path : str
        Relative to the table.
    values : dict
        The values of the partition columns, as Delta's log writes them.
    stats : str
        Delta's statistics, JSON.
    """

    path: str
    rows: int
    size_bytes: int
    values: Mapping[str, str | None]
    stats: str


class TableWriter:
    """Writes the rows of one task: one file for each combination of the partition columns' values.

    Parameters
    ----------
    schema : pyarrow.Schema
        All columns of the rows.
    partition_by : sequence of str
        The partition columns, which are in Delta's log and not in the files.
    """

    def __init__(self, store: Store, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._store, self.partition_by = store, list(partition_by)
        self.schema = pa.schema([f for f in schema if f.name not in self.partition_by])
        self._open: dict[Values, _File] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        if not self.partition_by:
            self._file(()).write(rows)
            return
        codes, texts = np.zeros(rows.num_rows, np.int64), []
        for name in self.partition_by:
            values, of_rows = _values(rows.column(name)) if name in rows.schema.names else ([None], codes * 0)
            texts.append((values, of_rows))
            codes = codes * len(values) + of_rows
        by_value = np.argsort(codes, kind="stable")
        _, firsts = np.unique(codes[by_value], return_index=True)
        ordered = rows.select(self.schema.names).take(integers(by_value))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(by_value)], strict=True):
            row = by_value[first]
            self._file(tuple(values[of_rows[row]] for values, of_rows in texts)).write(
                ordered.slice(first, last - first)
            )
        if sum(file.gathered_bytes for file in self._open.values()) > _GATHERED_BYTES:
            max(self._open.values(), key=lambda file: file.gathered_bytes).flush()

    def finish(self) -> list[TableFile]:
        """Finish all files, so that they appear."""
        return [file.close(dict(zip(self.partition_by, values, strict=True))) for values, file in self._open.items()]

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()

    def _file(self, values: Values) -> _File:
        if values not in self._open:
            self._open[values] = _File(self._store, self.schema)
        return self._open[values]


class _File:
    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self._schema = schema
        self.path = f"part-{store.runtime.new_uuid()}.zstd.parquet"
        self._out = store.files.open_output(self.path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._out.sink, schema, compression="zstd", compression_level=1, metadata_collector=self._metadata
        )
        self._gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._rows += rows.num_rows
        self.gathered_bytes += rows.nbytes
        if self.gathered_bytes > _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered))
            self._gathered, self.gathered_bytes = [], 0

    def close(self, values: Mapping[str, str | None]) -> TableFile:
        self.flush()
        self._writer.close()
        size = self._out.close()
        return TableFile(self.path, self._rows, size, values, json.dumps(self._stats(), default=str))

    def discard(self) -> None:
        self._out.discard()

    def _stats(self) -> dict[str, Any]:
        """Statistics for readers that skip files: counts of rows and nulls, and exact bounds of integers and dates."""
        stats: dict[str, Any] = {"numRecords": self._rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        groups = [meta.row_group(g) for meta in self._metadata for g in range(meta.num_row_groups)]
        # Columns are found by their places among the leaves, as a field `b` of a struct `a` has the same path as a
        # column `a.b`.
        places = itertools.accumulate((leaves(f.type) for f in self._schema), initial=0)
        for field, place in zip(self._schema, places, strict=False):
            found = [group.column(place).statistics for group in groups]
            if pa.types.is_nested(field.type) or not all(one is not None and one.has_null_count for one in found):
                continue
            stats["nullCount"][field.name] = sum(one.null_count for one in found)
            ends = [one for one in found if one.has_min_max]
            if ends and (pa.types.is_integer(field.type) or pa.types.is_date(field.type)):
                with contextlib.suppress(ValueError, OverflowError):  # Python has no year 10000: no bounds then
                    least, most = min(one.min for one in ends), max(one.max for one in ends)
                    stats["minValues"][field.name], stats["maxValues"][field.name] = least, most
        return stats


def _values(column: pa.Array) -> tuple[list[str | None], NDArray[np.int64]]:
    """The distinct values of a partition column as Delta's log writes them, and for each row the index of its value."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return _texts(encoded.dictionary), np.from_dlpack(encoded.indices).astype(np.int64)


def unnamed(column: pa.Array) -> NDArray[np.bool_]:
    """For each row, whether no folder can be named by its value: Delta's log holds dates and times of the years 1 to 9999, and texts in UTF-8."""
    days = pa.types.is_date(column.type)
    if days or pa.types.is_timestamp(column.type):
        first, last = _FIRST_AND_LAST_DAY if days else [day * _DAY_US for day in _FIRST_AND_LAST_DAY]
        numbers = column.cast(pa.int32() if days else pa.int64())
        return np.array(pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, last)), False))
    none = np.zeros(len(column), np.bool_)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return none
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_text(value) for value in column])
    return none


def _is_text(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _texts(values: pa.Array) -> list[str | None]:
    """The values as texts. An empty text is a null in Delta's log."""
    if pa.types.is_boolean(values.type):
        return [None if v is None else str(v).lower() for v in values.to_pylist()]
    texts = values.cast(pa.string()).to_pylist()
    if pa.types.is_timestamp(values.type) and values.type.tz:
        texts = [v and v.replace(" ", "T") for v in texts]
    return [v or None for v in texts]
