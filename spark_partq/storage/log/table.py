"""One process's handle on a Delta table whose every commit is a compare-and-set on its version.

`commit` rests on what the last `refresh` saw. It becomes the next version, or raises `Conflict`, upon which its caller refreshes
and decides again. A handle keeps what it knows and applies what is new; after its own commit it need not refresh.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_partq.core.errors import CommitFailedError, CorruptTableError, StoreUnavailableError
from spark_partq.core.payload.schema import to_json
from spark_partq.core.stored import RESTORE_NEWEST
from spark_partq.storage.files import FileInfo, FileMissing
from spark_partq.storage.log.checkpoints import NO_CHECKPOINT, LastCheckpoint
from spark_partq.storage.log.commit import LeftBehind, NotCommitted, commit_info, put_entry
from spark_partq.storage.log.entries import Add, Entry, Metadata, Remove, Transaction
from spark_partq.storage.log.folder import (
    DamagedLog,
    Expired,
    LogFolder,
    LogMissing,
    OtherHistory,
    Stranger,
    nothing_expires,
)
from spark_partq.storage.log.retry import Conflict
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.log.spec import CHECKPOINT_INTERVALS, TableSpec
from spark_partq.storage.store import Store

# A refresh checks this often whether the log has gone on and been cleaned up since the last one.
_CHECK_EVERY_S = 30.0
_ACTIONS_AN_ENTRY = 20
# The operation of a commit that says nothing but that files were deleted.
VACUUMED = "VACUUM END"
# More changes than this are not kept for an owner who does not ask for them; he is then told of all files.
_MOST_CHANGES = 10_000
_MOST_TRANSACTIONS = 1_000


@dataclass
class FileChanges:
    """What became of the live files since `DeltaLog.take_changes` was last called.

    Attributes
    ----------
    reloaded : bool
        All that was known before is void: `added` are all live files.
    """

    reloaded: bool = False
    added: list[Add] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class DeltaLog:
    """A handle on one table. Not safe for use by several threads at once.

    Parameters
    ----------
    what : str
        What the table is, for errors.
    expired : function
        Of the application transactions, as of a time, those that a checkpoint may forget.
    only_ours : bool
        Refuse commits of other programs.
    table_id : str
        The id that the table has, or is made with; empty: any, and a new one.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        what: str,
        *,
        expired: Expired = nothing_expires,
        only_ours: bool = True,
        table_id: str = "",
    ) -> None:
        self.store, self.files, self.folder = store, store.files, folder
        self.what, self.uri = what, store.uri_of(folder)
        self.log = LogFolder(store, folder, only_ours=only_ours)
        self._expired = expired
        self._snapshot: Snapshot | None = None
        self._changes = FileChanges(reloaded=True)
        # Of the last refresh, also when there is no snapshot because something went wrong since.
        self._version, self._id = -1, table_id
        self._token: str | None = None
        self._seen: FileInfo | None = None  # the entry of that version
        self._checked_s = 0.0
        # When this handle last met a commit after which files are deleted, or may have, by `Runtime.monotonic_s`.
        self.vacuumed_s = -math.inf
        self._checkpoint = NO_CHECKPOINT  # the newest that is known of
        self._forced = -1  # the newest version that is known to be on the disk, where writes are forced
        self._broken: str | None = None
        self._most_transactions = _MOST_TRANSACTIONS
        # So that the tables of a queue, which are committed to together, do not all have their first checkpoint at once.
        self._phase = zlib.crc32(self.uri.encode()) % CHECKPOINT_INTERVALS[0]

    # ---- reading
    def exists(self) -> bool:
        return self._snapshot is not None or self.log.exists()

    @property
    def snapshot(self) -> Snapshot:
        """As of the last refresh (the first use refreshes).

        Raises
        ------
        CorruptTableError, StoreUnavailableError
        """
        if self._snapshot is None:
            self.refresh()
        if self._snapshot is None:
            raise RuntimeError("a refresh leaves a snapshot or an error")
        return self._snapshot

    @property
    def version(self) -> int:
        """As of the last refresh; -1 before the first."""
        return self._version

    def recorded(self, app: str, default: int = -1) -> int:
        """The last version of an application transaction."""
        txn = self.snapshot.transactions.get(app)
        return default if txn is None else txn.version

    def take_changes(self) -> FileChanges:
        """What became of the live files since the last call; the first call has all."""
        snapshot, changes = self.snapshot, self._changes
        self._changes = FileChanges()
        return FileChanges(True, list(snapshot.files.values())) if changes.reloaded else changes

    def may_have_changed(self) -> bool:
        """False if a refresh would surely find nothing new; on a local disk this costs microseconds."""
        if self._snapshot is None or not self.files.is_local or self._check_is_due():
            return True
        return self.files.info(self.log.entry_path(self._version + 1)) is not None or self._was_replaced()

    def refresh(self, sure: bool = False) -> bool:
        """Read what is new in the log; True if others have changed the table since the last refresh.

        Parameters
        ----------
        sure : bool
            Notice at once if the table was deleted and created again; else that may take half a minute where a request is dear.

        Raises
        ------
        CorruptTableError
            If the log cannot be read, or is not the one of before.
        StoreUnavailableError
        """
        if self._broken is not None:
            raise CorruptTableError(self._broken, path=self.uri)
        before = self._version
        try:
            with self.explained():
                self._refresh(sure)
                if self._forced != self._version:  # nobody acts on what a power cut may take
                    self.files.force(self.log.path)
                    self._forced = self._version
        except StoreUnavailableError:
            raise  # what was applied so far is whole
        except BaseException:
            self._snapshot = None  # also a signal may come between two steps: what is half applied is loaded again
            raise
        return self._version != before

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the log folder with the table's name."""
        try:
            yield
        except (LogMissing, FileMissing):
            raise CorruptTableError(
                f"{self.what} has no Delta log at {self.uri}; it was removed or never made. Restore it from a backup",
                path=self.uri,
            ) from None
        except DamagedLog as error:
            raise CorruptTableError(
                f"the Delta log of {self.what} at {self.uri} cannot be read: {error}. Undo what another program did in its "
                "_delta_log, or restore the table from a backup",
                path=self.uri,
            ) from error

    def _refresh(self, sure: bool) -> None:
        snapshot = self._snapshot
        if snapshot is None or self._was_left_behind():
            return self._reload()
        before = self._version
        try:
            while (entry := self.log.next_entry(snapshot)) is not None:
                self._apply(snapshot, entry)
        except OtherHistory:
            self._reload()  # tells another table, or an older state, by name
            raise self._replaced() from None
        except Stranger:
            sure = True  # that is what is there, or what this handle knows
        # An entry that was not there may have been cleaned up, if this process stood still before it looked.
        if (self._version == before and self._is_gone(sure)) or self._was_left_behind():
            self._reload()

    def _is_gone(self, sure: bool) -> bool:
        """Whether the last entry that was read is gone, or another; of two that a disk's clock does not tell apart only the token is `sure`."""
        return not self._is_there() if sure else self.files.is_local and self._was_replaced()

    def _is_there(self) -> bool:
        """Whether the last entry that was read is still there; asks the store."""
        return self.log.holds(self._version, self._token)

    def _reload(self) -> None:
        began_s = self.store.runtime.monotonic_s()
        fresh = self.log.load()
        table_id = fresh.metadata.id if fresh.metadata is not None else ""
        same = self._id in ("", table_id)
        if fresh.version < self._version or not same:
            what = (
                f"went back from version {self._version} to {fresh.version}" if same else "is another table than before"
            )
            raise self._other(
                f"{self.what} at {self.uri} {what}: its log was truncated, an older state was put back, or it was deleted and created "
                f"again. {RESTORE_NEWEST}"
            )
        if fresh.version == self._version and None not in (fresh.token, self._token) and fresh.token != self._token:
            raise self._replaced()
        self._id, self._checkpoint = table_id, max(self._checkpoint, LastCheckpoint(fresh.base))
        self._snapshot, self._changes = fresh, FileChanges(reloaded=True)
        self._checked_s, self.vacuumed_s = began_s, self.store.runtime.monotonic_s()
        self._moved_on(fresh)

    def _moved_on(self, snapshot: Snapshot) -> None:
        self._version, self._token = snapshot.version, snapshot.token
        self._seen = None
        if self.files.is_local:
            with contextlib.suppress(StoreUnavailableError):  # then the next refresh loads all again
                self._seen = self.log.of_version(snapshot.version)

    def _note(self, entry: Entry) -> None:
        if entry.operation == VACUUMED:
            self.vacuumed_s = self.store.runtime.monotonic_s()
        changes = self._changes
        changes.added += entry.adds
        changes.removed += (remove.path for remove in entry.removes)
        if changes.reloaded or len(changes.added) + len(changes.removed) > _MOST_CHANGES:
            self._changes = FileChanges(reloaded=True)

    def _check_is_due(self) -> bool:
        return self.store.runtime.monotonic_s() - self._checked_s > _CHECK_EVERY_S

    def _was_left_behind(self) -> bool:
        """Whether the log has gone on and been cleaned up, so that the next entry is missing or none of this table's history; asked if that is due."""
        if self._check_is_due():
            self._checked_s, left_behind = self.store.runtime.monotonic_s(), not self.log.ends_at(self._version)
            return left_behind
        return False

    def _was_replaced(self) -> bool:
        """Whether the entry of this version is gone or another; local only."""
        return self._seen is None or self.log.of_version(self._version) != self._seen

    def _replaced(self) -> CorruptTableError:
        return self._other(
            f"{self.what} at {self.uri} has another version {self._version} than was read before: an older state was put back and "
            f"written since, or its file system let two commits have one number. {RESTORE_NEWEST}"
        )

    def _other(self, text: str) -> CorruptTableError:
        """The log is another one than was read before. This handle cannot be used any longer, as its owner knows the old one."""
        self._broken = text
        return CorruptTableError(text, path=self.uri)

    # ---- writing
    def create(self, spec: TableSpec, adds: Sequence[Add] = ()) -> None:
        """Make the table with these files as its version 0; its folder is made, too.

        Raises
        ------
        Conflict
            If it exists by now.
        CommitFailedError
        """
        made = Metadata(
            self._id or str(self.store.runtime.new_uuid()),
            to_json(spec.schema),
            spec.partition_by,
            spec.configuration,
            self.store.now_ms(),
        )
        entry = Entry(commit_info(self.store, "CREATE TABLE", made, None), True, made, tuple(adds))
        try:
            self.files.make_folder(self.log.path)
        except (StoreUnavailableError, FileMissing) as error:
            reason = "a part of the path is a file" if isinstance(error, FileMissing) else error.message
            raise CommitFailedError(f"{self.what} cannot be made at {self.uri}: {reason}", path=self.uri) from error
        began_s = self.store.runtime.monotonic_s()
        self._put(0, entry)
        self._version, self._id, self._checked_s = -1, made.id, began_s
        self._apply(Snapshot(), entry)

    def commit(
        self,
        adds: Sequence[Add] = (),
        removes: Sequence[Remove] = (),
        transactions: Mapping[str, int] | None = None,
        operation: str = "WRITE",
        metadata: Metadata | None = None,
        onto: int | None = None,
    ) -> None:
        """Become the version after that of the last refresh; the handle then knows it. With `metadata` the table has that from there on.

        Raises
        ------
        Conflict
            If another commit came first, or the handle knows another version than `onto` by now; nothing was written.
        CommitFailedError
            If the store refused for another reason.
        """
        snapshot = self._snapshot
        version = None if snapshot is None else snapshot.version
        if snapshot is None or version is None or onto not in (None, version):  # not what the caller decided on
            raise Conflict
        at = self.store.now_ms()
        recorded = {app: Transaction(version, at) for app, version in (transactions or {}).items()}
        info = commit_info(self.store, operation, snapshot.metadata, snapshot.token)
        entry = Entry(info, metadata is not None, metadata, tuple(adds), tuple(removes), recorded)
        self._put(version + 1, entry)
        self._apply(snapshot, entry)
        if self._is_checkpoint_due(self._checkpoint):
            self.store.runtime.request_upkeep(self.uri, self._upkeep)

    def _put(self, version: int, entry: Entry) -> None:
        try:
            with self.explained():
                put_entry(self.log, version, entry, self._check_is_due)
            self._forced = version
        except NotCommitted as error:
            self._snapshot = None
            raise CommitFailedError(f"{self.what}: {error} (at {self.uri})", path=self.uri) from error
        except LeftBehind:
            self._snapshot = None  # what is new is not behind what is known
            raise

    def _apply(self, snapshot: Snapshot, entry: Entry) -> None:
        try:
            self.log.apply(snapshot, entry)
            self._snapshot = snapshot
            self._note(entry)
            self._forget(snapshot)
            self._moved_on(snapshot)
        except BaseException:
            self._snapshot = None
            raise

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop what checkpoints forget, too, each time that there is twice as much."""
        if len(snapshot.transactions) > self._most_transactions:
            for app in list(self._expired(snapshot.transactions, self.store.now_ms())):
                del snapshot.transactions[app]
            self._most_transactions = max(_MOST_TRANSACTIONS, 2 * len(snapshot.transactions))

    # ---- upkeep
    def checkpoint(self) -> None:
        """Put a checkpoint of the newest version, and remove the entries that it stands for and that have outlived their retention.

        Raises
        ------
        CorruptTableError, StoreUnavailableError
        """
        with self.explained():
            self._checkpoint = self.log.write_checkpoint(self._expired)

    def _is_checkpoint_due(self, last: LastCheckpoint) -> bool:
        least, most = CHECKPOINT_INTERVALS
        snapshot = self._snapshot  # the other thread may drop it at any moment
        live = 0 if snapshot is None else len(snapshot.files)
        interval = min(most, max(least, max(live, last.actions) // _ACTIONS_AN_ENTRY))
        return self._version - last.version >= interval + (self._phase if last == NO_CHECKPOINT else 0)

    def _upkeep(self) -> None:
        """What runs in the background, beside the handle's own thread."""
        try:
            last = self.log.last_checkpoint()
            self._checkpoint = self.log.write_checkpoint(self._expired, last) if self._is_checkpoint_due(last) else last
        except (LogMissing, FileMissing):
            pass  # the table was deleted
