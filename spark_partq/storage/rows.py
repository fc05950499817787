"""Tables of few small rows (facts, acknowledgements): one little Parquet file a commit."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from spark_partq.core.errors import CommitFailedError, CorruptTableError
from spark_partq.core.schema import Struct, with_columns
from spark_partq.storage.delta import SHORT_LOG, CasTable, Created, added, removed
from spark_partq.storage.store import Store

Row = dict[str, Any]

_ARROW = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class RowFiles:
    """Writes and reads the little files of one table. They are named so that they sort in the order of their commits."""

    def __init__(self, store: Store, folder: str, what: str, columns: Sequence[tuple[str, str]]) -> None:
        self._store, self._folder, self._what = store, folder, what
        struct: Struct = with_columns({"type": "struct", "fields": []}, *columns)
        self.created = Created(struct)
        self._arrow = pa.schema([(name, _ARROW[type_]) for name, type_ in columns])

    def make_folder(self) -> None:
        self._store.files.create_dir(self._folder, recursive=True)

    def write(self, rows: Sequence[Row], version: int, kind: str = "rows", data_change: bool = True) -> AddAction:
        path = f"{version:020d}-{kind}-{uuid.uuid4().hex}.parquet"
        table = pa.Table.from_pylist(list(rows), self._arrow)
        try:
            with self._store.files.open_output_stream(f"{self._folder}/{path}") as file:
                pq.write_table(table, file)
                size = file.tell()
        except OSError as error:
            raise CommitFailedError(
                f"{self._what} cannot be written ({error}); nothing was changed", path=path
            ) from error
        return added(path, size, len(rows), data_change=data_change)

    def read(self, path: str) -> list[Row]:
        try:
            with self._store.files.open_input_file(f"{self._folder}/{path}") as file:
                rows: list[Row] = pq.ParquetFile(file).read(columns=self._arrow.names).cast(self._arrow).to_pylist()
                return rows
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:  # other columns are a ValueError
            raise CorruptTableError(
                f"file {path} of {self._what} cannot be read ({error}); restore it from a backup", path=path
            ) from error


class RowTable:
    """Rows of fixed columns in a compare-and-set table, with what was read kept in memory.

    Files are never changed, so each is read once.

    Attributes
    ----------
    fresh : list of rows
        What the last look found that the one before did not.
    gone : bool
        Whether the last look missed rows that the one before found.
    """

    def __init__(self, store: Store, folder: str, what: str, columns: Sequence[tuple[str, str]]) -> None:
        self._disk = RowFiles(store, folder, what, columns)
        self._table = CasTable(store, folder, what)
        self._files: dict[str, list[Row]] = {}
        self._version = -1  # of which `_files` are
        self.fresh: list[Row] = []
        self.gone = False

    def exists(self) -> bool:
        return self._table.exists()

    def create(self, rows: Sequence[Row]) -> None:
        """Make the table with these rows; `Conflict` if it is there by now."""
        self._disk.make_folder()
        self._table.create(self._disk.created, [self._disk.write(rows, 0)], SHORT_LOG)

    def refresh(self) -> bool:
        """Look at the table; True if its rows have changed."""
        self._table.refresh()
        version = self._table.version
        if version == self._version:
            return False
        before = self._files
        files = {path: before.get(path) or self._disk.read(path) for path in self._table.paths()}
        self.fresh = [row for path, rows in files.items() if path not in before for row in rows]
        self.gone = any(path not in files for path in before)
        self._files, self._version = files, version
        return True

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that were replaced, or lost a race, more than `grace_ms` ago."""
        self.refresh()
        self._table.vacuum(grace_ms)

    @property
    def files(self) -> list[str]:
        return list(self._files)

    def rows(self) -> list[Row]:
        """All rows as of the last look, in the order in which they were committed."""
        return [row for rows in self._files.values() for row in rows]

    def append(self, rows: Sequence[Row], replace: bool = False) -> None:
        """Commit rows on top of the last look, or `Conflict`. With `replace` they take the place of all others."""
        removes = [removed(path) for path in self._files] if replace else []
        self._table.commit(self._disk.created, [self._disk.write(rows, self._table.version + 1)], removes)

    def recorded(self, app: str, default: int = -1) -> int:
        """What an application transaction of the table says, as of the last look."""
        return self._table.recorded(app, default)

    def record(self, transactions: Mapping[str, int]) -> None:
        """Commit application transactions alone on top of the last look, or `Conflict`."""
        self._table.commit(self._disk.created, transactions=transactions)


def now() -> dt.datetime:
    """The wall clock, for people who read the tables; no decision rests on it."""
    return dt.datetime.now(dt.UTC)
