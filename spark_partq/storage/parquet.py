"""What a Parquet file declares that anybody may have written, or damaged.

pyarrow ends the process if it is asked for a column of a row group whose declaration contradicts itself. To read such a column is an error like any
other. So a column is read first, and only one with lists or maps is asked: of any other a batch has a value for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 16
_SHARED_BYTES = 64 << 20  # of a batch in which rows share texts
_LONGEST_VALUE = 16  # bytes of a value of a fixed length: those of a decimal


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
    # Many rows may share such a value like a text.
    if any(column.physical_type == "FIXED_LEN_BYTE_ARRAY" for column in wanted.values()):
        raise ValueError("it has a column of another type")
    nested = any(column.max_repetition_level for column in wanted.values())
    if not nested and values * size <= most.size:
        yield from file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False)
        return
    shared = pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=_texts(wanted), **options)
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
        yield _plain(batch)


def read_group(
    source: Any,
    file: pq.ParquetFile,
    group: int,
    names: Sequence[str],
    repeated: Sequence[pq.ColumnChunkMetaData],
    rows: int,
    most: int,
) -> Iterator[pa.RecordBatch]:
    """A row group in batches of at most so many rows, which take no more memory than `most` bytes and what the row group declares.

    Texts that many rows share, which would make a batch larger, are read as `read_within` reads them, and the batch is cut.

    Parameters
    ----------
    source
        What `file` was opened with.
    repeated : sequence
        What `repeated_columns` gives.

    Raises
    ------
    ValueError, ArrowException, OSError
        If the texts of a single row take more.
    """
    wanted, about = _columns(file, names), file.metadata.row_group(group)
    if any(c.physical_type == "FIXED_LEN_BYTE_ARRAY" and c.length > _LONGEST_VALUE for c in wanted.values()):
        raise ValueError("it has a column of another type")
    values = max([min(rows, about.num_rows), *(column.num_values for column in repeated)])
    is_bounded = values * about.total_byte_size <= most
    shared = [] if is_bounded else _shared_texts(source, file, group, wanted, rows)
    how = {"row_groups": [group], "use_threads": False}
    if not shared:
        yield from file.iter_batches(rows, columns=names, **how)
        return
    reader = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=shared, pre_buffer=False)
    for batch in reader.iter_batches(rows, columns=names, **how):
        yield from map(_plain, _parts(batch, most))


def _shared_texts(
    source: Any, file: pq.ParquetFile, group: int, columns: Mapping[int, pq.ColumnSchema], rows: int
) -> list[int]:
    """The columns, by their places in the file, whose texts stand once in a row group and may be so long that a batch would be too large."""
    about, texts, found = file.metadata.row_group(group), _texts(columns), []
    if not texts:
        return []
    reader = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts, pre_buffer=False)
    for at in texts:
        # Arrow reads the whole dictionary with the first value. A dictionary that is empty then is not known.
        # By its place: two columns can have one path, as `a.b` and the field `b` of the struct `a`.
        batches = reader.reader.iter_batches(1, row_groups=[group], column_indices=[at], use_threads=False)
        if (first := next(batches, None)) is not None:
            (dictionary,) = _dictionaries(first.column(0))
            longest = _longest(dictionary)
            # The column may be asked, as it was read.
            many = about.column(at).num_values if columns[at].max_repetition_level else min(rows, about.num_rows)
            if longest is None or longest * many > _SHARED_BYTES:
                found.append(at)
    return found


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """Those in an array, at any depth."""
    if pa.types.is_dictionary(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for part in array.flatten():
            yield from _dictionaries(part)
    elif pa.types.is_map(array.type):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_list(array.type):
        yield from _dictionaries(array.values)


def _longest(array: pa.DictionaryArray) -> int | None:
    """The bytes of the longest text of the dictionary; None if the dictionary is empty."""
    texts = array.dictionary.cast(pa.large_binary())
    ends = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    return int(np.diff(ends).max()) if len(texts) else None


def _parts(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 1:
        # Other values take what the row group declares, which was checked.
        shared = sum(plain_size(texts) for column in batch.columns for texts in _dictionaries(column))
        if shared > most:
            raise ValueError(f"the texts of a row of it take {shared:,} bytes, more than {most:,}")
    if batch.num_rows == 1 or sum(map(plain_size, batch.columns)) <= _SHARED_BYTES:
        yield batch
        return
    numbers = np.arange(batch.num_rows)  # a slice of a list would still have all that the list has
    for half in np.array_split(numbers, 2):
        yield from _parts(batch.take(pa.array(half)), most)


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


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same without dictionaries."""
    return batch.cast(pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in batch.schema]))


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


def _texts(columns: Mapping[int, pq.ColumnSchema]) -> list[int]:
    """The places of the columns whose values have any length."""
    return [at for at, column in columns.items() if column.physical_type == "BYTE_ARRAY"]


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
    wanted = [at for at, column in _columns(file, names).items() if column.max_repetition_level]
    if not wanted:
        return []
    next(file.reader.iter_batches(1, row_groups=[group], column_indices=wanted, use_threads=False), None)
    about = file.metadata.row_group(group)
    return [about.column(at) for at in wanted]


def read_columns(file: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """These columns, in batches: to read a file at once would reserve memory for as many values as it declares.

    Raises
    ------
    ArrowException, OSError, ValueError
    """
    batches = list(file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False))
    return pa.Table.from_batches(batches) if batches else file.read(columns=names, use_threads=False)
