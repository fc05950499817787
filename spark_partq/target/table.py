"""A user's Delta table: what a sink may write into it, and its commits, each of which is one compare-and-set.

delta-rs reads the log and puts the entry. It is told to try only once: what to do after a lost race depends on the positions.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from spark_partq.core.errors import (
    CommitFailedError,
    CorruptTableError,
    InvalidArgumentError,
    StoreUnavailableError,
    UnsupportedTableError,
)
from spark_partq.core.payload.schema import Struct, quoted
from spark_partq.storage.files import FileInfo, FileMissing
from spark_partq.storage.files.asking import asked_again, tells_of_connection
from spark_partq.storage.files.credentials import redacted
from spark_partq.storage.log import Conflict, retrying
from spark_partq.storage.store import Store
from spark_partq.target.declarable import check_declarable
from spark_partq.target.files import TableFile

# The table features that are allowed: features that need nothing from a program that appends rows, and features whose rules a
# sink checks.
SUPPORTED = frozenset(
    ["appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "invariants", "timestampNtz", "v2Checkpoint"]
)  # fmt: skip
# The writer version of tables without such features that may have identity columns, which only Delta's own writers can compute.
_IDENTITY_COLUMNS = 6
_FAILED = (
    DeltaError,
    OSError,
    ValueError,
)  # delta-rs raises the last two when a place cannot be reached, and when a log entry is damaged
_LOG = "_delta_log"
_OF_VERSION = re.compile(r"\d{20}\.")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")  # of one file, which has everything
_CONSTRAINT = "delta.constraints."
_INVARIANT = "delta.invariants"
_TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # Spark keeps the type of a text with a length under this name
_LENGTH = re.compile(r"(?:var)?char\((\d+)\)")
_FORGETS = "delta.settransactionretentionduration"
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
# Keys in the metadata of columns that only Delta's own writers can compute.
_COMPUTED = ("delta.generationExpression", "delta.identity.start")


class DeltaTarget:
    """A handle on a table that exists. Used by one thread.

    Raises
    ------
    UnsupportedTableError
        If it has features that a sink does not know.
    """

    def __init__(self, place: Store) -> None:
        self._place = place
        self.what = f"Delta table {place.uri}"
        self._table = self._opened()
        self._id = str(self._table.metadata().id)
        self._checked = -1
        self._forced = -1  # the newest version that is known to be on the disk, if writes are forced
        self._written_by = ""
        self._check()
        self._seen = self._entry()

    @classmethod
    def exists(cls, place: Store) -> bool:
        """
        Raises
        ------
        StoreUnavailableError
        """
        try:
            return asked_again(lambda: DeltaTable.is_deltatable(place.uri, storage_options=_options(place)), _is_broken)
        except _FAILED as error:
            raise StoreUnavailableError(
                f"{place.uri} cannot be read: {_said(error, place)}. Check the path, the network and the storage options",
                path=place.uri,
            ) from error

    @classmethod
    def create(cls, place: Store, schema: Struct, partition_by: Sequence[str]) -> None:
        """Make the table, unless another process has made it by now.

        Raises
        ------
        InvalidArgumentError
            If there is something else in the folder.
        """
        files, folders = place.files.list_files(""), place.files.list_folders("")
        if cls.exists(place):
            return
        if files or folders not in ([], [_LOG]):  # if only that folder exists, another process is making the table
            raise InvalidArgumentError(
                f"{place.uri} holds something else than a Delta table; choose an empty or new folder", table=place.uri
            )
        check_declarable(place, schema["fields"])
        place.files.make_folder("")
        try:
            DeltaTable.create(
                place.uri,
                Schema.from_json(json.dumps(schema)),
                mode="error",
                partition_by=list(partition_by),
                storage_options=_options(place),
                # The second process must fail: if delta-rs tried again, it would put another table's metadata behind the first
                # one's.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except _FAILED as error:
            if not cls.exists(place):
                raise CommitFailedError(
                    f"{place.uri}: the Delta table cannot be made: {_said(error, place)}", table=place.uri
                ) from error

    def _opened(self) -> DeltaTable:
        try:
            return asked_again(lambda: DeltaTable(self._place.uri, storage_options=_options(self._place)), _is_broken)
        except TableNotFoundError as error:
            raise InvalidArgumentError(
                f"there is no Delta table at {self._place.uri}; check the path, or let the sink create it",
                table=self._place.uri,
            ) from error
        except _FAILED as error:
            raise self._unreadable(error) from error

    # ---- what it is
    @property
    def schema(self) -> Struct:
        found: Struct = json.loads(self._table.schema().to_json())
        return found

    @property
    def partition_by(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    @property
    def constraints(self) -> dict[str, str]:
        """SQL conditions that each row must fulfil, by name."""
        columns = self.schema["fields"]
        found = {
            f"{column['name']} NOT NULL": f"{quoted(column['name'])} IS NOT NULL"
            for column in columns
            if not column["nullable"]
        }
        for column in columns:
            if _INVARIANT in column["metadata"]:
                rule = json.loads(column["metadata"][_INVARIANT])["expression"]["expression"]
                found[f"invariant of {column['name']}"] = rule
            if text := _LENGTH.fullmatch(column["metadata"].get(_TEXT_TYPE, "")):
                name = quoted(column["name"])
                found[f"{column['name']} {text[0]}"] = f"{name} IS NULL OR char_length({name}) <= {text[1]}"
        for key, condition in self._table.metadata().configuration.items():
            if key.startswith(_CONSTRAINT):
                found[key.removeprefix(_CONSTRAINT)] = condition
        return found

    def _check(self) -> None:
        """Refuse a table that a sink cannot write. Checked once for each version."""
        version = self._table.version()
        if version == self._checked:
            return
        if str(self._table.metadata().id) != self._id:
            raise UnsupportedTableError(
                f"{self.what} was replaced by another table while the query ran, and nothing was written to the new one. Start the query again "
                "if the new table shall get the messages from the group's position on. If the new table was made by overwriting the old one, "
                "its log still has the positions: then give the sink another name=, or the sink leaves out the messages that the old table had",
                table=self._place.uri,
            )
        protocol, configuration = self._table.protocol(), self._table.metadata().configuration
        unknown = sorted({*(protocol.writer_features or ()), *(protocol.reader_features or ())} - SUPPORTED)
        if protocol.min_writer_version == _IDENTITY_COLUMNS:
            unknown.append("identityColumns")
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            unknown.append("columnMapping")
        for column in self.schema["fields"]:
            unknown += [f"{rule} of column {column['name']}" for rule in _COMPUTED if rule in column["metadata"]]
            if f'"{_INVARIANT}":' in json.dumps(column["type"]):
                unknown.append(f"{_INVARIANT} inside column {column['name']}")
            if isinstance(column["type"], dict) and (inside := column["metadata"].get(_TEXT_TYPE)):
                unknown.append(f"{inside} of column {column['name']}")
        if unknown:
            raise UnsupportedTableError(
                f"{self.what} has features that this sink does not support: {', '.join(unknown)}. Nothing was written. Write into another "
                "table, or in a transaction of your own (see partq.positions)",
                table=self._place.uri,
                features=", ".join(unknown),
            )
        if any(name.lower() == _FORGETS for name in configuration):
            raise UnsupportedTableError(
                f"{self.what} has the property delta.setTransactionRetentionDuration, by which Delta forgets the positions that say which messages "
                "are in. Nothing was written. Take it off (ALTER TABLE … UNSET TBLPROPERTIES) before the log's next checkpoint, or write into "
                "another table",
                table=self._place.uri,
                features="delta.setTransactionRetentionDuration",
            )
        self._checked = version

    # ---- the positions and the rows
    def refresh(self) -> None:
        if self._seen is None or self._entry() != self._seen:  # the entry was cleaned up, or is of another table
            self._table, self._checked = self._opened(), -1
        try:
            asked_again(self._table.update_incremental, _is_broken)
        except _FAILED as error:
            raise self._unreadable(error) from error
        self._check()
        self._seen = self._entry()
        self._force(self._table.version())

    def _force(self, version: int) -> None:
        """Force the log up to a version to the disk: a group must not go on behind rows that could be lost in a power cut.

        Another sink may have died before it forced its entry, and another program may have committed since.
        """
        if self._place.forces_writes and self._forced < version:
            for path in self._unforced(version):
                with contextlib.suppress(FileMissing):  # it was cleaned up; a checkpoint has its content
                    self._place.files.force(path)
            self._place.files.force(_LOG)
            self._forced = version

    def _unforced(self, version: int) -> list[str]:
        """The files of the log, up to a version, that may not be on the disk. A checkpoint has what the entries before it say."""
        if self._forced >= 0:
            return [_entry_path(number) for number in range(self._forced + 1, version + 1)]
        there = [info.name for info in self._place.files.list_files(_LOG) if _OF_VERSION.match(info.name)]
        names = [name for name in there if int(name[:20]) <= version]
        first = max((int(name[:20]) for name in names if _CHECKPOINT.fullmatch(name)), default=0)
        return [f"{_LOG}/{name}" for name in names if int(name[:20]) >= first]

    def _entry(self) -> FileInfo | None:
        """The file of the table's version. It shows whether the folder has another table by now, as delta-rs asks only for later versions."""
        return self._place.files.info(_entry_path(self._table.version()))

    def recorded(self, app: str) -> int | None:
        """
        Raises
        ------
        Conflict
            If the log was cleaned up since the last refresh.
        """
        try:
            return self._table.transaction_version(app)
        except _FAILED as error:
            if self._entry() != self._seen:
                raise Conflict from error
            raise self._unreadable(error) from error

    def begin_files(self) -> None:
        """Remember the layout by which files are about to be written: that of the last refresh."""
        self._written_by = self._layout()

    def are_fit(self, files: Sequence[TableFile]) -> bool:
        """Whether columns and constraints are still those by which the files were written.

        VACUUM does not delete files that are as young as a micro-batch, so the files are still there.
        """
        return not files or self._layout() == self._written_by

    def _layout(self) -> str:
        return json.dumps([self.schema, self.partition_by, self.constraints], sort_keys=True)

    def commit(self, files: Sequence[TableFile], transactions: Mapping[str, int]) -> None:
        version, now_ms = self._table.version(), self._place.now_ms()
        adds: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size_bytes, f.values, now_ms, True, f.stats) for f in files
        ]
        once = CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(app, end) for app, end in transactions.items()]
        )

        def put() -> None:
            try:
                self._table.create_write_transaction(
                    adds, "append", self._table.schema(), partition_by=self.partition_by, commit_properties=once
                )
            except _FAILED:
                self.refresh()
                if (
                    self._table.version() > version
                ):  # another process has committed, or this one without getting an answer: the positions tell
                    raise Conflict from None
                raise

        try:
            asked_again(put, _is_broken)
        except _FAILED as error:
            raise self._refused(error) from error
        self._check_is_in(version + 1, transactions)
        self._force(version + 1)

    def _check_is_in(self, version: int, transactions: Mapping[str, int]) -> None:
        """Make sure that the entry that was put is part of the table's log.

        This process may have stood still between its look and its put. If meanwhile others cleaned up the log beyond that version, or made another
        table here, the entry's name was free.

        Raises
        ------
        Conflict
            If it is not.
        UnsupportedTableError
            If there is another table, whose log may have the entry.
        """
        if self._place.files.info(_entry_path(version - 1)) == self._seen:
            return
        self._table, self._checked, self._seen = self._opened(), -1, None
        if str(self._table.metadata().id) != self._id:
            raise UnsupportedTableError(
                f"{self.what} was replaced by another table while this sink committed. The log of the new table may have this commit as version "
                f"{version}, with columns and files of the old one. Look at that version, and restore the new table to the one before if it is so. "
                "Start the query again if the new table shall get the messages from the group's position on",
                table=self._place.uri,
            )
        if any((self.recorded(app) or 0) < end for app, end in transactions.items()):
            raise Conflict

    def discard(self, files: Sequence[TableFile]) -> None:
        for file in files:
            self._place.files.delete(file.path)

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Add nullable columns, unless another process has added some of the same names by now, perhaps in other case.

        Raises
        ------
        UnsupportedTableError
        """
        check_declarable(self._place, fields)

        def attempt() -> None:
            self.refresh()
            known, version = {column["name"].lower() for column in self.schema["fields"]}, self._table.version()
            added = [{**field, "nullable": True} for field in fields if field["name"].lower() not in known]
            if not added:
                return
            try:
                self._table.alter.add_columns(
                    list(Schema.from_json(json.dumps({"type": "struct", "fields": added})).fields)
                )
            except _FAILED as error:
                self.refresh()
                if self._table.version() > version:
                    raise Conflict from error  # another process was first, perhaps with the same columns
                raise self._refused(error) from error
            self.refresh()

        retrying(self._place.runtime, attempt, self.what)

    def _refused(self, error: Exception) -> CommitFailedError | StoreUnavailableError:
        said = _said(error, self._place)
        again = "Nothing of the micro-batch is lost: it is delivered again when the query is started again"
        if _is_out_of_reach(error):
            return StoreUnavailableError(f"{self.what} cannot be written: {said}. {again}", path=self._place.uri)
        return CommitFailedError(f"{self.what} refused a commit: {said}. {again}", table=self._place.uri)

    def _unreadable(self, error: Exception) -> CorruptTableError | StoreUnavailableError:
        kind = StoreUnavailableError if _is_out_of_reach(error) else CorruptTableError
        return kind(f"{self.what} cannot be read: {_said(error, self._place)}", path=self._place.uri)


def _entry_path(version: int) -> str:
    return f"{_LOG}/{version:020}.json"


def _options(place: Store) -> dict[str, str] | None:
    """Options for delta-rs. Commits are conditional puts, as delta-rs would otherwise need a lock table."""
    return None if place.uri.startswith("/") else {"conditional_put": "etag", **place.storage_options}


def _is_broken(error: Exception) -> bool:
    return isinstance(error, _FAILED) and tells_of_connection(str(error))


def _is_out_of_reach(error: Exception) -> bool:
    return isinstance(error, OSError) or "HTTP error" in str(error)


def _said(error: Exception, place: Store) -> str:
    """The error text of delta-rs, in one line without colours."""
    return redacted(" ".join(_COLOUR.sub("", str(error)).split()), place.storage_options)
