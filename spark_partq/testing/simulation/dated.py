"""Files on a real disk whose times are those of the simulated world: the store's clock is that of its files."""

from __future__ import annotations

import os
from collections.abc import Callable

from spark_partq.storage.files import FileInfo
from spark_partq.storage.files.disk import DiskFiles, _DiskOutput


class DatedFiles(DiskFiles):
    """
    Parameters
    ----------
    time_ns : function
        The world's time.
    """

    def __init__(self, root: str, time_ns: Callable[[], int]) -> None:
        super().__init__(root)
        self._time_ns = time_ns

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        self.date(path)

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self.date(path)

    def open_output(self, path: str) -> _DiskOutput:
        output = super().open_output(path)
        return _DatedOutput(self, path, output._temporary, output.sink)

    def info(self, path: str) -> FileInfo | None:
        info = super().info(path)
        return None if info is None else info._replace(named_ns=info.modified_ns)

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        """The disk dates the change of an inode by its own clock."""
        return [info._replace(named_ns=info.modified_ns) for info in super().list_files(folder, after, prefix)]

    def date(self, path: str) -> None:
        """The file was written just now."""
        os.utime(f"{self._root}/{path}", ns=(self._time_ns(), self._time_ns()))


class _DatedOutput(_DiskOutput):
    def close(self) -> int:
        size = super().close()
        if isinstance(self._files, DatedFiles):
            self._files.date(self._path)
        return size
