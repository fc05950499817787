"""A store in the memory of this process, for simulations and tests of what is the same everywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

from spark_partq.storage.files.port import FileAlreadyExists, FileInfo, FileMissing, check_size


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
        self._folders: dict[str, dict[str, tuple[bytes, int]]] = {}  # of each folder that holds files, these by name
        self._lock = threading.Lock()

    def put_if_absent(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        with self._lock:
            files = self._folders.setdefault(folder, {})
            if name in files:
                raise FileAlreadyExists(path)
            files[name] = bytes(data), self._time_ns()

    def put(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        with self._lock:
            self._folders.setdefault(folder, {})[name] = bytes(data), self._time_ns()

    def read(self, path: str, most: int | None = None) -> bytes:
        found = self._find(path)
        if found is None:
            raise FileMissing(path)
        check_size(path, len(found[0]), most)
        return found[0]

    def info(self, path: str) -> FileInfo | None:
        found = self._find(path)
        return None if found is None else FileInfo(path.rpartition("/")[2], len(found[0]), found[1], found[1])

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        with self._lock:
            there = self._folders.get(folder, {}).items()
            found = [(name, file) for name, file in there if name > after and name.startswith(prefix)]
        return sorted(FileInfo(name, len(data), at, at) for name, (data, at) in found)

    def list_folders(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        with self._lock:
            below = [path[len(prefix) :] for path, files in self._folders.items() if files and path.startswith(prefix)]
        return sorted({path.partition("/")[0] for path in below if path})

    def make_folder(self, folder: str) -> None:
        pass

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._lock:
            self._folders.get(folder, {}).pop(name, None)

    def delete_folder(self, folder: str) -> None:
        with self._lock:
            for path in [path for path in self._folders if path == folder or path.startswith(f"{folder}/")]:
                del self._folders[path]

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def open_output(self, path: str) -> _MemoryOutput:
        return _MemoryOutput(self, path)

    def force_writes(self, *, seen: bool) -> None:
        pass

    def force(self, path: str) -> None:
        pass

    def _find(self, path: str) -> tuple[bytes, int] | None:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)


class _MemoryOutput:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files, self._path, self.sink = files, path, pa.BufferOutputStream()

    def close(self) -> int:
        data = self.sink.getvalue().to_pybytes()
        self._files.put(self._path, data)
        return len(data)

    def discard(self) -> None:
        pass  # whoever writes to it may still close it
