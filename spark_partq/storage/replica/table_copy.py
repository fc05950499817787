"""Copies one Delta table to another store by its files and commits: the copy has the same table id and versions, byte for byte.

Each commit is put only if there is none of its number, and only after the files that it adds. So the copy is, at any moment, what the
table was at some version. If another program commits to the copy, its replication stops.

A copy that is too far behind goes on at a checkpoint, which skips versions (a *jump*). Delta does not prevent a jump and a promotion
from passing each other. So a jump is announced before it is made, and `closing.close` takes the place of announced jumps that are still
to come.

Before anything is copied the original must have the version at which the copy ends (`history`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.errors import CorruptTableError, ReplicaError
from spark_partq.storage.files import (
    FileAlreadyExists,
    FileInfo,
    FileMissing,
    is_temporary,
)
from spark_partq.storage.log import VACUUMED, Add, DeltaLog
from spark_partq.storage.log.checkpoints import decode_checkpoint
from spark_partq.storage.log.entries import ForeignEntry
from spark_partq.storage.log.folder import ACT_S, DamagedLog, LogFolder, LogMissing, LogNames
from spark_partq.storage.replica.copied_files import copy_file, put_same
from spark_partq.storage.replica.history import (
    check_has_version,
    check_leads_on,
    check_not_behind,
    check_same_history,
    other_history,
    token_at,
)
from spark_partq.storage.replica.step import Step, recorded_versions
from spark_partq.storage.store import Store

# Further behind than this, the copy goes on at a checkpoint.
MAX_COMMITS = 1_000
# Up to this many commits are followed without a listing of the log.
_FEW = 100
# How long a file that is in no log stays: another process may be about to copy its commit.
SPARE_S = 3_600.0
_ATTEMPTS = 10


class TableCopy:
    """One table and its copy. Used by one thread at a time; several processes may copy the same table.

    Parameters
    ----------
    before_jump : function
        Called with (folder, version) before a jump; raises if no jump may be made.
    before_delete : function
        Called after the copy's files were listed, and before a queue is begun; raises if the copy is no longer a copy.
    is_gone : function
        Called after a checkpoint was put, or a queue was begun: whether the replica was deleted, or is another one by now.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        folder: str,
        before_jump: Callable[[str, int], None] = lambda *_: None,
        before_delete: Callable[[], None] = lambda: None,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source, self._target, self.folder = source, target, folder
        self._before_jump, self._before_delete, self._is_gone = before_jump, before_delete, is_gone
        self._from, self._to = LogFolder(source, folder), LogFolder(target, folder)
        self._version: int | None = None  # not known yet
        self._token: str | None = None  # of the copy's last version
        self._checked = self._shared = False  # whether the original was asked for that version, and has it
        self._checkpoint = -1  # the copy's newest checkpoint
        self._tidied_s: float | None = None

    @property
    def version(self) -> int:
        """The copy's version; -1 if there is none yet."""
        if self._version is None:
            log = self._to.names()
            with self._explained(self._target):
                self._token = token_at(self._to, log.last) if log.last >= 0 else None
            self._check_history(log.last)
            self._version, self._checkpoint = log.last, max(log.checkpoints, default=-1)
        return self._version

    def check_history(self) -> bool:
        """Refuse a copy if the original does not have the version at which the copy ends, before anything is copied.

        Returns
        -------
        bool
            False if the original has cleaned that version up, or there is no copy yet.

        Raises
        ------
        OtherHistoryError
            If an older state was restored.
        ReplicaError
            If the copy is of another table.
        """
        self._check_history(self.version)
        return self._shared

    def _check_history(self, at: int) -> None:
        """Check the history; the result is used by the next `steps`."""
        with self._explained():
            self._shared = at >= 0 and check_has_version(self._from, self._to, at, self._token)
        self._checked = True

    # ---- what is new
    def steps(self) -> Iterator[Step]:
        """Copy new data files, and yield what `apply` shall put into the log: at least all commits that existed at the call.

        Raises
        ------
        CorruptTableError
            If the source lacks files that its log names.
        ReplicaError
            If the copy is of another table, or is newer.
        """
        at, lost = self.version, 0  # how often files were gone
        if not self._checked:
            self._check_history(at)
        self._checked = False
        token = self._token
        for _ in range(_ATTEMPTS):
            try:
                until = self._few(at)
                log = LogNames([], [])
                if lost or until is None:
                    log = self._from.names()
                    until = log.last
                    check_not_behind(self._from, self._to, until, at)
                    if lost or self._must_jump(log, at):
                        jump = self._jump(log, at, token, write=lost > 1)
                        yield jump
                        at, token = jump.version, jump.token
                while at < until:
                    step = self._commit(at + 1, token)
                    yield step
                    at, token = step.version, step.token
                return
            except FileMissing as error:  # it was cleaned up; only a newer checkpoint can replace it
                lost, why = lost + 1, error
        raise CorruptTableError(
            f"{self._source.uri_of(self.folder)} names {why}, which is not there; restore it from a backup, or promote the "
            "replica",
            path=str(why),
        )

    def _few(self, at: int) -> int | None:
        """The last version of the original, if it can be found without a listing: then there are only a few new commits."""
        if at < 0 or not self._shared:
            return None
        if not self._has(at + 1):
            # Entries are removed in the order of their versions: the next one was not there, rather than cleaned up, if this one still is.
            return at if self._has(at) else None
        if self._has(at + _FEW):
            return None
        last = at + 1
        while last + 1 < at + _FEW and self._has(last + 1):
            last += 1
        return last

    def _has(self, version: int) -> bool:
        return self._source.files.info(self._from.entry_path(version)) is not None

    def _must_jump(self, log: LogNames, at: int) -> bool:
        if log.last == at:
            return False
        first = at < 0 and bool(log.checkpoints)
        far = log.last - at > MAX_COMMITS
        return first or far or at + 1 not in log.entries

    def _commit(self, version: int, before: str | None) -> Step:
        with self._explained():
            data = self._from.entry_bytes(version)
            entry = self._from.decoded(version, data)
        if None not in (before, entry.previous_token) and entry.previous_token != before:
            raise other_history(self._from, self._to, f"follows, in version {version}, another version than")
        for add in entry.adds:
            self._bring(add)
        return Step(
            version,
            data,
            entry.token,
            cleaned=entry.operation == VACUUMED,
            recorded=recorded_versions(entry.transactions),
        )

    def _jump(self, log: LogNames, at: int, token: str | None, write: bool) -> Step:
        """The newest checkpoint. A new one is written if no checkpoint is near enough.

        Parameters
        ----------
        at, token
            The version up to which steps were yielded, and its token.
        write : bool
            Write one in any case: the newest one may name a file that is gone. A replicator that has only the rights of SECURITY.md may not.
        """
        newest = max(log.checkpoints, default=-1)
        with self._explained():
            if write or newest <= at or log.last - newest > MAX_COMMITS:
                newest = self._from.write_checkpoint().version
            data = self._from.checkpoint_bytes(newest)
            snapshot = decode_checkpoint(data, newest, tombstones=False)
        for add in snapshot.files.values():
            self._bring(add)
        with self._explained():  # an older state may have been restored since the pass began
            if at >= 0 and not check_same_history(self._from, self._to, at, token):
                check_leads_on(self._from, self._to, snapshot)
        return Step(
            newest, data, snapshot.token, jump=True, cleaned=True, recorded=recorded_versions(snapshot.transactions)
        )

    @contextlib.contextmanager
    def _explained(self, store: Store | None = None) -> Iterator[None]:
        """Report a log that cannot be read as damaged: the original's log, or that of the copy in `store`."""
        try:
            yield
        except (DamagedLog, LogMissing, ForeignEntry) as error:
            uri, what = (store or self._source).uri_of(self.folder), "replicate to another place"
            raise CorruptTableError(
                f"the log of {uri} cannot be read ({error}); restore it from a backup, or {what if store else 'promote the replica'}",
                path=self.folder,
            ) from error

    def _bring(self, add: Add) -> None:
        """Copy a data file, unless the copy has it, and check it."""
        path = f"{self.folder}/{add.path}"
        there = self._target.files.info(path)
        if there is not None and there.size == add.size:
            return
        copy_file(self._source, self._target, path, add.size)
        try:
            with self._target.files.open_input(path) as file:
                found = pq.read_metadata(file).num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            self._target.files.delete(path)
            raise CorruptTableError(f"{self._source.uri_of(path)} is no Parquet file ({error})", path=path) from error
        if add.rows is not None and found != add.rows:
            self._target.files.delete(path)
            raise CorruptTableError(
                f"{self._source.uri_of(path)} holds {found} rows, and its log says {add.rows}; restore it from a backup",
                path=path,
            )

    # ---- putting it into the copy
    def apply(self, steps: Iterable[Step]) -> int:
        """Put what `steps` yielded into the copy's log, in order. Returns how many versions the copy moved on.

        Raises
        ------
        ReplicaError
            If another program has committed to the copy.
        """
        before, cleaned, jumped = self.version, False, False
        for step in steps:
            if step.version <= self.version:
                continue
            if step.jump:
                self._before_jump(self.folder, step.version)
            file = self._to.checkpoint_path(step.version) if step.jump else self._to.entry_path(step.version)
            try:
                self._put(file, step.data)
            except FileAlreadyExists:
                raise ReplicaError(
                    f"{self._target.uri_of(self.folder)} has another version {step.version} than "
                    f"{self._source.uri}: it was promoted, or written by something else; it is a replica no more",
                    folder=self.folder,
                ) from None
            self._version, self._token = step.version, step.token
            if step.jump:
                self._checkpoint, jumped = step.version, True
            cleaned |= step.cleaned
        if self.version > before:
            self._mirror_checkpoint(jumped)
        if cleaned or self._may_be_untidy():
            self.tidy()
        return self.version - before

    def _may_be_untidy(self) -> bool:
        """Whether files may be left over: by a process that died here or in the primary, or because they were too young to delete."""
        return self._tidied_s is None or self._source.runtime.monotonic_s() - self._tidied_s > SPARE_S

    def _put(self, path: str, data: bytes) -> None:
        """Put a file of the log, unless the same file is there already; raises `FileAlreadyExists` if another one is.

        A checkpoint is taken back if the replica is gone meanwhile. Readers of a queue that is made there, or of the copy of another primary, would
        take the checkpoint for theirs. An entry says itself of which table and which history it is. But what a queue's control table begins with is
        taken back, too: beside no replica table it would be a queue that takes messages.
        """
        begins_queue = self._begins_queue(path)
        if begins_queue:
            self._before_delete()
        self._target.files.make_folder(self._to.path)
        is_new = put_same(self._target.files, path, data)
        began_s = self._source.runtime.monotonic_s()
        if is_new and (path.endswith(".parquet") or begins_queue) and self._is_gone():
            if self._source.runtime.monotonic_s() - began_s < ACT_S:
                self._target.files.delete(path)
            self._before_delete()

    def _begins_queue(self, path: str) -> bool:
        return self.folder.startswith("queues/") and path == self._to.entry_path(0) and self.folder.endswith("/control")

    def _mirror_checkpoint(self, trim: bool) -> None:
        """Copy a checkpoint of versions that the copy has, and delete the part of the log before it that the source has deleted."""
        hint = self._from.hint()
        if hint is not None and self._checkpoint < hint.version <= self.version:
            newest = hint.version
            # The source may have a newer one by now, or another one of the same version.
            with contextlib.suppress(FileMissing, FileAlreadyExists, DamagedLog, ForeignEntry):
                data = self._from.checkpoint_bytes(newest)
                # An older state may have been restored since the pass began, and have gone on to that version.
                if decode_checkpoint(data, newest, tombstones=False).token in (None, token_at(self._to, newest)):
                    self._put(self._to.checkpoint_path(newest), data)
                    self._checkpoint = newest
            trim = True
        if not trim:
            return
        first = min(self._from.names().entries, default=self._checkpoint)
        began_s = self._source.runtime.monotonic_s()
        there = self._target.files.list_files(self._to.path)
        self._before_delete()  # what is there by now may be another table, with files of the same names
        for info in there:
            if self._source.runtime.monotonic_s() - began_s > ACT_S:
                return  # the next pass goes on
            number = re.match(r"(\d{20})\.", info.name)
            old = number is not None and int(number[1]) < min(first, self._checkpoint)
            if old or (is_temporary(info.name) and self._age_s(info) > SPARE_S):
                self._target.files.delete(f"{self._to.path}/{info.name}")

    def tidy(self) -> int:
        """Delete the copy's data files that are neither live nor in the source any more. Returns how many."""
        self._tidied_s = self._source.runtime.monotonic_s()
        # This order matters: files that are listed before the table is found to be still a copy were written by copying.
        there = [info.name for info in self._target.files.list_files(self.folder) if self._age_s(info) > SPARE_S]
        here = {info.name for info in self._source.files.list_files(self.folder)} if there else set[str]()
        if here.issuperset(there):
            return 0
        live = DeltaLog(self._target, self.folder, f"the copy of {self.folder}").snapshot.files
        self._before_delete()
        gone = [name for name in there if name not in here and name not in live]
        for name in gone:
            self._target.files.delete(f"{self.folder}/{name}")
        return len(gone)

    def _age_s(self, info: FileInfo) -> float:
        return (self._target.now_ms() - info.modified_ns / 1e6) / 1000
