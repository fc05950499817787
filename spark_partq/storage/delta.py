"""A Delta table whose every commit is a compare-and-set on its version.

All small, frequent writes of a store go through here. `commit` is given the version that its caller's decision rests on, and
either becomes the next version or raises `Conflict`, upon which the caller looks again and decides again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from spark_partq.core.errors import CommitFailedError, CorruptTableError
from spark_partq.core.schema import Struct, to_json
from spark_partq.storage.store import Store

T = TypeVar("T")

# A probe for the next log file could miss an advance whose log files were cleaned up since; log files
# live an hour, so a full look once in a while is enough.
_FULL_LOOK_S = 60.0

LOG_SETTINGS = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}
# For tables with several commits a second: a look lists the log files, and a checkpoint carries every removed file until it may
# be forgotten. Who comes later than this begins at a checkpoint.
SHORT_LOG = {
    "delta.logRetentionDuration": "interval 1 minutes",
    "delta.deletedFileRetentionDuration": "interval 1 minutes",
}
# To clean up is to list the whole log, so only every so many commits; a divisor of the checkpoint interval, as each
# checkpoint lets a hundred log files go.
_CLEAN_UP_EVERY = 10


class Conflict(Exception):
    """Somebody else committed first."""


def retrying(attempt: Callable[[], T], what: str) -> T:
    """Run `attempt` until it meets no `Conflict`; each time it must look at the table anew.

    Raises
    ------
    CommitFailedError
        After 1,000 lost races.
    """
    for retry in Retrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait_random_exponential(multiplier=0.005, max=0.5),
        stop=stop_after_attempt(1000),
        retry_error_callback=lambda _: None,
    ):
        with retry:
            return attempt()
    raise CommitFailedError(
        f"{what}: lost 1,000 races against other writers; try again when there are fewer", what=what
    )


@dataclass(frozen=True)
class Created:
    """A table to be created together with its first files."""

    schema: Struct
    partition_by: tuple[str, ...] = ()

    @cached_property
    def delta_schema(self) -> Schema:
        return Schema.from_json(to_json(self.schema))


class CasTable:
    """A handle on one Delta table, kept up to date by `refresh`.

    Not safe for use by several threads at once.
    """

    def __init__(self, store: Store, folder: str, what: str) -> None:
        self.store, self.folder, self.what = store, folder, what
        self.uri = store.uri_of(folder)
        self._table: DeltaTable | None = None
        self._version = -1
        self._looked_s = 0.0
        self._id = ""
        self._last_mark: tuple[int, int] | None = None

    # ---- reading
    def exists(self) -> bool:
        return self._table is not None or DeltaTable.is_deltatable(self.uri, self.store.options)

    @property
    def table(self) -> DeltaTable:
        """The table as of the last look (the first use looks).

        Raises
        ------
        CorruptTableError
            If the log cannot be read.
        """
        if self._table is None:
            self.refresh()
            assert self._table is not None
        return self._table

    @property
    def version(self) -> int:
        return self._version

    def refresh(self) -> bool:
        """Look at the table; True if it has changed since the last look."""
        if not self.may_have_changed():
            return False
        try:
            if self._table is None or (self.store.is_local and self._mark() != self._last_mark):
                self._table = DeltaTable(self.uri, storage_options=self.store.options)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            raise CorruptTableError(
                f"{self.what} has no Delta log at {self.uri}; it was removed or never made. Restore it, or delete and make it anew",
                path=self.uri,
            ) from None
        except (DeltaError, OSError, ValueError) as error:
            self._table = None
            raise CorruptTableError(
                f"the Delta log of {self.what} at {self.uri} cannot be read ({_first_line(error)}); "
                "remove foreign files from its _delta_log or restore it",
                path=self.uri,
            ) from error
        self._looked_s = time.monotonic()
        before, self._version = self._version, self._table.version()
        table_id = str(self._table.metadata().id) if self.store.is_local else ""
        same = self._id in ("", table_id)
        if self._version < before or not same:
            what = f"went back from version {before} to {self._version}" if same else "is another table than before"
            raise CorruptTableError(
                f"{self.what} at {self.uri} {what}: its log was truncated, an older state was put back, or it was deleted and made "
                "anew. Restore the newest state, or start again",
                path=self.uri,
            )
        self._id = table_id
        self._last_mark = self._mark() if self.store.is_local else None
        return self._version != before

    def may_have_changed(self) -> bool:
        """False if a look would surely find nothing new; on a local disk this costs microseconds."""
        if self._table is None or not self.store.is_local or time.monotonic() - self._looked_s > _FULL_LOOK_S:
            return True
        return os.path.exists(self._log_file(self._version + 1)) or self._mark() != self._last_mark

    def _log_file(self, version: int) -> str:
        return f"{self.uri}/_delta_log/{version:020d}.json"

    def _mark(self) -> tuple[int, int] | None:
        """What tells the last log file from another of that name, on a local disk; None if it is gone."""
        try:
            found = os.stat(self._log_file(self._version))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def paths(self) -> list[str]:
        """Names of the live files of a table without partition columns, sorted; a tenth of the cost of `adds`."""
        return sorted(uri.rpartition("/")[2] for uri in self.table.file_uris())

    def adds(self) -> pa.Table:
        """The live files: path, size_bytes, num_records, min.*, max.*, partition.*, in no order."""
        return pa.table(self.table.get_add_actions(flatten=True))

    def recorded(self, app: str, default: int = -1) -> int:
        """The last version of an application transaction."""
        value = self.table.transaction_version(app)
        return default if value is None else value

    def vacuum(self, grace_ms: int) -> int:
        """Delete files that no log has named for `grace_ms` (whole hours, rounded up); return how many."""
        hours = -(-grace_ms // 3_600_000)
        gone = self.table.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False, full=True)
        return len(gone)

    # ---- writing
    def create(self, created: Created, adds: Sequence[AddAction] = (), extra: Mapping[str, str] | None = None) -> None:
        """Make the table with these files as its version 0.

        Raises
        ------
        Conflict
            If it exists by now.
        """
        try:
            create_table_with_add_actions(
                self.uri,
                created.delta_schema,
                list(adds),
                mode="error",
                partition_by=list(created.partition_by),
                configuration={**LOG_SETTINGS, **(extra or {})},
                storage_options=self.store.options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError as error:
            if DeltaTable.is_deltatable(self.uri, self.store.options):
                raise Conflict from error
            raise CommitFailedError(
                f"{self.what} cannot be made at {self.uri}: {_first_line(error)}", path=self.uri
            ) from error
        except OSError as error:
            raise CommitFailedError(
                f"{self.what} cannot be made at {self.uri}: {_first_line(error)}", path=self.uri
            ) from error

    def commit(
        self,
        created: Created,
        adds: Sequence[AddAction] = (),
        removes: Sequence[RemoveAction] = (),
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        """Become the version after the last one looked at.

        Raises
        ------
        Conflict
            If another commit came first; nothing was written.
        CommitFailedError
            If the store refused for another reason.
        """
        table = self.table
        clean_up = (self._version + 2) % _CLEAN_UP_EVERY == 0
        try:
            table.create_write_transaction(
                [*adds, *removes],
                "append",
                created.delta_schema,
                list(created.partition_by),
                commit_properties=CommitProperties(
                    max_commit_retries=0,
                    app_transactions=[Transaction(app, v) for app, v in (transactions or {}).items()],
                ),
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=None if clean_up else False
                ),
            )
        except (DeltaCommitFailedError, DeltaError, OSError) as error:
            # The outcome may be unknown (a time-out whose commit landed): what the table says now decides.
            before = self._version
            changed = self.refresh()
            self._version = before  # the next `refresh` is the caller's, and shall tell it of the change
            if changed:
                if adds and adds[0].path in self.adds().column("path").to_pylist():
                    return
                raise Conflict from error
            raise CommitFailedError(
                f"{self.what}: the store refused a commit at {self.uri} ({_first_line(error)}); nothing was changed",
                path=self.uri,
            ) from error


def added(
    path: str,
    size: int,
    rows: int,
    partition_values: Mapping[str, str] | None = None,
    stats: str | None = None,
    data_change: bool = True,
) -> AddAction:
    statistics = stats or f'{{"numRecords":{rows}}}'
    return AddAction(path, size, dict(partition_values or {}), _now_ms(), data_change, statistics)


def removed(
    path: str, partition_values: Mapping[str, str] | None = None, size: int | None = None, data_change: bool = True
) -> RemoveAction:
    return RemoveAction(path, data_change, _now_ms(), size, dict(partition_values or {}))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
