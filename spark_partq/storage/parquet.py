"""What a Parquet file declares that anybody may have written, or damaged.

pyarrow ends the process if it is asked for a column of a row group whose declaration contradicts itself. To read such a column is an error like any
other. So a column is read first, and only one with lists or maps is asked: of any other a batch has a value for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 16


class Most(NamedTuple):
    """What a file may hold: rows, entries of lists and maps in a column, and bytes when nothing is compressed."""

    rows: int
    entries: int
    size: int


def read_within(
    data: bytes, file: pq.ParquetFile, names: Sequence[str], most: Most, **options: Any
) -> Iterator[pa.RecordBatch]:
    """These columns of an open file, which take no more memory than some times that: a few kilobytes can hold gigabytes.

    A text that many rows share stands in a file once, and counts once in what the file declares; in memory each row has its own. So where that
    could be more than the limit, the texts are read as dictionaries (`pyarrow.DictionaryArray`), which have it once, too, and are measured.

    Parameters
    ----------
    options
        With which the file was opened.

    Raises
    ------
    ValueError, ArrowException, OSError
        If it declares or holds more, or contradicts itself.
    """
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    values, size = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if not 0 <= values <= most.rows or not 0 <= size <= most.size:
        raise ValueError(f"it declares {values:,} rows and {size:,} bytes, more than {most.rows:,} or {most.size:,}")
    wanted = _columns(file, names)
    types = {column.path: column.physical_type for column in wanted.values()}
    if "FIXED_LEN_BYTE_ARRAY" in types.values():  # may be shared by many rows like a text
        raise ValueError("it has a column of another type")
    nested = any(column.max_repetition_level for column in wanted.values())
    if not nested and values * size <= most.size:
        yield from file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False)
        return
    texts = [path for path, type_ in types.items() if type_ == "BYTE_ARRAY"]
    shared = pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=texts, **options)
    if nested:
        repeated = [column for i in range(len(groups)) for column in repeated_columns(shared, i, names)]
        entries = max((column.num_values for column in repeated), default=0)
        if not 0 <= entries <= most.entries:
            raise ValueError(f"it declares {entries:,} entries of a list or map, more than {most.entries:,}")
        if max(values, entries) * size <= most.size:
            yield from file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False)
            return
    left = most.size
    for batch in shared.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
        left -= sum(map(plain_size, batch.columns))
        if left < 0:
            raise ValueError(f"it holds more than {most.size:,} bytes")
        yield batch.cast(pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in batch.schema]))


def plain_size(array: pa.Array) -> int:
    """How many bytes it takes without dictionaries."""
    if pa.types.is_dictionary(array.type):
        import pyarrow.compute as pc  # loading it takes longer than reading most files

        sizes = pc.fill_null(pc.binary_length(array.dictionary), 0).cast(pa.int64())
        return 4 * len(array) + int(pc.sum(sizes.take(array.indices)).as_py() or 0)
    if pa.types.is_struct(array.type):
        return sum(map(plain_size, array.flatten()))
    if pa.types.is_map(array.type):
        return 4 * len(array) + plain_size(array.keys) + plain_size(array.items)
    if pa.types.is_list(array.type):
        return 4 * len(array) + plain_size(array.values)
    return int(array.nbytes)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The same without dictionaries."""
    if pa.types.is_dictionary(type_):
        return type_.value_type
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_plain_type(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain_type(type_.key_type), type_.item_field.with_type(_plain_type(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_plain_type(type_.value_type)))
    return type_


def _columns(file: pq.ParquetFile, names: Collection[str]) -> dict[int, pq.ColumnSchema]:
    """The columns of these names and what is in them, by their places in the file."""
    inner = tuple(f"{name}." for name in names)
    return {at: c for at, c in enumerate(file.schema) if (path := c.path) in names or path.startswith(inner)}


def repeated_columns(file: pq.ParquetFile, group: int, names: Collection[str]) -> list[pq.ColumnChunkMetaData]:
    """The columns of a row group that may have several values in a row.

    Parameters
    ----------
    names : collection of str
        The columns that are to be read; of a struct's parts, like ``add.path``.

    Raises
    ------
    ArrowException, OSError
        If a declaration contradicts itself.
    """
    wanted = {column.path: at for at, column in _columns(file, names).items() if column.max_repetition_level}
    if not wanted:
        return []
    next(file.iter_batches(1, row_groups=[group], columns=list(wanted), use_threads=False), None)
    about = file.metadata.row_group(group)
    return [about.column(at) for at in wanted.values()]


def read_columns(file: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """These columns, in batches: to read a file at once would reserve memory for as many values as it declares.

    Raises
    ------
    ArrowException, OSError, ValueError
    """
    batches = list(file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False))
    return pa.Table.from_batches(batches) if batches else file.read(columns=names, use_threads=False)
