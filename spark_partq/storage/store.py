"""Where things lie in a store, and how to reach them.

<store>/queues/<queue>/control/                  the queue's facts
<store>/queues/<queue>/partitions/partition=<n>/ the messages of partition n
<store>/queues/<queue>/replica/                  what says that the queue is a replica
<store>/groups/<group>/control/                  the group's facts
<store>/groups/<group>/acks/                     the group's acknowledgements
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from spark_partq.core.errors import InvalidArgumentError, NotAStoreError
from spark_partq.core.names import check_name
from spark_partq.storage.files import Files, open_files
from spark_partq.storage.runtime import SYSTEM, Runtime

A = TypeVar("A")
B = TypeVar("B")

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class Store:
    """A store: a local folder or an object-store URI.

    Parameters
    ----------
    uri : str
        An absolute local path, or ``s3://…``, ``abfss://…``, ``gs://…`` as object stores' URIs are.
    options : dict
        Storage options (credentials, endpoint…), named as obstore names them; others have no effect.
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
        """Whether a look at a file costs microseconds."""
        return self.files.is_local

    @classmethod
    def over(cls, files: Files, runtime: Runtime = SYSTEM, uri: str = "memory:") -> Store:
        """A store whose files, clock and threads are given; it cannot be sent to another process."""
        store = cls(uri)
        store.__dict__.update(files=files, runtime=runtime)
        return store

    @cached_property
    def files(self) -> Files:
        """The files of the store, by their paths in it."""
        return open_files(self.uri, self.options)

    @cached_property
    def runtime(self) -> Runtime:
        """Clock, threads, names and chance of this process."""
        return SYSTEM

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """`function` of each item, in order; where looks and commits mostly wait, of several at once."""
        if len(items) <= 1 or self.is_local:
            return [function(item) for item in items]
        return self.runtime.map(function, items)

    def now_ms(self) -> int:
        """Milliseconds since 1970 by this machine's clock."""
        return self.runtime.time_ns() // 1_000_000

    def now(self) -> dt.datetime:
        """The same in UTC, to the microsecond; for people who read the tables."""
        return _EPOCH + dt.timedelta(microseconds=self.runtime.time_ns() // 1_000)

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "options": self.options}  # an open file system cannot be pickled

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def names(self, folder: str) -> list[str]:
        """Names of the folders in `folder`, sorted; none if it does not exist."""
        return self.files.list_folders(folder)

    def check_exists(self) -> None:
        """Refuse a path that holds no store.

        Raises
        ------
        NotAStoreError
            If there is nothing at the path, or something else.
        """
        if not self.has_folder("queues"):
            what = "nothing" if self._is_empty() else "something else"
            raise NotAStoreError(
                f"{self.uri} is not a store: it holds {what}. Check the path, or create a queue there first",
                path=self.uri,
            )

    def check_can_be_made(self) -> None:
        """Refuse to make a store in a folder that is used for something else."""
        # In this order: another process may be making the store just now, and begins with that folder.
        if not self._is_empty() and not self.has_folder("queues"):
            raise NotAStoreError(
                f"{self.uri} is not empty and not a store; choose an empty or new folder for a store", path=self.uri
            )

    def has_folder(self, folder: str) -> bool:
        parent, _, name = folder.rpartition("/")
        return name in self.files.list_folders(parent)

    def _is_empty(self) -> bool:
        if os.path.isfile(self.uri):
            raise NotAStoreError(f"{self.uri} is a file, not a store", path=self.uri)
        return not self.files.list_folders("") and not self.files.list_files("")


def queue_folder(queue: str) -> str:
    return f"queues/{check_name('queue', queue)}"


def partition_folder(queue: str, partition: int) -> str:
    return f"{queue_folder(queue)}/partitions/partition={partition}"


def group_folder(group: str) -> str:
    return f"groups/{check_name('group', group)}"
