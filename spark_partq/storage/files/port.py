"""What a store asks of the place where it lies: to put a file if there is none of that name, to read, to list, to delete.

Paths are relative to the store, with ``/`` between names. A symbolic link is neither a file nor a folder: nothing follows one, to read or to
change what is behind it, and what deletes a folder deletes the links in it. An implementation raises `FileMissing`, `FileAlreadyExists`, or
`StoreUnavailableError` for everything else that keeps it from answering; whether a write that failed so has landed is unknown.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa

# Suffix of what is being written; nobody reads such files. They begin with a dot, too, which Delta's readers take for hidden.
TEMPORARY = ".tmp"
_LITTER_MS = 3_600_000


class FileMissing(Exception):
    """There is no such file, or no folder to put it into; what lies behind a symbolic link is not there."""


class FileAlreadyExists(Exception):
    """Another file has that name."""


class FileTooLarge(Exception):
    """The file has more bytes than were asked for at most; nothing was read."""

    def __init__(self, path: str, size: int, most: int) -> None:
        super().__init__(f"it has {size:,} bytes, more than {most:,}")
        self.path, self.size = path, size


class FileInfo(NamedTuple):
    """A file as a listing tells it, with times by the store's clock since 1970.

    Attributes
    ----------
    modified_ns : int
        Of its last change.
    named_ns : int
        From when on it has had its name for sure: a process may write a file, and sleep before it gives it the name.
    """

    name: str
    size: int
    modified_ns: int
    named_ns: int


class Output(Protocol):
    """A file that is being written. It appears, whole, when it is closed."""

    sink: pa.NativeFile

    def close(self) -> int:
        """Let the file appear and return its size in bytes."""
        ...

    def discard(self) -> None:
        """Leave no file."""
        ...


class Files(Protocol):
    """The files of one store.

    Attributes
    ----------
    is_local : bool
        To ask about one file takes microseconds; elsewhere it is a request over a network.
    """

    is_local: bool

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a file unless there is one of that name; of several at once exactly one does. No half file is ever seen.

        Raises
        ------
        FileAlreadyExists
        FileMissing
            If its folder is not there.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file, in one step for all who read it; raises `FileMissing` if its folder is not there."""
        ...

    def read(self, path: str, most: int | None = None) -> bytes:
        """The whole file, or `FileMissing`; `FileTooLarge` before anything is read if it has more bytes than `most`."""
        ...

    def info(self, path: str) -> FileInfo | None:
        """Size and time of a file; None if there is none."""
        ...

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        """The files directly in a folder whose names sort after `after` and begin with `prefix`, by name; none if there is no such folder.

        A file that exists all the time is listed. If others put a file and then delete another one, both with `prefix`, one of the two is
        listed; a folder that never rests is looked at ten times. What is no plain file (a symbolic link, a device) is left out.
        """
        ...

    def list_folders(self, folder: str) -> list[str]:
        """Names of the folders directly in a folder, sorted, without links; none if there is no such folder."""
        ...

    def make_folder(self, folder: str) -> None:
        """Let files be put into this folder."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens if there is none."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; nothing happens if there is none."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """A file to read parts of, or `FileMissing`."""
        ...

    def open_output(self, path: str) -> Output:
        """A file to write part by part; raises `FileMissing` if its folder is not there."""
        ...

    def force_writes(self, *, seen: bool) -> None:
        """From now on, what is written or deleted is on the disk when the call returns; with `seen`, what was seen until now is before that.

        Here and in `force`, nothing happens in an object store, which answers when it has stored a file for good.
        """
        ...

    def force(self, path: str) -> None:
        """What was seen there, a file or the names in a folder, is on the disk when this returns; nothing happens before `force_writes`.

        Another process may have put it there and not have forced it yet.
        """
        ...


def check_size(path: str, size: int, most: int | None) -> None:
    """For implementations of `Files.read`."""
    if most is not None and size > most:
        raise FileTooLarge(path, size, most)


def is_temporary(name: str) -> bool:
    """Whether a file's name says that it was being written."""
    return name.startswith(".") and name.endswith(TEMPORARY)


def is_litter(info: FileInfo, now_ms: int) -> bool:
    """Whether a file was being written by a process that has died, at this time by the store's clock."""
    return is_temporary(info.name) and now_ms - info.modified_ns // 1_000_000 > _LITTER_MS
