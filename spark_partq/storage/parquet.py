"""What a Parquet file declares that anybody may have written, or damaged.

pyarrow ends the process if it is asked for a column of a row group whose declaration contradicts itself. To read such a column is an error like any
other. So a column is read first, and only one with lists or maps is asked: of any other a batch has a value for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 16


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
    paths = {column.path: at for at, column in enumerate(file.schema) if column.max_repetition_level}
    wanted = {path: at for path, at in paths.items() if any(path == n or path.startswith(f"{n}.") for n in names)}
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
