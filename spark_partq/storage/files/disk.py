"""A store in a folder of this machine, or of a file system that it shares with others."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator

import pyarrow as pa

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files.port import TEMPORARY, FileAlreadyExists, FileInfo, FileMissing

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class DiskFiles:
    """Files below a folder. A new file gets its name by a hard link, which fails if the name is taken."""

    is_local = True

    def __init__(self, root: str) -> None:
        self._root = root

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._written(path, data) as temporary:
            try:
                os.link(temporary, self._at(path))
            except FileExistsError:
                # On a network file system the link may be made and its answer lost: then it "exists" when it is asked for again.
                if os.stat(temporary).st_nlink == 1:
                    raise FileAlreadyExists(path) from None
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreUnavailableError(
                        f"{self._root} lies on a file system that cannot make hard links ({error.strerror}), so two processes could "
                        "both commit there; keep the store on one that can, or in an object store",
                        path=self._root,
                    ) from error
                raise

    def put(self, path: str, data: bytes) -> None:
        with self._written(path, data) as temporary:
            os.replace(temporary, self._at(path))

    def read(self, path: str) -> bytes:
        try:
            descriptor = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                left = os.fstat(descriptor).st_size
                data = os.read(descriptor, left)
                while len(data) < left and (more := os.read(descriptor, left - len(data))):
                    data += more
                return data
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._told(path, "read", error) from None

    def info(self, path: str) -> FileInfo | None:
        try:
            found = os.lstat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._told(path, "read", error) from None
        if not stat.S_ISREG(found.st_mode):
            return None
        return FileInfo(path.rpartition("/")[2], found.st_size, found.st_mtime_ns)

    def list_files(self, folder: str, after: str = "") -> list[FileInfo]:
        found = []
        with self._explained(folder, "read"):
            for entry in self._entries(folder):
                if entry.name > after and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                        its = entry.stat(follow_symlinks=False)
                        found.append(FileInfo(entry.name, its.st_size, its.st_mtime_ns))
        return sorted(found)

    def list_folders(self, folder: str) -> list[str]:
        with self._explained(folder, "read"):
            return sorted(entry.name for entry in self._entries(folder) if entry.is_dir())

    def make_folder(self, folder: str) -> None:
        with self._explained(folder, "written"):
            os.makedirs(self._at(folder), exist_ok=True)

    def delete(self, path: str) -> None:
        with self._explained(path, "written"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._at(path))

    def delete_folder(self, folder: str) -> None:
        with self._explained(folder, "written"), contextlib.suppress(NotADirectoryError):
            shutil.rmtree(self._at(folder), onerror=_unless_gone)

    def open_input(self, path: str) -> pa.NativeFile:
        with self._explained(path, "read"):
            return pa.OSFile(self._at(path), "rb")

    def open_output(self, path: str) -> _DiskOutput:
        temporary = self._temporary(path)
        with self._explained(path, "written"):
            return _DiskOutput(self, path, temporary, pa.OSFile(temporary, "wb"))

    # ---- how
    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _temporary(self, path: str) -> str:
        return self._at(f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}{TEMPORARY}")

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._at(folder)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[str]:
        """The name of a temporary file beside `path` that holds the data."""
        temporary = self._temporary(path)
        with self._explained(path, "written"):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(descriptor, view) :]
                finally:
                    os.close(descriptor)
                yield temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)

    @contextlib.contextmanager
    def _explained(self, path: str, done: str) -> Iterator[None]:
        """Errors of the operating system as those of this package."""
        try:
            yield
        except OSError as error:
            raise self._told(path, done, error) from error

    def _told(self, path: str, done: str, error: OSError) -> Exception:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return FileMissing(path)
        return StoreUnavailableError(
            f"{self._at(path)} cannot be {done}: {error.strerror or error}. Check the path, its permissions and the space that is left",
            path=self._at(path),
        )


def _unless_gone(_: object, __: object, raised: tuple[type[BaseException], BaseException, object]) -> None:
    """Others may delete the same at once, and what somebody was just writing goes by itself."""
    if not issubclass(raised[0], FileNotFoundError):
        raise raised[1]


class _DiskOutput:
    def __init__(self, files: DiskFiles, path: str, temporary: str, sink: pa.NativeFile) -> None:
        self._files, self._path, self._temporary, self.sink = files, path, temporary, sink

    def close(self) -> int:
        with self._files._explained(self._path, "written"):
            size = int(self.sink.tell())
            self.sink.close()
            os.replace(self._temporary, self._files._at(self._path))
            return size

    def discard(self) -> None:
        with self._files._explained(self._path, "written"), contextlib.suppress(FileNotFoundError):
            self.sink.close()
            os.unlink(self._temporary)
