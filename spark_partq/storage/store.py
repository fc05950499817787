"""Where things lie in a store, and how to reach them.

<store>/queues/<queue>/control/                  the queue's facts
<store>/queues/<queue>/partitions/partition=<n>/ the messages of partition n
<store>/groups/<group>/control/                  the group's facts
<store>/groups/<group>/acks/                     the group's acknowledgements
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from spark_partq.core.errors import InvalidArgumentError, NotAStoreError, StoreUnavailableError
from spark_partq.core.names import check_name

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")  # delta-rs colours its errors


@dataclass(frozen=True)
class Store:
    """A store: a local folder or an object-store URI.

    Parameters
    ----------
    uri : str
        An absolute local path, or ``s3://…``, ``abfss://…``, ``gs://…`` as delta-rs takes them.
    options : dict
        delta-rs's storage options (credentials, endpoint…).
    """

    uri: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
        """The store at `path`, which may be relative or a ``file:`` URI."""
        text = os.fspath(path)
        if not text:
            raise InvalidArgumentError("the store's path is empty; pass a folder or an object-store URI", path=text)
        parts = urlsplit(text)
        if parts.scheme in ("", "file"):
            text = os.path.abspath(unquote(parts.path) if parts.scheme else text)
            if _ESCAPE.search(text):
                raise InvalidArgumentError(
                    f"{text!r} holds a percent sign and two digits, which Delta reads as another character; use another path",
                    path=text,
                )
        return cls(text.rstrip("/") or "/", dict(options or {}))

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @cached_property
    def files(self) -> fs.FileSystem:
        """A file system whose root is the store."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "options": self.options}  # an open file system cannot be pickled

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def names(self, folder: str) -> list[str]:
        """Names of the folders in `folder`, sorted; none if it does not exist."""
        found = self._info(fs.FileSelector(folder, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def check_exists(self) -> None:
        """Refuse a path that holds no store.

        Raises
        ------
        NotAStoreError
            If there is nothing at the path, or something else.
        """
        if not self.has_folder("queues"):
            what = "something else" if self._listing() else "nothing"
            raise NotAStoreError(
                f"{self.uri} is not a store: it holds {what}. Check the path, or create a queue there first",
                path=self.uri,
            )

    def check_can_be_made(self) -> None:
        """Refuse to make a store in a folder that is used for something else."""
        # In this order: another process may be making the store just now, and begins with that folder.
        if self._listing() and not self.has_folder("queues"):
            raise NotAStoreError(
                f"{self.uri} is not empty and not a store; choose an empty or new folder for a store", path=self.uri
            )

    def has_folder(self, folder: str) -> bool:
        return bool(self._info(folder).type == fs.FileType.Directory)

    def _listing(self) -> list[fs.FileInfo]:
        if self.is_local and os.path.isfile(self.uri):
            raise NotAStoreError(f"{self.uri} is a file, not a store", path=self.uri)
        return list(self._info(fs.FileSelector("", allow_not_found=True)))

    def _info(self, what: str | fs.FileSelector) -> Any:
        try:
            return self.files.get_file_info(what)
        except OSError as error:
            reason = " ".join(_COLOUR.sub("", str(error)).split())
            raise StoreUnavailableError(
                f"{self.uri} cannot be read: {reason}. Check the path, the network and the storage options",
                path=self.uri,
            ) from error


def queue_folder(queue: str) -> str:
    return f"queues/{check_name('queue', queue)}"


def partition_folder(queue: str, partition: int) -> str:
    return f"{queue_folder(queue)}/partitions/partition={partition}"


def group_folder(group: str) -> str:
    return f"groups/{check_name('group', group)}"
