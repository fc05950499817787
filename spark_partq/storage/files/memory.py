"""A store in the memory of this process, for simulations and tests of what is the same everywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

from spark_partq.storage.files.port import FileAlreadyExists, FileInfo, FileMissing


class MemoryFiles:
    """Files in a dictionary; may be used by several threads. Folders are there as soon as they hold a file.

    Parameters
    ----------
    time_ns : function
        The store's clock.
    """

    is_local = True

    def __init__(self, time_ns: Callable[[], int] = time.time_ns) -> None:
        self._time_ns = time_ns
        self._files: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._lock:
            if path in self._files:
                raise FileAlreadyExists(path)
            self._files[path] = bytes(data), self._time_ns()

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._files[path] = bytes(data), self._time_ns()

    def read(self, path: str) -> bytes:
        try:
            return self._files[path][0]
        except KeyError:
            raise FileMissing(path) from None

    def info(self, path: str) -> FileInfo | None:
        found = self._files.get(path)
        return None if found is None else FileInfo(path.rpartition("/")[2], len(found[0]), found[1])

    def list_files(self, folder: str, after: str = "") -> list[FileInfo]:
        with self._lock:
            below = self._below(folder)
            found = [(name, self._files[path]) for path, name in below.items() if "/" not in name and name > after]
        return sorted(FileInfo(name, len(data), at) for name, (data, at) in found)

    def list_folders(self, folder: str) -> list[str]:
        with self._lock:
            return sorted({name.partition("/")[0] for name in self._below(folder).values() if "/" in name})

    def make_folder(self, folder: str) -> None:
        pass

    def delete(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def delete_folder(self, folder: str) -> None:
        with self._lock:
            for path in self._below(folder):
                del self._files[path]

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def open_output(self, path: str) -> _MemoryOutput:
        return _MemoryOutput(self, path)

    def _below(self, folder: str) -> dict[str, str]:
        """Paths below a folder, with what they are called from there."""
        prefix = f"{folder}/" if folder else ""
        return {path: path[len(prefix) :] for path in self._files if path.startswith(prefix)}


class _MemoryOutput:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files, self._path, self.sink = files, path, pa.BufferOutputStream()

    def close(self) -> int:
        data = self.sink.getvalue().to_pybytes()
        self._files.put(self._path, data)
        return len(data)

    def discard(self) -> None:
        self.sink.close()
