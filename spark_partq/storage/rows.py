"""Tables of few small rows (facts, acknowledgements): one little Parquet file a commit."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core import format, stored
from spark_partq.core.errors import CommitFailedError, CorruptTableError, StoreUnavailableError
from spark_partq.core.payload.schema import Struct, with_columns
from spark_partq.storage.arrow import array_of, arrow_schema
from spark_partq.storage.files import FileMissing, FileTooLarge
from spark_partq.storage.log import (
    SHORT_LOG,
    Add,
    Conflict,
    DeltaLog,
    Expired,
    Remove,
    TableSpec,
    nothing_expires,
    vacuum,
)
from spark_partq.storage.parquet import Most, read_within
from spark_partq.storage.store import Store

# A file that is larger than this is not read.
MAX_BYTES = 512 << 20
# What a file may hold beside what its own size allows: rows, one for each byte; and bytes in memory, 500 for each byte. Rows of a history have a
# number each, so they take more than a byte, however well they are compressed; and text is compressed to a twentieth at best.
FREE_ROWS, FREE_BYTES = 100_000, 16 << 20
_COMPRESSED = 500
_FEW = 100
_PART = 10_000
# Microseconds since 1970 of the times that Python has, but for a day at each end.
_FIRST_US, _LAST_US = -62_135_510_400_000_000, 253_402_214_400_000_000

_TIME, _EPOCH = pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

FORMAT_RAISED = "FormatRaised"  # of all tables of facts

_NAMED = re.compile(r"([0-9]{20})-[a-z]+(?:-[0-9]{1,19})?-[0-9a-f]{32}\.parquet")

T = TypeVar("T")
Row = dict[str, Any]
Columns = Sequence[tuple[str, str]]


class RowFiles:
    """Writes and reads the little files of one table. They are named so that they sort in the order of their commits.

    Parameters
    ----------
    most : int
        So many rows may a file have.
    """

    def __init__(self, store: Store, folder: str, what: str, columns: Columns, most: int) -> None:
        self._store, self._folder, self._what, self._most = store, folder, what, most
        self.spec, self.arrow = _made_as(tuple(columns))

    def write(
        self, rows: Sequence[Row], version: int, kind: str = "rows", data_change: bool = True
    ) -> tuple[Add, list[Row]]:
        """A file of these rows for the commit of that version, and the rows as they will be read.

        Raises
        ------
        CommitFailedError
            If it cannot be written, or readers would refuse it.
        """
        data, written = encode_rows(rows, self.arrow)
        if not self._may_have(len(rows), len(data)):
            raise CommitFailedError(
                f"{self._what} would get {len(rows):,} rows at once, more than readers take; nothing was changed"
            )
        return self._put(data, len(rows), version, kind, data_change), written

    def merge(self, paths: Iterable[str], version: int, kind: str) -> Add | None:
        """A file of the rows of these for the commit of that version; None if they are too many for one file."""
        table = pa.concat_tables([self.read_table(path, version - 1) for path in paths])
        data = encode_table(table)
        if not self._may_have(table.num_rows, len(data)) or table.nbytes > most_of(self._most, len(data)).size:
            return None
        return self._put(data, table.num_rows, version, kind, data_change=False)

    def _may_have(self, rows: int, size: int) -> bool:
        return rows <= most_of(self._most, size).rows

    def _put(self, data: bytes, rows: int, version: int, kind: str, data_change: bool) -> Add:
        path = f"{version:020d}-{kind}-{self._store.runtime.new_uuid().hex}.parquet"
        try:
            if version == 0:
                self._store.files.make_folder(self._folder)
            self._store.files.put(f"{self._folder}/{path}", data)
        except (StoreUnavailableError, FileMissing) as error:
            raise CommitFailedError(
                f"{self._what} cannot be written ({error}); nothing was changed", path=path
            ) from error
        return Add(path, len(data), {}, f'{{"numRecords":{rows}}}', self._store.now_ms(), data_change)

    def read(self, path: str, version: int, most: int | None = None) -> list[Row]:
        """The rows of a file that the table has in this version; `CorruptTableError` if they are more than `most`, or than the table's files have."""
        return self._read(
            path, version, lambda data: decode_rows(data, self.arrow, self._most if most is None else most)
        )

    def read_parts(self, path: str, version: int) -> Iterator[list[Row]]:
        """The same, some at a time."""
        for batch in self.read_table(path, version).to_batches(_PART):
            yield rows_of(pa.Table.from_batches([batch]))

    def read_table(self, path: str, version: int) -> pa.Table:
        """The same as a table of Arrow, which takes a tenth of the memory."""
        return self._read(path, version, lambda data: decode_table(data, self.arrow, self._most))

    def _read(self, path: str, version: int, decode: Callable[[bytes], T]) -> T:
        table = f"{self._what} in {self._store.uri}, version {version}"
        try:
            return decode(self._store.files.read(f"{self._folder}/{path}", MAX_BYTES))
        except FileMissing:
            raise CorruptTableError(
                f"file {path} of {table}, is missing; restore it from a backup", path=path, version=version
            ) from None
        except (
            FileTooLarge,
            OSError,
            ValueError,
            KeyError,
            pa.ArrowException,
        ) as error:  # other columns are a ValueError
            raise CorruptTableError(
                f"file {path} of {table}, cannot be read ({error}); restore it from a backup",
                path=path,
                version=version,
            ) from error


def version_of(path: str) -> int | None:
    """For the commit of which version `RowFiles` has written a file; None if it has not named it."""
    match = _NAMED.fullmatch(path)
    return None if match is None else int(match[1])


@cache
def _made_as(columns: Columns) -> tuple[TableSpec, pa.Schema]:
    struct: Struct = with_columns({"type": "struct", "fields": []}, *columns)
    return TableSpec(struct, configuration=SHORT_LOG), arrow_schema(struct)


def encode_rows(rows: Sequence[Row], schema: pa.Schema) -> tuple[bytes, list[Row]]:
    """A little file of these rows, and the rows as `decode_rows` would give them."""
    table = pa.Table.from_arrays([array_of([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)
    return encode_table(table), rows_of(table)


def encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # A dictionary of few values takes longer than they do, and nobody looks for a fact by the statistics of a file.
    pq.write_table(table, sink, use_dictionary=table.num_rows > _FEW, write_statistics=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_rows(data: bytes, schema: pa.Schema, most: int) -> list[Row]:
    """The rows of a little file, which has no more than `most`; nobody may change them."""
    return rows_of(_decoded(data, schema, most))


def rows_of(table: pa.Table) -> list[Row]:
    """As `to_pylist`, which loads pandas for the sake of times; that takes longer than most tables.

    Raises
    ------
    ValueError
        If there is a time that Python does not have.
    """
    columns = [_times(column) if column.type == _TIME else column.to_pylist() for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _times(column: pa.ChunkedArray) -> list[dt.datetime | None]:
    numbers = [number for chunk in column.chunks for number in chunk.view(pa.int64()).to_pylist()]
    _check_times(number for number in numbers if number is not None)
    return [None if number is None else _EPOCH + dt.timedelta(microseconds=number) for number in numbers]


def decode_table(data: bytes, schema: pa.Schema, most: int) -> pa.Table:
    """The same as a table of Arrow."""
    import pyarrow.compute as pc  # loading it takes longer than reading a file of few rows

    table = _decoded(data, schema, most)
    for column in table.columns:
        if column.type == _TIME:
            ends = pc.min_max(column.cast(pa.int64())).as_py().values()
            _check_times(us for us in ends if us is not None)
    return table


def _decoded(data: bytes, schema: pa.Schema, most: int) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(data))
    batches = list(read_within(data, file, schema.names, most_of(most, len(data))))
    table = pa.Table.from_batches(batches) if batches else file.schema_arrow.empty_table().select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def _check_times(found_us: Iterable[int]) -> None:
    """Refuse times that Python does not have, in any zone: each use of such a row would end in another error."""
    if not all(_FIRST_US <= us <= _LAST_US for us in found_us):
        raise ValueError("it has a time before the year 1 or after the year 9999")


def most_of(rows: int, size: int) -> Most:
    """What a file of so many bytes may hold in a table whose files have no more than so many rows."""
    return Most(min(rows, FREE_ROWS + size), 0, FREE_BYTES + _COMPRESSED * size)


def in_order(rows: Sequence[Row], what: str, version: int) -> list[Row]:
    """The rows of a table of facts, as of that version, by their numbers.

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
                f"{what}, version {version}, holds a row that is no fact ({error}): it was edited. Restore it from a backup",
                seq=row["seq"],
                version=version,
            ) from error
        if row["seq"] == 0 or row["kind"] == FORMAT_RAISED:
            with contextlib.suppress(ValueError, KeyError):  # its replay says what is wrong
                format.check_readable(format.parse(stored.body_of(row["body"])), what)
    return sorted(rows, key=lambda row: int(row["seq"]))


def table_in_order(table: pa.Table, what: str, version: int) -> pa.Table:
    """The same for a table of Arrow: only the rows that may be refused become rows."""
    import pyarrow.compute as pc  # as above

    kinds = table["kind"]
    odd = pc.or_(pc.equal(kinds, FORMAT_RAISED), pc.greater(pc.utf8_length(kinds), stored.MAX_TEXT))
    odd = pc.or_(odd, pc.less_equal(table["seq"], 0))
    for batch in table.filter(pc.fill_null(odd, True)).to_batches(_PART):
        in_order(rows_of(pa.Table.from_batches([batch])), what, version)
    return table.sort_by("seq")


def to_its_files(log: DeltaLog, follow: Callable[[], bool]) -> bool:
    """Call `follow`, which reads the files that a log names as of its last refresh.

    A file may be gone if this process stood still after that refresh. Then the log is read again.
    """
    while True:
        try:
            return follow()
        except CorruptTableError:
            if not log.refresh():
                raise


class RowTable:
    """Rows of fixed columns in a compare-and-set table, with what was read or written kept in memory.

    Files are never changed, so each is read once, and those that this handle wrote never.

    Parameters
    ----------
    most : int
        So many rows may the table have.
    """

    def __init__(
        self, store: Store, folder: str, what: str, columns: Columns, most: int, expired: Expired = nothing_expires
    ) -> None:
        self._disk, self._what, self._most = RowFiles(store, folder, what, columns, most), what, most
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
        return to_its_files(self._log, lambda: self._follow({}))

    def take_fresh(self) -> list[Row] | None:
        """The rows that came since the last call, also by this handle; None if others went, so that all count anew."""
        fresh, gone = self._fresh, self._gone
        self._fresh, self._gone = [], False
        return None if gone else fresh

    def vacuum(self, grace_ms: int, kept: Collection[str] = ()) -> None:
        """Delete files that are not live, because they were replaced or lost a race, and are older than `grace_ms`; but not those `kept`."""
        vacuum(self._log, grace_ms, kept)

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

    def count(self) -> int:
        """How many rows there are, as of the last refresh."""
        return sum(map(len, self._files.values()))

    def append(self, rows: Sequence[Row], replace: bool = False) -> None:
        """Commit rows on top of the last refresh, or `Conflict`. With `replace` they take the place of all others."""
        live = self._seen()
        at = self._store.now_ms()
        removes = [Remove(path, at, live[path].size, {}) for path in self._files] if replace else []
        count = len(rows) if replace else len(rows) + self.count()
        if count > self._most:
            raise CommitFailedError(
                f"{self._what} would have {count:,} rows, more than the {self._most:,} that readers take; nothing was changed"
            )
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
            left = self._most - sum(len(rows) for path, rows in self._files.items() if path not in gone)
            added: dict[str, list[Row]] = {}
            for path in sorted(path for path in paths if path not in before):
                added[path] = written.get(path) or self._disk.read(path, self._log.version, left)
                left -= len(added[path])
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
