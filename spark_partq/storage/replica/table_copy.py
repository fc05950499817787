"""Follows one Delta table of another store by its files and commits: the copy has the same table id and versions, byte for byte.

Each commit is put only if there is none of its number, and only after the files that it adds. So the copy is, at any moment, what the
table was at some version. If anyone else commits to the copy, replication of it stops.

A copy that fell too far behind goes on at a checkpoint, which skips versions (a *jump*). Nothing in Delta keeps two from
passing each other there, so a jump is announced before it is made, and `closing.close` takes the place of those that are still to come.

Before anything is copied the original must have the version at which the copy ends (`history`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.errors import CorruptTableError, ReplicaError, StoreUnavailableError
from spark_partq.storage.files import (
    FileAlreadyExists,
    FileInfo,
    FileMissing,
    Files,
    FileTooLarge,
    Output,
    is_temporary,
)
from spark_partq.storage.log import VACUUMED, Add, DeltaLog
from spark_partq.storage.log.checkpoints import decode_checkpoint
from spark_partq.storage.log.entries import ForeignEntry
from spark_partq.storage.log.folder import DamagedLog, LogFolder, LogMissing, LogNames
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
# So many are followed without a listing of the log.
_FEW = 100
# A file that is in no log may belong to a commit that somebody else is about to copy.
SPARE_S = 3_600.0
_ATTEMPTS = 10
_CHUNK = 1 << 20


class TableCopy:
    """One table and its copy. Used by one thread at a time; several processes may copy the same table.

    Parameters
    ----------
    before_jump : function
        Told (folder, version) before a jump; raises if there may be none.
    before_delete : function
        Asked after the copy's files were listed; raises if the copy is not a copy any more.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        folder: str,
        before_jump: Callable[[str, int], None] = lambda *_: None,
        before_delete: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._target, self.folder = source, target, folder
        self._before_jump, self._before_delete = before_jump, before_delete
        self._from, self._to = LogFolder(source, folder), LogFolder(target, folder)
        self._version: int | None = None  # not known yet
        self._token: str | None = None  # of the copy's last version
        self._checked = self._shared = False  # whether its original has that version was asked, and it has
        self._checkpoint = -1  # the copy's newest
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

    def check_history(self) -> None:
        """Refuse a copy whose original does not have the version at which it ends, before anything is copied.

        Raises
        ------
        OtherHistoryError
            If an older state was put back.
        ReplicaError
            If the copy is of another table.
        """
        self._check_history(self.version)

    def _check_history(self, at: int) -> None:
        """What it finds holds for the next `steps`."""
        with self._explained():
            self._shared = at >= 0 and check_has_version(self._from, self._to, at, self._token)
        self._checked = True

    # ---- what is new
    def steps(self) -> Iterator[Step]:
        """Copy new data files, and yield what `apply` is to put into the log: at least all commits that were there at the call.

        Raises
        ------
        CorruptTableError
            If the source lacks what its log names.
        ReplicaError
            If the copy is of another table, or newer.
        """
        at, lost = self.version, False
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
                        jump = self._jump(log, at, token, lost)
                        yield jump
                        at, token = jump.version, jump.token
                while at < until:
                    step = self._commit(at + 1, token)
                    yield step
                    at, token = step.version, step.token
                return
            except FileMissing as error:  # it was cleaned up; only a newer checkpoint can stand for it
                lost, why = True, error
        raise CorruptTableError(
            f"{self._source.uri_of(self.folder)} names {why}, which is not there; restore it from a backup, or promote the "
            "replica",
            path=str(why),
        )

    def _few(self, at: int) -> int | None:
        """The version up to which to follow, if that can be told without a listing: all that is there lies below."""
        if at < 0 or not self._shared:
            return None
        if not self._has(at + 1):
            return at
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

    def _jump(self, log: LogNames, at: int, token: str | None, lost: bool) -> Step:
        """The newest checkpoint; a new one if something that older ones name is lost, or if there is none in reach.

        Parameters
        ----------
        at, token
            The version up to which steps were made, and its token.
        """
        newest = max(log.checkpoints, default=-1)
        with self._explained():
            if lost or newest <= at or log.last - newest > MAX_COMMITS:
                newest = self._from.write_checkpoint()
            data = self._from.checkpoint_bytes(newest)
            snapshot = decode_checkpoint(data, newest, tombstones=False)
        for add in snapshot.files.values():
            self._bring(add)
        with self._explained():  # an older state may have been put back since the pass began
            if at >= 0 and not check_same_history(self._from, self._to, at, token):
                check_leads_on(self._from, self._to, snapshot)
        return Step(
            newest, data, snapshot.token, jump=True, cleaned=True, recorded=recorded_versions(snapshot.transactions)
        )

    @contextlib.contextmanager
    def _explained(self, store: Store | None = None) -> Iterator[None]:
        """What cannot be read is damage: of the original, or of the copy in that store."""
        try:
            yield
        except (DamagedLog, LogMissing, ForeignEntry) as error:
            uri, what = (store or self._source).uri_of(self.folder), "replicate to another place"
            raise CorruptTableError(
                f"the log of {uri} cannot be read ({error}); restore it from a backup, or {what if store else 'promote the replica'}",
                path=self.folder,
            ) from error

    def _bring(self, add: Add) -> None:
        """Copy a data file, unless it is there, and check it."""
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
        """Put what `steps` gave into the copy's log, in order; return how many versions it moved on.

        Raises
        ------
        ReplicaError
            If somebody else has committed to the copy.
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
        """Whether files may have been left: by a process that died, by one that died in the primary, or as they were too young."""
        return self._tidied_s is None or self._source.runtime.monotonic_s() - self._tidied_s > SPARE_S

    def _put(self, path: str, data: bytes) -> None:
        """Put a file of the log unless it is there already; raises `FileAlreadyExists` if it is another one."""
        self._target.files.make_folder(self._to.path)
        put_same(self._target.files, path, data)

    def _mirror_checkpoint(self, trim: bool) -> None:
        """Take over a checkpoint of the versions that are there, and drop what the source has dropped of the log before it."""
        newest = self._from.hint()
        if newest is not None and self._checkpoint < newest <= self.version:
            # There may be a newer one by now, or another one of the same version.
            with contextlib.suppress(FileMissing, FileAlreadyExists, DamagedLog, ForeignEntry):
                data = self._from.checkpoint_bytes(newest)
                # An older state may have been put back since the pass began, and gone on to that version.
                if decode_checkpoint(data, newest, tombstones=False).token in (None, token_at(self._to, newest)):
                    self._put(self._to.checkpoint_path(newest), data)
                    self._checkpoint = newest
            trim = True
        if not trim:
            return
        first = min(self._from.names().entries, default=self._checkpoint)
        for info in self._target.files.list_files(self._to.path):
            number = re.match(r"(\d{20})\.", info.name)
            old = number is not None and int(number[1]) < min(first, self._checkpoint)
            if old or (is_temporary(info.name) and self._age_s(info) > SPARE_S):
                self._target.files.delete(f"{self._to.path}/{info.name}")

    def tidy(self) -> int:
        """Delete the copy's data files that are neither live nor in the source any more; return how many."""
        self._tidied_s = self._source.runtime.monotonic_s()
        # In this order: what is listed before it is known to be a copy was written by copying.
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


def copy_file(source: Store, target: Store, path: str, size: int) -> None:
    """Take over a file of that size from another store, under the same path; it appears when it is whole.

    Raises
    ------
    FileMissing
        If the other store does not have it.
    CorruptTableError
        If it has another size.
    """
    with source.files.open_input(path) as from_:
        output, copied = _output(target, path), 0
        try:
            while chunk := from_.read(_CHUNK):
                output.sink.write(chunk)
                copied += len(chunk)
            if copied != size:
                raise CorruptTableError(
                    f"{path} in {source.uri} has {copied} bytes instead of {size}: it was replaced or cut short. Restore it from "
                    "a backup",
                    path=path,
                )
            output.close()
        except BaseException:
            output.discard()
            raise


def _output(target: Store, path: str) -> Output:
    try:
        target.files.make_folder(path.rpartition("/")[0])
        return target.files.open_output(path)
    except FileMissing as error:
        raise StoreUnavailableError(
            f"{target.uri_of(path)} cannot be written: its folder is gone", path=path
        ) from error


def put_same(files: Files, path: str, data: bytes) -> None:
    """Put a file unless it is there already; raises `FileAlreadyExists` if there is another one."""
    for attempt in range(_ATTEMPTS):
        try:
            files.put_if_absent(path, data)
            return
        except FileAlreadyExists:
            # An object store may answer so to who comes at the same time, whose file is not there yet.
            with contextlib.suppress(FileMissing, FileTooLarge):
                if files.read(path, len(data)) == data:
                    return
                raise
            if attempt == _ATTEMPTS - 1:
                raise
