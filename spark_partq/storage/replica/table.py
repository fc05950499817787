"""What says that a queue is a replica, and where replicas may be (S7).

The table ``queues/<queue>/replica/`` in the replica's store is made first. Until it says that the replica is promoted, nothing but a
`Replicator` writes to the queue's tables there.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from spark_partq.core.errors import (
    CorruptTableError,
    InvalidArgumentError,
    NotAStoreError,
    PartqError,
    QueueFencedError,
    ReplicaError,
)
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.log import DeltaLog, retrying
from spark_partq.storage.queue.control import look
from spark_partq.storage.queue.partition_table import NEXT
from spark_partq.storage.rows import RowTable
from spark_partq.storage.store import Store, partition_folder, queue_folder

Role = Literal["primary", "replica", "promoted"]
Options = Mapping[str, str]
# A kind and a body.
ReplicaFact = tuple[str, dict[str, Any]]

_COLUMNS = (("seq", "long"), ("kind", "string"), ("body", "string"), ("by", "string"), ("at", "timestamp"))


@dataclass(frozen=True)
class About:
    """A replica, replayed from the facts of its table.

    The facts are ``ReplicaOf`` (replica_id, primary, location, queue_id), ``Jumping`` (folder, version: a copy is about to skip
    commits), ``Removed``, ``Promoting`` (nothing is copied any more), ``Promoted``.
    """

    replica_id: str
    primary: str
    location: str
    queue_id: str
    jumps: tuple[tuple[str, int], ...] = ()
    removed: bool = False
    promoting: bool = False
    promoted: bool = False


class ReplicaTable:
    """One process's view of a replica's table. Tables are copied by several threads, which all may ask."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store, self._folder = store, f"{queue_folder(queue)}/replica"
        self._what = f"the replica table of queue {queue!r}"
        self._rows = self._open()
        self._lock = store.runtime.lock()

    def _open(self) -> RowTable:
        return RowTable(self._store, self._folder, self._what, _COLUMNS)

    def look(self) -> About | None:
        """As it is now; None if there is none."""
        with self._lock:
            return self._look()

    def _look(self) -> About | None:
        try:
            if not self._store.is_local:
                self._rows = self._open()  # only so a table that was made anew is seen there
            if not self._rows.exists():
                return None
            self._rows.refresh()
        except CorruptTableError:
            self._rows = self._open()
            if not self._rows.exists():
                return None
            self._rows.refresh()
        about: About | None = None
        for row in sorted(self._rows.rows(), key=lambda row: int(row["seq"])):
            body = json.loads(row["body"])
            if row["kind"] == "ReplicaOf":
                about = About(**body) if about is None else replace(about, **body, removed=False)
            elif about is None:
                raise CorruptTableError(f"{self._what} in {self._store.uri} does not begin with a replica")
            elif row["kind"] == "Jumping":
                about = replace(about, jumps=(*about.jumps, (body["folder"], body["version"])))
            else:
                told: dict[str, Any] = {row["kind"].lower(): True}
                about = replace(about, **told)
        return about

    def tell(self, facts: Callable[[About | None], Sequence[ReplicaFact]]) -> About:
        """Commit what follows from the newest look; makes the table if there is none."""

        def attempt() -> About:
            about = self.look()
            rows = [
                {"seq": seq, "kind": kind, "body": json.dumps(body), "by": "replication", "at": self._store.now()}
                for seq, (kind, body) in enumerate(facts(about), len(self._rows.rows()))
            ]
            if rows and about is None:
                self._rows.create(rows)
            elif rows:
                self._rows.append(rows)
            found = self.look()
            assert found is not None
            return found

        with self._lock:
            return retrying(self._store.runtime, attempt, self._what)


def replica_role(store: Store, queue: str) -> Role:
    """What the queue in this store is. Costs one look at the file system if it never was a replica."""
    if not store.has_folder(f"{queue_folder(queue)}/replica"):
        return "primary"
    about = ReplicaTable(store, queue).look()
    if about is None:
        return "primary"
    return "promoted" if about.promoted else "replica"


def is_replica(store: Store, queue: str) -> bool:
    """Whether only a replicator may write the queue's tables in this store."""
    return replica_role(store, queue) == "replica"


def tell(store: Store, queue: str, facts: Callable[[QueueState], Sequence[QueueFact]]) -> QueueState:
    """Commit facts about the queue that follow from its newest state."""
    return look(store, queue).decide(facts)


def check_apart(store: Store, target: Store, queue: str) -> None:
    """Refuse a location that is the primary's, or lies in it, or holds it.

    Raises
    ------
    ReplicaError
    """
    folder = queue_folder(queue)
    mine, theirs = ([_real(s, s.uri), _real(s, s.uri_of(folder))] for s in (store, target))
    for a in mine:
        for b in theirs:
            if a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/"):
                raise ReplicaError(
                    f"{target.uri} is {'the store' if a == b else 'inside the store, or the other way round,'} of queue {queue!r} "
                    "itself; a replica needs a place of its own",
                    queue=queue,
                    location=target.uri,
                )


def _real(store: Store, uri: str) -> str:
    """One name for one place, without links."""
    if store.is_local:
        return os.path.realpath(uri).rstrip("/")
    parts = urlsplit(uri)
    scheme = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}.get(parts.scheme.lower(), parts.scheme.lower())
    return f"{scheme}://{parts.netloc}{posixpath.normpath(parts.path or '/')}".rstrip("/")


@contextlib.contextmanager
def reaching(target: Store) -> Iterator[None]:
    """What goes wrong with the files there is one kind of error."""
    try:
        yield
    except (NotAStoreError, InvalidArgumentError, QueueFencedError, CorruptTableError, ReplicaError):
        raise
    except (PartqError, OSError, FileMissing) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReplicaError(f"the replica in {target.uri} cannot be kept: {first}", location=target.uri) from error


def log_of(store: Store, queue: str, number: int) -> DeltaLog:
    return DeltaLog(store, partition_folder(queue, number), f"partition {number} of queue {queue!r}")


def next_offset(log: DeltaLog) -> int:
    return log.recorded(NEXT, 0) if log.exists() else 0


def fenced_error(store: Store, state: QueueState, location: str) -> QueueFencedError:
    return QueueFencedError(
        f"queue {state.name!r} in {store.uri} was taken over by its replica in {location}; use that store. If it is not promoted "
        "there, its promotion was interrupted: promote it again, or remove the replica to go on here",
        queue=state.name,
        location=location,
    )


# When the last pass ended, for people.
SYNCED = "synced.json"
