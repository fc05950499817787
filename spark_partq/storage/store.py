"""Where things lie in a store, and how to reach them.

<store>/queues/<queue>/control/                  the queue's facts
<store>/queues/<queue>/partitions/partition=<n>/ the messages of partition n
<store>/queues/<queue>/manifests/<queue id>/     the batches that sinks have begun
<store>/queues/<queue>/replica/                  what says that the queue is a replica
<store>/groups/<group>/control/                  the group's facts
<store>/groups/<group>/acks/                     the group's acknowledgements; acks-<n> after its n-th deletion
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, Union
from urllib.parse import unquote, urlsplit

from spark_partq.core.errors import InvalidArgumentError, NotAStoreError
from spark_partq.core.names import check_name, is_name
from spark_partq.storage.files import Files
from spark_partq.storage.files.credentials import check_uri
from spark_partq.storage.files.port import TEMPORARY
from spark_partq.storage.runtime import SYSTEM, Runtime

A = TypeVar("A")
B = TypeVar("B")

StorePath = Union[str, os.PathLike[str], "Store"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):")
# As `partition_folder` and `acks_folder` name them: what is named otherwise somebody else has put there.
_PARTITION = re.compile("partition=(-1|0|[1-9][0-9]{0,8})")
_ACKS = re.compile("acks(?:-([1-9][0-9]{0,18}))?")


class Store:
    """A store of queues: a folder, or a place in an object store. Anywhere a store is asked for, a plain path serves too.

    Parameters
    ----------
    uri : str or path
        A folder (also relative, or a ``file:`` URI), or ``s3://…``, ``abfss://…``, ``gs://…`` as object stores' URIs are.
    storage_options : dict, optional
        Credentials, endpoint and so on, named as obstore names them; others have no effect.

    Attributes
    ----------
    uri : str
        An absolute path, or the URI.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.uri = _absolute(os.fspath(uri))
        self.storage_options = dict(storage_options or {})
        self.runtime = runtime
        self._forces_writes = False

    @classmethod
    def at(cls, place: StorePath, storage_options: Mapping[str, str] | None = None) -> Store:
        """The store that is meant by a path or a store.

        Raises
        ------
        InvalidArgumentError
            If a store is given and storage options too: it has its own.
        """
        if not isinstance(place, Store):
            return cls(place, storage_options)
        if storage_options is not None:
            raise InvalidArgumentError("a Store has its own storage_options; pass no others", path=place.uri)
        return place

    @classmethod
    def over(cls, files: Files, runtime: Runtime = SYSTEM, uri: str = "memory:/") -> Store:
        """A store whose files, clock and threads are given; it cannot be sent to another process."""
        store = cls(uri, runtime=runtime)
        store.__dict__["files"] = files
        return store

    def sibling(self, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
        """Another store, as this process reaches it, forced as this one is. If both are object stores it has this one's options unless it
        is given some."""
        there = Store(uri, storage_options, runtime=self.runtime)
        there._forces_writes = self._forces_writes
        if storage_options is None and not there.is_local and not self.is_local:
            there.storage_options = self.storage_options
            there.__dict__.pop("files")
        return there

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"  # the options may hold secrets

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Store):
            return NotImplemented
        return (self.uri, self.storage_options) == (other.uri, other.storage_options)

    def __hash__(self) -> int:
        return hash(self.uri)

    @property
    def is_local(self) -> bool:
        """Whether it takes microseconds to ask about a file."""
        return self.files.is_local

    @cached_property
    def files(self) -> Files:
        """The files of the store, by their paths in it."""
        files = self.runtime.open_files(self.uri, self.storage_options)
        if self._forces_writes:
            files.force_writes(seen=False)
        return files

    @property
    def forces_writes(self) -> bool:
        return self._forces_writes

    def force_writes(self) -> None:
        """From now on, who has this store, or is sent it, forces to the disk what it writes there; what it has seen so far is forced, too."""
        if not self._forces_writes:
            self._forces_writes = True
            self.files.force_writes(seen=True)

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """`function` of each item, in order; where refreshes and commits mostly wait, for a network or a disk, of several at once."""
        if len(items) <= 1 or (self.is_local and not self._forces_writes):
            return [function(item) for item in items]
        return self.runtime.map(function, items)

    def now_ms(self) -> int:
        """Milliseconds since 1970 by this machine's clock."""
        return self.runtime.time_ns() // 1_000_000

    def now(self) -> dt.datetime:
        """The same in UTC, to the microsecond; for people who read the tables."""
        return _EPOCH + dt.timedelta(microseconds=self.runtime.time_ns() // 1_000)

    def clock_ms(self, folder: str) -> int:
        """Milliseconds since 1970 by the store's clock: when a file that is put into this folder now is last changed."""
        path = f"{folder}/.{self.runtime.new_uuid().hex}{TEMPORARY}"
        self.files.put(path, b"")
        found = self.files.info(path)
        self.files.delete(path)
        return self.now_ms() if found is None else found.modified_ns // 1_000_000

    def __getstate__(self) -> dict[str, object]:
        # What is open stays in this process.
        return {"uri": self.uri, "storage_options": self.storage_options, "_forces_writes": self._forces_writes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, runtime=SYSTEM)

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def names(self, folder: str) -> list[str]:
        """Names of the folders in `folder`, sorted; none if it does not exist."""
        return self.files.list_folders(folder)

    def named(self, folder: str) -> list[str]:
        """The same without folders that name no queue, group…: somebody else has put them there."""
        return [name for name in self.names(folder) if is_name(name)]

    def check_exists(self) -> None:
        """Refuse a path that holds no store.

        Raises
        ------
        NotAStoreError
            If there is nothing at the path, or something else.
        """
        if not self._is_store():
            what = "nothing" if self._is_empty() else "something else"
            raise NotAStoreError(
                f"{self.uri} is not a store: it holds {what}. Check the path, or create a queue there first",
                path=self.uri,
            )

    def check_can_be_made(self) -> None:
        """Refuse to make a store in a folder that is used for something else."""
        # In this order: another process may be making the store just now, and begins with that folder.
        if not self._is_empty() and not self._is_store():
            raise NotAStoreError(
                f"{self.uri} is not empty and not a store; choose an empty or new folder for a store", path=self.uri
            )

    def _is_store(self) -> bool:
        """On an object store the folder of the queues goes with the last of them, and that of the groups stays."""
        return self.has_folder("queues") or self.has_folder("groups")

    def has_folder(self, folder: str) -> bool:
        parent, _, name = folder.rpartition("/")
        return name in self.files.list_folders(parent)

    def _is_empty(self) -> bool:
        if os.path.isfile(self.uri):
            raise NotAStoreError(f"{self.uri} is a file, not a store", path=self.uri)
        return not self.files.list_folders("") and not self.files.list_files("")


def _absolute(uri: str) -> str:
    """The URI, or the absolute path of a folder."""
    if not uri:
        raise InvalidArgumentError("the store's path is empty; pass a folder or an object-store URI", path=uri)
    named = _SCHEME.match(uri)
    scheme = named[1].lower() if named else ""
    if scheme in ("", "file"):
        uri = os.path.abspath(unquote(urlsplit(uri).path) if scheme else uri)
        if _ESCAPE.search(uri):
            raise InvalidArgumentError(
                f"{uri!r} holds a percent sign and two digits, which Delta reads as another character; use another path",
                path=uri,
            )
    else:
        check_uri(uri)
    if "\0" in uri:
        raise InvalidArgumentError(
            f"{uri!r} holds the character NUL, which no path has; use another path", path=repr(uri)
        )
    return uri.rstrip("/") or "/"


def queue_folder(queue: str) -> str:
    return f"queues/{check_name('queue', queue)}"


def partition_folder(queue: str, partition: int) -> str:
    return f"{queue_folder(queue)}/partitions/partition={partition}"


def partition_numbers(store: Store, queue: str) -> list[int]:
    """The partitions of a queue that have a folder, in the order of the folders' names."""
    named = map(_PARTITION.fullmatch, store.names(f"{queue_folder(queue)}/partitions"))
    return [int(match[1]) for match in named if match is not None]


def manifests_folder(queue: str, queue_id: str) -> str:
    return f"{queue_folder(queue)}/manifests/{check_name('queue id', queue_id)}"


def group_folder(group: str) -> str:
    return f"groups/{check_name('group', group)}"


def acks_folder(group: str, deletions: int) -> str:
    """Of a group that had been deleted so often before: acknowledgements of an earlier group of that name never count."""
    return f"{group_folder(group)}/acks" + (f"-{deletions}" if deletions else "")


def deletions_before(name: str) -> int | None:
    """How often a group had been deleted when a folder of that name was made for its acknowledgements; None if it is not for them."""
    match = _ACKS.fullmatch(name)
    return None if match is None else int(match[1] or 0)
