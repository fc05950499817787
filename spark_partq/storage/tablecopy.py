"""Follows one Delta table of another store by its files and commits: the copy has the same table id and versions, byte for byte.

Each commit is put only if there is none of its number, and only after the files that it adds. So the copy is, at any moment, what the
table was at some version, and whoever commits to the copy himself ends the following.

A copy that fell too far behind goes on at a checkpoint, which skips versions (a *jump*). Nothing in Delta keeps two from
passing each other there, so a jump is announced before it is made, and `close` takes the place of those that are still to come.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_partq.core.errors import CorruptTableError, ReplicaError
from spark_partq.storage.files import UNFINISHED, Files, Gone, Taken

# Further behind than this, the copy goes on at a checkpoint.
MAX_COMMITS = 1_000
# So many are followed without a listing of the log.
_FEW = 100
# A file that is in no log may belong to a commit that somebody else is about to copy.
SPARE_S = 3_600.0
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_CLOSED = "CLOSE REPLICA"
_ATTEMPTS = 10


@dataclass(frozen=True)
class Log:
    """The numbers of the commits and checkpoints that a log folder holds, each sorted."""

    commits: list[int]
    checkpoints: list[int]

    @classmethod
    def of(cls, names: Iterable[str]) -> Log:
        commits: list[int] = []
        checkpoints: list[int] = []
        for name in names:
            for pattern, found in ((_COMMIT, commits), (_CHECKPOINT, checkpoints)):
                if match := pattern.fullmatch(name):
                    found.append(int(match[1]))
        return cls(sorted(commits), sorted(checkpoints))

    @property
    def last(self) -> int:
        return max([-1, *self.commits[-1:], *self.checkpoints[-1:]])


@dataclass(frozen=True)
class Step:
    """One file to put into the copy's log; the data files that it names are there."""

    version: int
    data: bytes
    jump: bool = False
    cleaned: bool = False  # the table was vacuumed


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
        source: Files,
        target: Files,
        folder: str,
        before_jump: Callable[[str, int], None] = lambda *_: None,
        before_delete: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._target, self.folder = source, target, folder
        self._before_jump, self._before_delete = before_jump, before_delete
        self._log = f"{folder}/_delta_log"
        self._version: int | None = None  # not known yet
        self._checkpoint = -1  # the copy's newest

    @property
    def version(self) -> int:
        """The copy's version; -1 if there is none yet."""
        if self._version is None:
            log = Log.of(self._target.list(self._log))
            if log.last >= 0:
                self._check_same(log.last)
            self._version, self._checkpoint = log.last, max(log.checkpoints, default=-1)
        return self._version

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
        for _ in range(_ATTEMPTS):
            try:
                until = self._few(at)
                log = Log([], [])
                if lost or until is None:
                    log = Log.of(self._source.list(self._log))
                    until = log.last
                    if until < at:
                        raise ReplicaError(
                            f"{self._source.store.uri_of(self.folder)} ends at version {until}, its copy in "
                            f"{self._target.store.uri} at {at}: an older state was put back. Remove the replica and make it anew",
                            folder=self.folder,
                        )
                    if lost or self._must_jump(log, at):
                        jump = self._jump(log, at, lost)
                        yield jump
                        at = jump.version
                while at < until:
                    step = self._commit(at + 1)
                    yield step
                    at = step.version
                return
            except Gone as error:  # it was cleaned up; only a newer checkpoint can stand for it
                lost, why = True, error
        raise CorruptTableError(
            f"{self._source.store.uri_of(self.folder)} names {why}, which is not there; restore it from a backup, or promote the "
            "replica",
            path=str(why),
        )

    def _few(self, at: int) -> int | None:
        """The version up to which to follow, if that can be told without a listing: all that is there lies below."""
        if at < 0 or not self._source.exists(self._commit_file(at)):
            return None
        if not self._source.exists(self._commit_file(at + 1)):
            return at
        if self._source.exists(self._commit_file(at + _FEW)):
            return None
        last = at + 1
        while last + 1 < at + _FEW and self._source.exists(self._commit_file(last + 1)):
            last += 1
        return last

    def _must_jump(self, log: Log, at: int) -> bool:
        if log.last == at:
            return False
        first = at < 0 and bool(log.checkpoints)
        far = log.last - at > MAX_COMMITS
        return first or far or at + 1 not in log.commits

    def _commit(self, version: int) -> Step:
        data = self._source.read(self._commit_file(version))
        cleaned = False
        for line in data.splitlines():
            action: dict[str, Any] = json.loads(line) if line.strip() else {}
            if "add" in action:
                self._bring(action["add"])
            cleaned |= action.get("commitInfo", {}).get("operation") == "VACUUM END"
        return Step(version, data, cleaned=cleaned)

    def _jump(self, log: Log, at: int, lost: bool) -> Step:
        """The newest checkpoint; a new one if something that older ones name is lost, or if there is none in reach."""
        newest = max(log.checkpoints, default=-1)
        if lost or newest <= at or log.last - newest > MAX_COMMITS:
            try:
                table = DeltaTable(self._source.store.uri_of(self.folder), storage_options=self._source.store.options)
                newest = table.version()
                table.create_checkpoint()
            except (DeltaError, OSError) as error:
                raise CorruptTableError(
                    f"the log of {self._source.store.uri_of(self.folder)} cannot be read ({_first_line(error)})",
                    path=self.folder,
                ) from error
        data = self._source.read(self._checkpoint_file(newest))
        for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(columns=["add.path", "add.size", "add.stats"]):
            for add in batch.column("add").drop_null().to_pylist():
                self._bring(add)
        return Step(newest, data, jump=True, cleaned=True)

    def _bring(self, add: dict[str, Any]) -> None:
        """Copy a data file, unless it is there, and check it."""
        path, size = f"{self.folder}/{unquote(add['path'])}", int(add["size"])
        there = self._target.store.files.get_file_info(path)
        if there.size == size:
            return
        self._target.copy(self._source, path, size)
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
        try:
            with self._target.store.files.open_input_file(path) as file:
                found = pq.read_metadata(file).num_rows
        except (pa.ArrowException, ValueError) as error:
            self._target.delete(path)
            raise CorruptTableError(
                f"{self._source.store.uri_of(path)} is no Parquet file ({error})", path=path
            ) from error
        if rows is not None and found != rows:
            self._target.delete(path)
            raise CorruptTableError(
                f"{self._source.store.uri_of(path)} holds {found} rows, and its log says {rows}; restore it from a backup",
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
            file = self._checkpoint_file(step.version) if step.jump else self._commit_file(step.version)
            try:
                self._target.put_new(file, step.data)
            except Taken:
                raise ReplicaError(
                    f"{self._target.store.uri_of(self.folder)} has another version {step.version} than "
                    f"{self._source.store.uri}: it was promoted, or written by something else; it is a replica no more",
                    folder=self.folder,
                ) from None
            self._version = step.version
            if step.jump:
                self._checkpoint, jumped = step.version, True
            cleaned |= step.cleaned
        if self.version > before:
            self._mirror_checkpoint(jumped)
        if cleaned:
            self.tidy()
        return self.version - before

    def _mirror_checkpoint(self, trim: bool) -> None:
        """Take over a checkpoint of the versions that are there, and drop what the source has dropped of the log before it."""
        try:
            newest = int(json.loads(self._source.read(f"{self._log}/_last_checkpoint"))["version"])
            if self._checkpoint < newest <= self.version:
                data = self._source.read(self._checkpoint_file(newest))
                with contextlib.suppress(Taken):  # made anew at the source, of the same version
                    self._target.put_new(self._checkpoint_file(newest), data)
                self._checkpoint, trim = newest, True
        except (Gone, ValueError, KeyError):
            pass  # there is none, or a newer one by now
        if not trim:
            return
        first = min(Log.of(self._source.list(self._log)).commits, default=self._checkpoint)
        for name, info in sorted(self._target.list(self._log).items()):
            number = re.match(r"(\d{20})\.", name)
            old = number is not None and int(number[1]) < min(first, self._checkpoint)
            if old or (name.startswith(UNFINISHED) and _age_s(info) > SPARE_S):
                self._target.delete(f"{self._log}/{name}")

    def tidy(self) -> int:
        """Delete the copy's data files that are neither live nor in the source any more; return how many."""
        # In this order: what is listed before it is known to be a copy was written by copying.
        there = self._target.list(self.folder)
        here = self._source.list(self.folder)
        table = DeltaTable(self._target.store.uri_of(self.folder), storage_options=self._target.store.options)
        live = {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}
        self._before_delete()
        gone = [n for n, info in there.items() if n not in here and n not in live and _age_s(info) > SPARE_S]
        for name in gone:
            self._target.delete(f"{self.folder}/{name}")
        return len(gone)

    # ---- names
    def _commit_file(self, version: int) -> str:
        return f"{self._log}/{version:020d}.json"

    def _checkpoint_file(self, version: int) -> str:
        return f"{self._log}/{version:020d}.checkpoint.parquet"

    def _check_same(self, version: int) -> None:
        """Refuse a copy that is of another table, or has gone its own way."""
        try:
            same = self._source.read(self._commit_file(version)) == self._target.read(self._commit_file(version))
        except Gone:
            ids = [_table_id(files, self.folder) for files in (self._source, self._target)]
            same = None not in ids and ids[0] == ids[1]
        if not same:
            raise ReplicaError(
                f"{self._target.store.uri_of(self.folder)} is no copy of {self._source.store.uri_of(self.folder)}, or has been "
                "written since; choose another location, or delete what is there",
                folder=self.folder,
            )


def close(files: Files, folder: str, jumps: Iterable[int]) -> None:
    """End the following of a table: nothing that is still on its way can be put any more.

    A commit without content takes the next number. Of each announced jump that has not been made, a checkpoint of what the copy is
    now takes the place.
    """
    log_folder = f"{folder}/_delta_log"
    for version in sorted(jumps):
        last = Log.of(files.list(log_folder)).last
        if version <= last:
            continue
        DeltaTable(files.store.uri_of(folder), storage_options=files.store.options).create_checkpoint()
        now = files.read(f"{log_folder}/{last:020d}.checkpoint.parquet")
        with contextlib.suppress(Taken):  # the jump was made
            files.put_new(f"{log_folder}/{version:020d}.checkpoint.parquet", now)
    info = {"timestamp": time.time_ns() // 1_000_000, "operation": _CLOSED, "engineInfo": "spark_partq"}
    data = f"{json.dumps({'commitInfo': info})}\n".encode()
    while True:
        last = Log.of(files.list(log_folder)).last
        try:
            files.put_new(f"{log_folder}/{last + 1:020d}.json", data)
            return
        except Taken:
            continue


def drop_ahead(files: Files, folder: str) -> None:
    """Delete files of commits that were not put any more, after `close`: they look as if the log had been cut off (`storage.rows`)."""
    last = Log.of(files.list(f"{folder}/_delta_log")).last
    for name in files.list(folder):
        version = re.match(r"(\d{20})-", name)
        if version is not None and int(version[1]) > last:
            files.delete(f"{folder}/{name}")


def _table_id(files: Files, folder: str) -> str | None:
    try:
        table = DeltaTable(files.store.uri_of(folder), storage_options=files.store.options)
        return str(table.metadata().id)
    except (DeltaError, OSError):
        return None


def _age_s(info: Any) -> float:
    age: dt.timedelta = dt.datetime.now(dt.UTC) - info.mtime
    return age.total_seconds()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
