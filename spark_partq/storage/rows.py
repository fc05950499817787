"""Tables of few small rows (facts, acknowledgements): one little Parquet file a commit."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core import format, stored
from spark_partq.core.errors import CommitFailedError, CorruptTableError, StoreUnavailableError
from spark_partq.core.payload.schema import Struct, with_columns
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.files import FileMissing, FileTooLarge
from spark_partq.storage.log import SHORT_LOG, Add, Conflict, DeltaLog, Expired, Remove, TableSpec, nothing_expires
from spark_partq.storage.log.checkpoints import check_declared
from spark_partq.storage.parquet import read_columns
from spark_partq.storage.store import Store

# Of one little file: more than any merge makes.
MAX_ROWS, MAX_BYTES = 5_000_000, 512 << 20
_FEW = 100

_TIME, _EPOCH = pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

FORMAT_RAISED = "FormatRaised"  # of all tables of facts

T = TypeVar("T")
Row = dict[str, Any]
Columns = Sequence[tuple[str, str]]


class RowFiles:
    """Writes and reads the little files of one table. They are named so that they sort in the order of their commits."""

    def __init__(self, store: Store, folder: str, what: str, columns: Columns) -> None:
        self._store, self._folder, self._what = store, folder, what
        self.spec, self.arrow = _made_as(tuple(columns))

    def write(
        self, rows: Sequence[Row], version: int, kind: str = "rows", data_change: bool = True
    ) -> tuple[Add, list[Row]]:
        """A file of these rows for the commit of that version, and the rows as they will be read."""
        path = f"{version:020d}-{kind}-{self._store.runtime.new_uuid().hex}.parquet"
        data, written = encode_rows(rows, self.arrow)
        try:
            if version == 0:
                self._store.files.make_folder(self._folder)
            self._store.files.put(f"{self._folder}/{path}", data)
        except (StoreUnavailableError, FileMissing) as error:
            raise CommitFailedError(
                f"{self._what} cannot be written ({error}); nothing was changed", path=path
            ) from error
        stats = f'{{"numRecords":{len(rows)}}}'
        return Add(path, len(data), {}, stats, self._store.now_ms(), data_change), written

    def read(self, path: str) -> list[Row]:
        return self._read(path, decode_rows)

    def read_table(self, path: str) -> pa.Table:
        """The same as a table of Arrow, which takes a tenth of the memory."""
        return self._read(path, decode_table)

    def _read(self, path: str, decode: Callable[[bytes, pa.Schema], T]) -> T:
        try:
            return decode(self._store.files.read(f"{self._folder}/{path}", MAX_BYTES), self.arrow)
        except FileMissing:
            raise CorruptTableError(
                f"file {path} of {self._what} is missing; restore it from a backup", path=path
            ) from None
        except (
            FileTooLarge,
            OSError,
            ValueError,
            KeyError,
            pa.ArrowException,
        ) as error:  # other columns are a ValueError
            raise CorruptTableError(
                f"file {path} of {self._what} cannot be read ({error}); restore it from a backup", path=path
            ) from error


@cache
def _made_as(columns: Columns) -> tuple[TableSpec, pa.Schema]:
    struct: Struct = with_columns({"type": "struct", "fields": []}, *columns)
    return TableSpec(struct, configuration=SHORT_LOG), arrow_schema(struct)


def encode_rows(rows: Sequence[Row], schema: pa.Schema) -> tuple[bytes, list[Row]]:
    """A little file of these rows, and the rows as `decode_rows` would give them."""
    table = pa.Table.from_pylist(list(rows), schema)
    sink = pa.BufferOutputStream()
    # A dictionary of few values takes longer than they do, and nobody looks for a fact by the statistics of a file.
    pq.write_table(table, sink, use_dictionary=len(rows) > _FEW, write_statistics=False)
    return sink.getvalue().to_pybytes(), _rows_of(table)


def decode_rows(data: bytes, schema: pa.Schema) -> list[Row]:
    """The rows of a little file; nobody may change them."""
    return _rows_of(decode_table(data, schema))


def _rows_of(table: pa.Table) -> list[Row]:
    """As `to_pylist`, which loads pandas for the sake of times; that takes longer than most tables."""
    columns = [_times(column) if column.type == _TIME else column.to_pylist() for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _times(column: pa.ChunkedArray) -> list[dt.datetime | None]:
    numbers = [number for chunk in column.chunks for number in chunk.view(pa.int64()).to_pylist()]
    return [None if number is None else _EPOCH + dt.timedelta(microseconds=number) for number in numbers]


def decode_table(data: bytes, schema: pa.Schema) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(data))
    check_declared(file, schema.names, MAX_ROWS, MAX_BYTES)
    table = read_columns(file, schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def in_order(rows: Sequence[Row], what: str) -> list[Row]:
    """The rows of a table of facts by their numbers.

    Raises
    ------
    CorruptTableError
        If a row has no number or no kind.
    NewerStoreError
        If one says that only a newer program may read the table.
    """
    for row in rows:
        try:
            stored.whole(row["seq"], "seq")
            stored.text(row["kind"], "kind")
        except ValueError as error:
            raise CorruptTableError(
                f"{what} holds a row that is no fact ({error}): it was edited. Restore it from a backup", seq=row["seq"]
            ) from error
        if row["seq"] == 0 or row["kind"] == FORMAT_RAISED:
            with contextlib.suppress(ValueError, KeyError):  # its replay says what is wrong
                format.check_readable(format.parse(stored.body_of(row["body"])), what)
    return sorted(rows, key=lambda row: int(row["seq"]))


class RowTable:
    """Rows of fixed columns in a compare-and-set table, with what was read or written kept in memory.

    Files are never changed, so each is read once, and those that this handle wrote never.
    """

    def __init__(
        self, store: Store, folder: str, what: str, columns: Columns, expired: Expired = nothing_expires
    ) -> None:
        self._disk = RowFiles(store, folder, what, columns)
        self._store, self._log = store, DeltaLog(store, folder, what, expired=expired)
        self._files: dict[str, list[Row]] = {}
        self._version = -1  # of which `_files` are
        self._fresh: list[Row] = []
        self._gone = False

    def exists(self) -> bool:
        return self._log.exists()

    def create(self, rows: Sequence[Row]) -> None:
        """Make the table with these rows; `Conflict` if it is there by now."""
        add, written = self._disk.write(rows, 0)
        self._log.create(self._disk.spec, [add])
        self._follow({add.path: written})

    def refresh(self, sure: bool = False) -> bool:
        """Read what is new in the table; True if others have changed its rows or records. `sure` is as of `DeltaLog.refresh`."""
        self._log.refresh(sure)
        return self._follow({})

    def take_fresh(self) -> list[Row] | None:
        """The rows that came since the last call, also by this handle; None if others went, so that all count anew."""
        fresh, gone = self._fresh, self._gone
        self._fresh, self._gone = [], False
        return None if gone else fresh

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that are not live, because they were replaced or lost a race, and are older than `grace_ms`."""
        self._log.vacuum(grace_ms)

    @property
    def version(self) -> int:
        """As of the last refresh."""
        return self._log.version

    @property
    def files(self) -> list[str]:
        return list(self._files)

    def rows(self) -> list[Row]:
        """All rows as of the last refresh, in the order in which they were committed."""
        return [row for rows in self._files.values() for row in rows]

    def append(self, rows: Sequence[Row], replace: bool = False) -> None:
        """Commit rows on top of the last refresh, or `Conflict`. With `replace` they take the place of all others."""
        live = self._seen()
        at = self._store.now_ms()
        removes = [Remove(path, at, live[path].size, {}) for path in self._files] if replace else []
        add, written = self._disk.write(rows, self._version + 1)
        self._log.commit([add], removes)
        self._follow({add.path: written})

    def recorded(self, app: str, default: int = -1) -> int:
        """What an application transaction of the table says, as of the last refresh."""
        return self._log.recorded(app, default)

    def record(self, transactions: Mapping[str, int]) -> None:
        """Commit application transactions alone on top of the last refresh, or `Conflict`."""
        self._seen()
        self._log.commit(transactions=transactions)
        self._follow({})

    def _seen(self) -> Mapping[str, Add]:
        """The live files; `Conflict` if they are not those of the rows, because a refresh was interrupted."""
        live = self._log.snapshot.files
        if self._log.version != self._version:
            raise Conflict
        return live

    def _follow(self, written: Mapping[str, list[Row]]) -> bool:
        """Let the rows be those of the log's version; what was written here need not be read."""
        if self._log.version == self._version:
            return False
        try:
            changes = self._log.take_changes()
            if self._version < 0 or changes.reloaded:
                before, paths = self._files, list(self._log.snapshot.files)
                gone = [path for path in before if path not in self._log.snapshot.files]
            else:
                before, gone = {}, [path for path in changes.removed if path in self._files]
                paths = [add.path for add in changes.added if add.path in self._log.snapshot.files]
            added = {path: written.get(path) or self._disk.read(path) for path in sorted(paths) if path not in before}
            for path in gone:
                del self._files[path]
            self._files |= added
            self._fresh += [row for rows in added.values() for row in rows]
            self._gone = self._gone or bool(gone)
            self._version = self._log.version
        except BaseException:
            self._files, self._version, self._gone = {}, -1, True  # half done: the next refresh begins again
            raise
        return True
