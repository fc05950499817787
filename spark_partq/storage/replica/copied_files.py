"""Copies single files to another store, so that several processes may copy the same file at once."""

from __future__ import annotations

import contextlib

from spark_partq.core.errors import CorruptTableError, StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing, Files, FileTooLarge, Output
from spark_partq.storage.store import Store

_ATTEMPTS = 10
_CHUNK = 1 << 20


def copy_file(source: Store, target: Store, path: str, size: int) -> None:
    """Copy a file of that size from another store, under the same path. The file appears once it is complete.

    Raises
    ------
    FileMissing
        If the other store does not have it.
    CorruptTableError
        If the file has another size.
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


def put_same(files: Files, path: str, data: bytes) -> bool:
    """Put a file, unless the same file is there already; raises `FileAlreadyExists` if another one is. Returns whether it was put."""
    attempts = 0
    while True:
        attempts += 1
        try:
            files.put_if_absent(path, data)
            return True
        except FileAlreadyExists:
            # An object store may give this answer when two processes put the file at the same time and neither file is there yet.
            with contextlib.suppress(FileMissing, FileTooLarge):
                if files.read(path, len(data)) == data:
                    return False
                raise
            if attempts == _ATTEMPTS:
                raise
