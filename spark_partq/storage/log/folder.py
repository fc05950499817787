"""The folder `_delta_log` of one table: names of its files, loading a table from them, checkpoints, cleaning up.

Three rules make commits safe beside the cleaning up:

- An entry is removed only if there is a later checkpoint, and entries are removed in the order of their versions. So those that are left
  are one run. If the entry before a new one is missing, its writer has slept while others went on.
- The entry of the newest checkpoint's own version stays.
- `_last_checkpoint` is a hint. If it is wrong, old or missing, a listing finds the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.errors import CommitFailedError
from spark_partq.storage.files import FileAlreadyExists, FileInfo, FileMissing, FileTooLarge, is_litter
from spark_partq.storage.log.checkpoints import (
    MAX_BYTES,
    NO_CHECKPOINT,
    LastCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    most_of,
)
from spark_partq.storage.log.entries import Entry, ForeignEntry, Transaction, decode
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.store import Store

HINT = "_last_checkpoint"
# A larger file is not read. An entry of that size names some 200,000 files.
MAX_ENTRY_BYTES, MAX_HINT_BYTES = 64 << 20, 1 << 20
_VERSION = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_OTHER_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\..+")
_NUMBER = re.compile("[0-9]{20}")
# So often a load begins again because somebody cleaned up under it.
_ATTEMPTS = 10
# Who deletes a file by its name does so within this time of looking: another table may be made there, with files of the same names.
ACT_S = 30.0
CLEAN_UP_EVERY = 250

# Takes the transactions of a table and the time in milliseconds; gives the app ids that a checkpoint may leave out.
Expired = Callable[[Mapping[str, Transaction], int], Iterable[str]]


def nothing_expires(transactions: Mapping[str, Transaction], now: int) -> Iterable[str]:
    return ()


class LogMissing(Exception):
    """The folder holds no log."""


class DamagedLog(Exception):
    """The log cannot be read; the text names the file and what is wrong with it."""


class OtherHistory(DamagedLog):
    """An entry follows another one than the one before it."""


class Stranger(Exception):
    """An entry was made for another table than the one whose log it would go on with: one of both was made in the other's place."""


@dataclass(frozen=True)
class LogNames:
    """The versions of which a log folder holds entries and checkpoints, each sorted."""

    entries: list[int]
    checkpoints: list[int]

    @classmethod
    def of(cls, names: Iterable[str]) -> LogNames:
        entries: list[int] = []
        checkpoints: list[int] = []
        for name in names:
            if found := _VERSION.fullmatch(name):
                (entries if found[2] == "json" else checkpoints).append(int(found[1]))
        return cls(sorted(entries), sorted(checkpoints))

    @property
    def last(self) -> int:
        """The newest version; -1 if there is none."""
        return max([-1, *self.entries[-1:], *self.checkpoints[-1:]])


class LogFolder:
    """The log folder of the table in `folder`. Keeps nothing in mind."""

    def __init__(self, store: Store, folder: str, *, only_ours: bool = True) -> None:
        self.store, self.files = store, store.files
        self.folder, self.path = folder, f"{folder}/_delta_log"
        self._only_ours = only_ours

    def entry_path(self, version: int) -> str:
        return f"{self.path}/{version:020d}.json"

    def checkpoint_path(self, version: int) -> str:
        return f"{self.path}/{version:020d}.checkpoint.parquet"

    def names(self) -> LogNames:
        return LogNames.of(info.name for info in self.files.list_files(self.path))

    def ends_at(self, version: int) -> bool:
        """Whether that version is there, and so is every later one up to the last."""
        names = LogNames.of(info.name for info in self.files.list_files(self.path, after=f"{version:020d}"))
        later = [entry for entry in names.entries if entry > version]
        there = version in names.entries or version in names.checkpoints
        return there and names.last <= version + len(later)

    def exists(self) -> bool:
        return self.files.info(self.entry_path(0)) is not None or self.names().last >= 0

    def has_beginning(self) -> bool:
        """Whether there is something from which the table can be loaded; not so if only remains of another one are left."""
        if self.files.info(self.entry_path(0)) is not None:
            return True
        return bool(self.names().checkpoints)

    def holds(self, version: int, token: str | None) -> bool:
        """Whether the log has that version, and it is the commit with this token, if that is known."""
        try:
            return self.read(version).token == token or token is None
        except (FileMissing, DamagedLog):
            pass
        try:  # a copy that skipped it has only a checkpoint of it (`storage.replica.table_copy`)
            return self.checkpoint(version, tombstones=False).token == token or token is None
        except (FileMissing, DamagedLog):
            return False

    def of_version(self, version: int) -> FileInfo | None:
        """The entry of a version; of a copy that skipped it (`storage.replica.table_copy`), its checkpoint."""
        return self.files.info(self.entry_path(version)) or self.files.info(self.checkpoint_path(version))

    # ---- reading
    def read(self, version: int) -> Entry:
        """The entry of a version.

        Raises
        ------
        FileMissing, DamagedLog
        """
        return self.decoded(version, self.entry_bytes(version))

    def decoded(self, version: int, data: bytes) -> Entry:
        """What the file of an entry says, or `DamagedLog`."""
        try:
            return decode(data, only_ours=self._only_ours)
        except ForeignEntry as error:
            raise DamagedLog(f"{version:020d}.json: {error}") from error

    def entry_bytes(self, version: int) -> bytes:
        """The file of an entry; raises `FileMissing`, `DamagedLog`."""
        return self._bytes(self.entry_path(version), MAX_ENTRY_BYTES)

    def checkpoint_bytes(self, version: int) -> bytes:
        """The file of a checkpoint; raises `FileMissing`, `DamagedLog`."""
        return self._bytes(self.checkpoint_path(version), MAX_BYTES)

    def _bytes(self, path: str, most: int) -> bytes:
        try:
            return self.files.read(path, most)
        except FileTooLarge as error:
            raise DamagedLog(f"{path.rpartition('/')[2]}: {error}") from error

    def load(self, *, tombstones: bool = False) -> Snapshot:
        """The table as it is now: the newest checkpoint and the entries after it.

        Raises
        ------
        LogMissing, DamagedLog
        """
        for _ in range(_ATTEMPTS):
            names = self._names_from(self.hint())
            snapshot = Snapshot(tombstones={} if tombstones else None)
            if names.checkpoints:
                try:
                    snapshot = self.checkpoint(names.checkpoints[-1], tombstones=tombstones)
                except FileMissing:
                    continue  # a newer one took its place
            with contextlib.suppress(Stranger):
                while (entry := self.next_entry(snapshot)) is not None:
                    self.apply(snapshot, entry)
            if snapshot.version >= names.last or (snapshot.version >= 0 and self._only_strangers(snapshot, names)):
                if snapshot.version < 0:
                    raise LogMissing
                return snapshot
            missing = snapshot.version + 1
            now = self.names()
            if now.checkpoints[-1:] > names.checkpoints[-1:] or missing in now.entries:
                continue  # cleaned up meanwhile, or put while the folder was listed
            later = [version for version in now.entries if version > missing]
            if later:
                raise DamagedLog(f"version {missing} is missing, though there is version {later[0]}")
        raise DamagedLog("its versions vanish faster than they can be read")

    def next_entry(self, snapshot: Snapshot) -> Entry | None:
        """The entry that follows; None if there is none.

        Raises
        ------
        OtherHistory, Stranger, DamagedLog
        """
        version = snapshot.version + 1
        try:
            entry = self.read(version)
        except FileMissing:
            return None
        if not entry.is_of(snapshot.metadata):
            raise Stranger
        if None not in (entry.previous_token, snapshot.token) and entry.previous_token != snapshot.token:
            raise OtherHistory(
                f"{version:020d}.json: it follows another version {snapshot.version} than the one that is there"
            )
        return entry

    def _only_strangers(self, snapshot: Snapshot, names: LogNames) -> bool:
        """Whether all entries behind the snapshot were made for another table."""
        later = [version for version in names.entries if version > snapshot.version]
        try:
            strangers = all(not self.read(version).is_of(snapshot.metadata) for version in later)
        except FileMissing:
            return False
        return strangers and names.checkpoints[-1:] <= [snapshot.version]

    def apply(self, snapshot: Snapshot, entry: Entry) -> None:
        """Go on to that entry, or raise `DamagedLog`."""
        try:
            snapshot.apply(entry)
        except ForeignEntry as error:
            raise DamagedLog(f"{snapshot.version + 1:020d}.json: {error}") from error

    def _names_from(self, hint: LastCheckpoint | None) -> LogNames:
        if hint is not None:
            names = LogNames.of(info.name for info in self.files.list_files(self.path, after=f"{hint.version:020d}"))
            if hint.version in names.checkpoints:
                return names
        found = [info.name for info in self.files.list_files(self.path)]
        names = LogNames.of(found)
        if not names.checkpoints and 0 not in names.entries:
            other = sorted(name for name in found if _OTHER_CHECKPOINT.fullmatch(name))
            if other:
                raise DamagedLog(f"{other[-1]}: it is a checkpoint of a kind that spark_partq does not write")
        return names

    def last_checkpoint(self) -> LastCheckpoint:
        hint = self.hint()
        newest = max(self._names_from(hint).checkpoints, default=NO_CHECKPOINT.version)
        return hint if hint is not None and hint.version == newest else LastCheckpoint(newest)

    def hint(self) -> LastCheckpoint | None:
        """What `_last_checkpoint` names, if it can be read."""
        try:
            told = json.loads(self.files.read(f"{self.path}/{HINT}", MAX_HINT_BYTES))
            version, actions = told["version"], told.get("size")
        except (FileMissing, FileTooLarge, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not isinstance(version, int) or not 0 <= version < 10**20:
            return None
        return LastCheckpoint(version, actions if isinstance(actions, int) else 0)

    def checkpoint(self, version: int, *, tombstones: bool) -> Snapshot:
        """The snapshot of a checkpoint; raises `FileMissing`, `DamagedLog`."""
        path = self.checkpoint_path(version)
        try:
            return decode_checkpoint(self.checkpoint_bytes(version), version, tombstones, only_ours=self._only_ours)
        except ForeignEntry as error:
            raise DamagedLog(f"{path.rpartition('/')[2]}: {error}") from error

    # ---- upkeep
    def write_checkpoint(
        self, expired: Expired = nothing_expires, last: LastCheckpoint = NO_CHECKPOINT
    ) -> LastCheckpoint:
        """Put a checkpoint of the newest version, unless it has one, and remove what it stands for; returns that checkpoint.

        Parameters
        ----------
        last : LastCheckpoint
            The checkpoint before, if one in `CLEAN_UP_EVERY` versions is to clean up, which lists the whole folder.

        Raises
        ------
        LogMissing, DamagedLog, CommitFailedError
        """
        snapshot, count = self.load(tombstones=True), 0
        if self.files.info(self.checkpoint_path(snapshot.version)) is None:
            data, count = encode_checkpoint(_forgetful(snapshot, expired, self.store_ms()))
            most = most_of(len(data)).rows
            if count > most:
                raise CommitFailedError(
                    f"a checkpoint of {self.path} has {count:,} actions, more than the {most:,} that readers take; nothing was "
                    "changed. Let `maintain` remove messages that all groups have read, or put small files together"
                )
            with contextlib.suppress(FileAlreadyExists):  # another process made the same
                self.files.put_if_absent(self.checkpoint_path(snapshot.version), data)
            if not self._stands_for(snapshot):
                with contextlib.suppress(FileMissing):  # another table may have one of this version
                    if self.checkpoint_bytes(snapshot.version) == data:
                        self.files.delete(self.checkpoint_path(snapshot.version))
                raise LogMissing
            hint = {"version": snapshot.version, "size": count, "sizeInBytes": len(data)}
            hint["numOfAddFiles"] = len(snapshot.files)
            named = self.hint()
            if (
                named is None
                or named.version < snapshot.version
                or self.files.info(self.checkpoint_path(named.version)) is None
            ):
                self.files.put(f"{self.path}/{HINT}", json.dumps(hint).encode())
        if snapshot.version // CLEAN_UP_EVERY > last.version // CLEAN_UP_EVERY:
            self.clean_up(_duration_ms(snapshot, "delta.logRetentionDuration"))
        return LastCheckpoint(snapshot.version, count)

    def _stands_for(self, snapshot: Snapshot) -> bool:
        """Whether a checkpoint of this snapshot is one of the table that is there: it may have been deleted and created again meanwhile."""
        try:
            return snapshot.token is None or self.read(snapshot.version).token == snapshot.token
        except FileMissing:  # others have put a newer one and cleaned up, or the table is gone
            return self.names().checkpoints[-1:] > [snapshot.version]

    def clean_up(self, retention_ms: int) -> None:
        """Remove entries and checkpoints that the newest checkpoint stands for and that are older than the retention.

        Ages are by the store's clock: how much older a file is than the newest checkpoint. All versions up to the last old one are removed, so
        that what is left is one run, whatever that clock does.
        """
        began_s = self.store.runtime.monotonic_s()
        found = self.files.list_files(self.path)
        newest = max(LogNames.of(info.name for info in found).checkpoints, default=-1)
        now_ns = max(
            (info.modified_ns for info in found if info.name == f"{newest:020d}.checkpoint.parquet"), default=0
        )
        outlived = (info.name for info in found if (now_ns - info.modified_ns) // 1_000_000 > retention_ms)
        last_old = max(filter(_VERSION.fullmatch, outlived), default="")
        for info in found:  # in the order of versions
            match = _VERSION.fullmatch(info.name)
            is_old = match is not None and info.name <= last_old and int(match[1]) < newest
            if is_old or (match is None and is_litter(info, now_ns // 1_000_000)):
                if self.store.runtime.monotonic_s() - began_s > ACT_S:
                    return  # the next one goes on
                self.files.delete(f"{self.path}/{info.name}")

    def delete(self, names: Sequence[str]) -> int:
        for name in names:
            self.files.delete(f"{self.folder}/{name}")
        return len(names)

    def in_order_of_deletion(self) -> list[str]:
        """All files of the folder. First what the newest checkpoint stands for, then from the newest on, and last what the log begins with."""
        found = [info.name for info in self.files.list_files(self.path)]
        newest = max(LogNames.of(found).checkpoints, default=0)
        beginning = [f"{newest:020d}.json", f"{newest:020d}.checkpoint.parquet"]
        old = [name for name in found if (number := _NUMBER.match(name)) and int(number[0]) < newest]
        rest = [name for name in reversed(found) if name not in {*beginning, *old}]
        return [*old, *rest, *(name for name in beginning if name in found)]

    def store_ms(self) -> int:
        """The store's clock, in milliseconds since 1970: this machine's may be wrong."""
        return self.store.clock_ms(self.path)


def _forgetful(snapshot: Snapshot, expired: Expired, now: int) -> Snapshot:
    """Without the tombstones and transactions whose time is over.

    No file was removed later than now, whatever the clock of the process that removed it said.
    """
    kept_ms = _duration_ms(snapshot, "delta.deletedFileRetentionDuration")
    gone = set(expired(snapshot.transactions, now))
    snapshot.transactions = {app: txn for app, txn in snapshot.transactions.items() if app not in gone}
    tombstones = snapshot.tombstones or {}
    left = {path: t for path, t in tombstones.items() if now - t.deleted_ms <= kept_ms}
    snapshot.tombstones = {path: t if t.deleted_ms <= now else t._replace(deleted_ms=now) for path, t in left.items()}
    return snapshot


_UNITS_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DEFAULTS_MS = {"delta.logRetentionDuration": 30 * 86_400_000, "delta.deletedFileRetentionDuration": 7 * 86_400_000}


def _duration_ms(snapshot: Snapshot, setting: str) -> int:
    """A setting of the table such as ``interval 1 hours``; Delta's default if it is not set."""
    text = snapshot.metadata.configuration.get(setting) if snapshot.metadata is not None else None
    match = re.fullmatch(r"(?:interval +)?(\d+) +([a-z]+?)s?", (text or "").strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        return _DEFAULTS_MS[setting]
    return int(match[1]) * _UNITS_MS[match[2]]
