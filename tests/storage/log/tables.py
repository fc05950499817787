"""A small table for tests of the log, its files by name, and processes that count in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_partq.storage.files import FileInfo, Files, MemoryFiles, open_files
from spark_partq.storage.log import LONG_LOG, Add, DeltaLog, Expired, Snapshot, TableSpec, nothing_expires, retrying
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from spark_partq.storage.upkeep import UPKEEP

FOLDER = "t"
WHAT = "the table"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 1_700_000_000_000
NEXT = "next"
FIELDS = [
    {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    {"name": "base_offset", "type": "long", "nullable": True, "metadata": {}},
]


def spec(**configuration: str) -> TableSpec:
    """Settings are named without their ``delta.``."""
    settings = {f"delta.{name}": value for name, value in configuration.items()}
    return TableSpec({"type": "struct", "fields": FIELDS}, ("base_offset",), {**LONG_LOG, **settings})


def handle(files: Files, uri: str = "/store", expired: Expired = nothing_expires) -> DeltaLog:
    return DeltaLog(Store.over(files, uri=uri), FOLDER, WHAT, expired=expired)


def refreshed(files: Files) -> DeltaLog:
    """A handle that knows the table as it is now."""
    found = handle(files)
    found.refresh()
    return found


def entry_path(version: int) -> str:
    return f"{FOLDER}/_delta_log/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    return f"{FOLDER}/_delta_log/{version:020d}.checkpoint.parquet"


HINT_PATH = f"{FOLDER}/_delta_log/_last_checkpoint"


def count(table: DeltaLog, times: int = 1) -> None:
    """Read, add one, write."""
    for _ in range(times):

        def attempt() -> None:
            table.refresh()
            table.commit(transactions={NEXT: table.recorded(NEXT, 0) + 1})

        retrying(SYSTEM, attempt, WHAT)


def made(files: Files, commits: int = 0, **configuration: str) -> DeltaLog:
    """A new table in which was counted so often."""
    table = handle(files)
    table.create(spec(**configuration))
    count(table, commits)
    return table


def fresh(files: Files) -> Snapshot:
    """The table as a process sees it that has just started."""
    return handle(files).snapshot


def age(files: MemoryFiles, by_ms: int, *paths: str) -> None:
    """Let files be older than they are; all of them, if none is named."""
    stored = stored_files(files)
    for path in paths or list(stored):
        data, at_ns = stored[path]
        stored[path] = data, at_ns - by_ms * 1_000_000
    put_back(files, stored)


def age_on_disk(folder: Path, by_ms: int) -> None:
    """The same for all files directly in a folder."""
    for path in folder.iterdir():
        at_ns = path.stat().st_mtime_ns - by_ms * 1_000_000
        os.utime(path, ns=(at_ns, at_ns))


def stored_files(files: MemoryFiles) -> dict[str, tuple[bytes, int]]:
    """A backup: of each path the contents and the time."""
    return {f"{folder}/{name}": file for folder, named in files._folders.items() for name, file in named.items()}


def put_back(files: MemoryFiles, backup: dict[str, tuple[bytes, int]]) -> None:
    """The store is what it was at a backup."""
    files._folders = {}
    for path, file in backup.items():
        folder, _, name = path.rpartition("/")
        files._folders.setdefault(folder, {})[name] = file


def everything(files: MemoryFiles) -> dict[str, bytes]:
    """What the store holds, to compare it with what it holds later."""
    return {path: data for path, (data, _) in stored_files(files).items()}


def go_on(files: MemoryFiles, commits: int = 5) -> None:
    """Others commit, time passes, and the log is cleaned up: only the last version's entry stays."""
    other = handle(files)
    count(other, commits)
    age(files, 2 * HOUR_MS)
    other.checkpoint()
    assert other.log.names().entries == [other.version]


def entries(files: Files) -> list[int]:
    return handle(files).log.names().entries


def assert_same(one: Snapshot, other: Snapshot) -> None:
    for name in ("version", "transactions", "token", "metadata"):
        assert getattr(one, name) == getattr(other, name), name
    # To a checkpoint no file is news.
    one_s, other_s = ({path: add._replace(data_change=False) for path, add in s.files.items()} for s in (one, other))
    assert one_s == other_s


def aged_log(files: MemoryFiles) -> None:
    """Entries, three checkpoints and what a dead process was writing; only the last two entries are young."""
    writer = made(files)
    for _ in range(3):
        count(writer, 4)
        writer.checkpoint()
    files.put(f"{FOLDER}/_delta_log/.dead.tmp", b"x")
    age(files, 2 * HOUR_MS)
    count(writer, 2)
    writer.commit([Add("a", 1, {"base_offset": "0"})])


class Died(BaseException):
    """The process ended here."""


class MemoryFilesElsewhere(MemoryFiles):
    """As an object store has them."""

    is_local = False


class Watched:
    """Passes everything on to other files, counts, and calls `before` and `after` with each operation and path."""

    def __init__(
        self,
        files: Files,
        before: Callable[[str, str], None] = lambda *_: None,
        after: Callable[[str, str], None] = lambda *_: None,
        is_local: bool = True,
    ) -> None:
        self._files, self.before, self.after, self.is_local = files, before, after, is_local
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._files, name)

        def call(path: str, *args: Any, **named: Any) -> Any:
            self.calls.append((name, path))
            self.before(name, path)
            found = real(path, *args, **named)
            self.after(name, path)
            return found

        return call

    # `Files` is checked by name, so these two are written out.
    def info(self, path: str) -> FileInfo | None:
        found: FileInfo | None = self.__getattr__("info")(path)
        return found

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.__getattr__("put_if_absent")(path, data)

    # No requests: they only tell how writes are to be done.
    def force_writes(self, *, seen: bool) -> None:
        self._files.force_writes(seen=seen)

    def force(self, path: str) -> None:
        self._files.force(path)


def once(operation: str, path: str, then: Callable[[], object]) -> Callable[[str, str], None]:
    """A hook that acts the first time that this operation meets this path."""
    left = [then]

    def hook(its_operation: str, its_path: str) -> None:
        if left and (its_operation, its_path) == (operation, path):
            left.pop()()

    return hook


def rows_of(version: int) -> int:
    """How many messages the commit of that version adds."""
    return 1 + version % 3


def append_until(uri: str, options: Mapping[str, str], last: int, name: str, with_data: bool = False) -> None:
    """What a process does: append at the next offset, again and again, until the table has that version."""
    files = open_files(uri, options)
    table, done = handle(files, f"{uri}/{FOLDER}"), 0

    def attempt() -> bool:
        table.refresh()
        version, start = table.version + 1, table.recorded(NEXT, 0)
        if version > last:
            return False
        assert table.recorded(f"by/{name}", 0) == done, (
            "a commit that was told to be lost is in, or the other way round"
        )
        path = f"part-{start:08d}-{name}-{done}-{os.urandom(4).hex()}.parquet"
        if with_data:
            files.put(f"{FOLDER}/{path}", b"x")
        stats = f'{{"numRecords":{rows_of(version)}}}'
        added = Add(path, 1, {"base_offset": str(start)}, stats, SYSTEM.time_ns() // 1_000_000)
        table.commit([added], transactions={NEXT: start + rows_of(version), f"by/{name}": done + 1})
        return True

    while retrying(SYSTEM, attempt, WHAT):
        done += 1
    UPKEEP.wait()


def check_appended(snapshot: Snapshot, last: int) -> None:
    """All commits up to this version are in, each once, at offsets without a gap."""
    assert snapshot.version == last
    runs = sorted((int(add.partition_values["base_offset"] or -1), add.rows) for add in snapshot.files.values())
    assert runs == offsets(last)
    assert snapshot.transactions[NEXT].version == sum(map(rows_of, range(1, last + 1)))
    shares = [txn.version for app, txn in snapshot.transactions.items() if app.startswith("by/")]
    assert sum(shares) == last


def offsets(last: int) -> Sequence[tuple[int, int]]:
    """First offset and message count of each commit."""
    found, start = [], 0
    for version in range(1, last + 1):
        found.append((start, rows_of(version)))
        start += rows_of(version)
    return found
