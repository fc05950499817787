"""Files that fail on demand, for simulations and tests.

==============  ====================================================================================================
conflict        `FileAlreadyExists`, though there is no such file: an object store says so while another put of that name is under
                way, and that other one may fail
repeated        done, then `FileAlreadyExists`: the answer was lost, and the client library put the same again
lost            `StoreUnavailableError`, and nothing was done
landed          done, then `StoreUnavailableError`: whoever asked cannot know
crash before    the process dies instead (`Crash`), and does nothing any more
crash after     the process dies before it has the answer
==============  ====================================================================================================

The first two befall `put_if_absent` alone; of what only reads, `landed` is the same as `lost`. What is read from an opened file, and
written to one before it is closed, does not fail.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileInfo, FileMissing, Files, Output

T = TypeVar("T")

READS = frozenset({"read", "info", "list_files", "list_folders", "open_input", "open_output"})
# `close` and `discard` are those of an `Output`.
CHANGES = frozenset({"put_if_absent", "put", "make_folder", "delete", "delete_folder", "close", "discard"})
FAULTS = ("conflict", "repeated", "lost", "landed", "crash before", "crash after")


class Crash(BaseException):
    """The process ends here; nothing may catch this."""


@dataclass
class FaultyFiles:
    """Wraps the files of a store as one process has them. One that only lists late may be shared by several, and be wrapped again.

    Attributes
    ----------
    files : Files
        Where everything that is done is done.
    chances : dict
        How often each kind of fault happens, as a probability.
    plan : dict
        The faults of certain operations, by their numbers; the first is 1. It goes before `chances`.
    names : collection of str
        The operations that may fail.
    rng : random.Random
        Decides; as long as one thread uses the files, the same seed gives the same faults.
    latency_s : float
        An operation takes up to so long, as told to `sleep`.
    stale : int
        Listings leave out files that were put within so many operations, as those of a network file system may.
    count : int
        Operations so far.
    happened : list of tuple
        Each fault so far, as (number of the operation, its name, path, fault).
    """

    files: Files
    chances: Mapping[str, float] = field(default_factory=dict)
    plan: Mapping[int, str] = field(default_factory=dict)
    names: Collection[str] = READS | CHANGES
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    latency_s: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    stale: int = 0
    count: int = field(default=0, init=False)
    happened: list[tuple[int, str, str, str]] = field(default_factory=list, init=False)
    is_local: bool = field(init=False)

    def __post_init__(self) -> None:
        unknown = {*self.chances, *self.plan.values()} - set(FAULTS)
        if unknown:
            raise ValueError(f"no such faults: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        self.is_local = self.files.is_local
        self._lock = threading.Lock()
        self._dead = False
        self._put_at: dict[str, int] = {}

    # ---- the port
    def put_if_absent(self, path: str, data: bytes) -> None:
        self._do("put_if_absent", path, lambda: self._put(path, lambda: self.files.put_if_absent(path, data)))

    def put(self, path: str, data: bytes) -> None:
        self._do("put", path, lambda: self._put(path, lambda: self.files.put(path, data)))

    def read(self, path: str, most: int | None = None) -> bytes:
        return self._do("read", path, lambda: self.files.read(path, most))

    def info(self, path: str) -> FileInfo | None:
        return self._do("info", path, lambda: self.files.info(path))

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        found = self._do("list_files", folder, lambda: self.files.list_files(folder, after, prefix))
        return [info for info in found if not self._is_late(f"{folder}/{info.name}" if folder else info.name)]

    def list_folders(self, folder: str) -> list[str]:
        return self._do("list_folders", folder, lambda: self.files.list_folders(folder))

    def make_folder(self, folder: str) -> None:
        self._do("make_folder", folder, lambda: self.files.make_folder(folder))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self.files.delete(path))

    def delete_folder(self, folder: str) -> None:
        self._do("delete_folder", folder, lambda: self.files.delete_folder(folder))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._do("open_input", path, lambda: self.files.open_input(path))

    def open_output(self, path: str) -> Output:
        return self._do("open_output", path, lambda: _FaultyOutput(self, path, self.files.open_output(path)))

    def force_writes(self, *, seen: bool) -> None:
        self.files.force_writes(seen=seen)

    def force(self, path: str) -> None:
        self.files.force(path)

    # ---- how
    def _do(self, name: str, path: str, do: Callable[[], T]) -> T:
        """Do it, or not, and tell of it, or not."""
        fault, delay = self._drawn(name, path)
        if delay:
            self.sleep(delay)
        if fault == "crash before":
            raise Crash
        if fault == "conflict":
            raise FileAlreadyExists(path)
        if fault == "lost" or (fault == "landed" and name in READS):
            raise _unavailable(path)
        try:
            result = do()
        except (FileAlreadyExists, FileMissing, StoreUnavailableError):
            if not fault:  # else this answer, too, does not arrive
                raise
        if fault == "crash after":
            raise Crash
        if fault == "repeated":
            raise FileAlreadyExists(path)
        if fault == "landed":
            raise _unavailable(path)
        return result

    def _drawn(self, name: str, path: str) -> tuple[str, float]:
        """The fault of the next operation, if any, and how long it takes."""
        with self._lock:
            if self._dead:
                raise Crash
            self.count += 1
            fault = self.plan.get(self.count, "") or self._by_chance()
            only_puts = fault in ("conflict", "repeated")
            if name not in self.names or (only_puts and name != "put_if_absent"):
                fault = ""
            if fault:
                self.happened.append((self.count, name, path, fault))
            self._dead = fault.startswith("crash")
            return fault, self.rng.uniform(0, self.latency_s) if self.latency_s else 0.0

    def _by_chance(self) -> str:
        x = self.rng.random() if self.chances else 1.0
        for name, chance in self.chances.items():
            x -= chance
            if x < 0:
                return name
        return ""

    def _put(self, path: str, put: Callable[[], T]) -> T:
        """Put a file, and remember when, if it is a new one."""
        is_new = self.stale > 0 and self.files.info(path) is None
        result = put()
        if is_new:
            with self._lock:
                self._put_at[path] = self.count
        return result

    def _is_late(self, path: str) -> bool:
        with self._lock:
            return path in self._put_at and self.count - self._put_at[path] <= self.stale


class _FaultyOutput:
    def __init__(self, files: FaultyFiles, path: str, output: Output) -> None:
        self._files, self._path, self._output, self.sink = files, path, output, output.sink

    def close(self) -> int:
        return self._files._do("close", self._path, lambda: self._files._put(self._path, self._output.close))

    def discard(self) -> None:
        self._files._do("discard", self._path, self._output.discard)


def _unavailable(path: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the store gave no answer about {path}, as a test wants it", path=path)
