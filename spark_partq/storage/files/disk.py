"""A store in a folder of this machine, or of a file system that it shares with others."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa

from spark_partq.core.errors import NotPermittedError, StoreUnavailableError
from spark_partq.storage.files.port import TEMPORARY, FileAlreadyExists, FileInfo, FileMissing, check_size

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
# To look at a folder, which is no link, without the right to list it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# What is no plain file must not make its reader wait.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# So often a folder is listed at most, if files come and go all the time.
_LISTINGS = 10
# Two changes of a folder within this time may have the same time. (The clock of a file server may differ from this machine's, and some file
# systems keep whole seconds: then one look may count though the folder changed meanwhile.)
_TICK_NS = 20_000_000


class DiskFiles:
    """Files below a folder. A new file gets its name by a hard link, which fails if the name is taken.

    Others may write there, too. So nothing follows a symbolic link below that folder, which itself may be one: a link is neither a file
    nor a folder, and what lies behind it is not there. What deletes goes from folder to folder by their descriptors, so that a folder
    that becomes a link meanwhile leads nowhere.

    With `force_writes`, a file is forced to the disk before it gets its name, and the folder after it: a power cut leaves no name without
    its content, and takes nothing that was answered.
    """

    is_local = True

    def __init__(self, root: str) -> None:
        self._root = root
        self._no_links: dict[str, tuple[int, int]] = {}  # folders to which no link led, by device and inode
        self._forces, self._is_behind = False, False

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._put(path, data, self._link)

    def put(self, path: str, data: bytes) -> None:
        self._put(path, data, lambda temporary, path: os.replace(temporary, self._at(path)))

    def _put(self, path: str, data: bytes, name: Callable[[str, str], None]) -> None:
        """Write a temporary file and give it its name; once more if others cleaned it up while this process stood still."""
        where = self._at(path.rpartition("/")[0])
        with self._writing(path):
            self._inside(path)
            folder = os.open(where, _FOLDER)
            try:
                while not self._is_named(path, data, name):
                    if not os.path.samestat(os.fstat(folder), os.stat(where)):
                        raise FileMissing(path)  # it was deleted, and another one was made in its place
            finally:
                os.close(folder)
            self._force_names(path)

    def _is_named(self, path: str, data: bytes, name: Callable[[str, str], None]) -> bool:
        try:
            with self._written(path, data) as temporary:
                name(temporary, path)
        except FileNotFoundError:
            return False
        return True

    def _link(self, temporary: str, path: str) -> None:
        try:
            os.link(temporary, self._at(path))
        except FileExistsError:
            # On a network file system the link may be made and its answer lost: then it "exists" when it is asked for again. How many links
            # there are tells nothing: a backup may make some.
            if not _are_one_file(temporary, self._at(path)):
                self._force_names(path)  # who is told so may rely on the other file
                raise FileAlreadyExists(path) from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnavailableError(
                    f"{self._root} lies on a file system that cannot make hard links ({error.strerror}), so two processes could "
                    "both commit there; keep the store on one that can, or in an object store",
                    path=self._root,
                ) from error
            raise

    def read(self, path: str, most: int | None = None) -> bytes:
        try:
            descriptor = os.open(self._inside(path), _FILE)
            try:
                found = os.fstat(descriptor)
                _check_plain(path, found)
                left = found.st_size
                check_size(path, left, most)
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
            found = os.lstat(self._inside(path))
        except OSError as error:
            problem = self._told(path, "read", error)
            if isinstance(problem, FileMissing):
                return None
            raise problem from None
        if not stat.S_ISREG(found.st_mode):
            return None
        return _info_of(path.rpartition("/")[2], found)

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        before: set[str] | None = None
        for _ in range(_LISTINGS):
            changed_ns, now_ns = self._changed_ns(folder), time.time_ns()
            found, gone = self._listed(folder, after, prefix)
            if changed_ns == self._changed_ns(folder) and changed_ns < now_ns - _TICK_NS:
                break  # nothing came or went meanwhile
            there = {info.name for info in found}
            if before is not None and before <= there and not gone and (there or not prefix):
                break  # nothing went meanwhile
            before = there
        return sorted(found)

    def _listed(self, folder: str, after: str, prefix: str) -> tuple[list[FileInfo], bool]:
        """The files, from one look, and whether one of them went during it.

        The operating system reads a large folder in pieces. If others put a file into a piece that was read, and then delete one from a piece that
        was not, the look finds neither.
        """
        found, gone = [], False
        with self._entries(folder) as entries:
            for entry in entries:
                if entry.name > after and entry.name.startswith(prefix) and entry.is_file(follow_symlinks=False):
                    try:
                        its = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        gone = True
                    else:
                        found.append(_info_of(entry.name, its))
        return found, gone

    def _changed_ns(self, folder: str) -> int:
        """When a file last came into a folder or went from it, as exactly as the operating system keeps it."""
        with contextlib.suppress(OSError):  # the look tells of it
            return os.stat(self._at(folder)).st_mtime_ns
        return 0

    def list_folders(self, folder: str) -> list[str]:
        with self._entries(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def make_folder(self, folder: str) -> None:
        with self._writing(folder):
            new = [path for path in _above(self._root) if path and not os.path.isdir(path)]
            os.makedirs(self._root, exist_ok=True)
            with self._folder(folder, make=True):
                pass
            for made in (folder, *_above(folder)):
                self._force_names(made)
            for path in new if self._forces else ():
                _force(os.path.dirname(path))

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with contextlib.suppress(FileMissing), self._writing(path), self._folder(folder) as descriptor:
            os.unlink(name, dir_fd=descriptor)
            self._force_names(path)

    def delete_folder(self, folder: str) -> None:
        above, _, name = folder.rpartition("/")
        with contextlib.suppress(FileMissing), self._writing(folder), self._folder(above) as descriptor:
            if not name:
                shutil.rmtree(self._root, onerror=_unless_gone)
            elif stat.S_ISLNK(os.lstat(name, dir_fd=descriptor).st_mode):
                os.unlink(name, dir_fd=descriptor)
            else:
                shutil.rmtree(name, dir_fd=descriptor, onerror=_unless_gone)  # removes links, and follows none
            self._force_names(folder)

    def open_input(self, path: str) -> pa.NativeFile:
        with self._explained(path, "read"):
            at = self._inside(path)
            found = os.lstat(at)
            _check_plain(path, found)
            file = pa.OSFile(at, "rb")
            if not os.path.samestat(found, os.fstat(file.fileno())):  # it was replaced in between
                file.close()
                raise FileMissing(path)
            return file

    def open_output(self, path: str) -> _DiskOutput:
        with self._writing(path):
            self._inside(path)
            temporary = self._temporary(path)
            return _DiskOutput(self, path, temporary, pa.OSFile(temporary, "wb"))

    def force_writes(self, *, seen: bool) -> None:
        self._forces, self._is_behind = True, seen  # until something is written: who only reads need not wait for it

    def force(self, path: str) -> None:
        if self._forces:
            with self._explained(path, "forced to the disk"):
                _force(self._at(path))

    # ---- how
    def _force_names(self, path: str) -> None:
        """Force the folder in which the path is."""
        if self._forces:
            _force(self._at(path.rpartition("/")[0]) if path else os.path.dirname(self._root))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _temporary(self, path: str) -> str:
        return self._at(f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}{TEMPORARY}")

    def _inside(self, path: str) -> str:
        """Where a file of the store lies; raises `FileMissing` if there is a link among its folders."""
        folder = path.rpartition("/")[0]
        if folder:
            found = os.stat(self._at(folder))
            if self._no_links.get(folder) != (found.st_dev, found.st_ino):
                with self._folder(folder) as descriptor:
                    found = os.fstat(descriptor)
                self._no_links[folder] = found.st_dev, found.st_ino
        return self._at(path)

    @contextlib.contextmanager
    def _folder(self, folder: str, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder; a link among its folders is an `OSError`. With `make` those that are missing are made."""
        descriptor = os.open(self._root, _FOLDER)
        try:
            for name in folder.split("/") if folder else ():
                below = _make_and_open(name, descriptor) if make else _open_folder(name, descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _entries(self, folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """What is directly in a folder; nothing if there is no such folder."""
        with self._explained(folder, "read"):
            try:
                with self._folder(folder) as descriptor:
                    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
            except OSError as error:
                if not _is_missing(error):
                    raise
                yield iter(())
                return
            try:
                with os.scandir(listed) as entries:
                    yield entries
            finally:
                os.close(listed)

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[str]:
        """The name of a temporary file beside `path` that holds the data."""
        temporary = self._temporary(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if self._forces:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        if self._is_behind:
            os.sync()
            self._is_behind = False
        with self._explained(path, "written"):
            yield

    @contextlib.contextmanager
    def _explained(self, path: str, done: str) -> Iterator[None]:
        """Errors of the operating system as those of this package."""
        try:
            yield
        except OSError as error:
            raise self._told(path, done, error) from error

    def _told(self, path: str, done: str, error: OSError) -> FileMissing | StoreUnavailableError:
        if _is_missing(error):
            return FileMissing(path)
        # The text of an error of pyarrow has the path again.
        reason = os.strerror(error.errno) if error.errno else error
        what = f"{self._at(path)} cannot be {done}: {reason}"
        if error.errno in _REFUSED:
            return NotPermittedError(
                f"{what}. Give this process's user the permissions, or run it as another user; nothing is damaged",
                path=self._at(path),
            )
        return StoreUnavailableError(f"{what}. Check the path, and the space that is left", path=self._at(path))


def _above(folder: str) -> Iterator[str]:
    """The folders that a folder is in, from the inside; the last one is empty."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _force(path: str) -> None:
    """Force a file's content, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_folder(name: str, above: int) -> int:
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)


def _make_and_open(name: str, above: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
    try:
        return _open_folder(name, above)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        raise


def _is_missing(error: OSError) -> bool:
    """Whether there is nothing, as far as a store goes: a link that is not followed is nothing."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _info_of(name: str, found: os.stat_result) -> FileInfo:
    return FileInfo(name, found.st_size, found.st_mtime_ns, max(found.st_mtime_ns, found.st_ctime_ns))


def _check_plain(path: str, found: os.stat_result) -> None:
    """Refuse a folder; a link, a pipe or a device is no file of the store."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise FileMissing(path)


def _unless_gone(_: object, __: object, raised: tuple[type[BaseException], BaseException, object]) -> None:
    """Others may delete the same at once, and what somebody was just writing goes by itself."""
    if not issubclass(raised[0], FileNotFoundError):
        raise raised[1]


class _DiskOutput:
    def __init__(self, files: DiskFiles, path: str, temporary: str, sink: pa.NativeFile) -> None:
        self._files, self._path, self._temporary, self.sink = files, path, temporary, sink

    def close(self) -> int:
        with self._files._writing(self._path):
            size = int(self.sink.tell())
            self.sink.close()
            if self._files._forces:
                _force(self._temporary)
            os.replace(self._temporary, self._files._at(self._path))
            self._files._force_names(self._path)
            return size

    def discard(self) -> None:
        with self._files._writing(self._path), contextlib.suppress(FileNotFoundError):
            self.sink.close()
            os.unlink(self._temporary)


def _are_one_file(path: str, other: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(path), os.lstat(other))
    return False
