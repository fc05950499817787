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
from typing import Literal
from urllib.parse import urlsplit

from spark_partq.core.errors import (
    CorruptTableError,
    InvalidArgumentError,
    NewerStoreError,
    NotAStoreError,
    PartqError,
    QueueFencedError,
    ReplicaError,
)
from spark_partq.core.format import check_writable
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.facts import ReplicaFact
from spark_partq.core.replica.state import ReplicaState, replay
from spark_partq.core.stored import MALFORMED, body_of, reason
from spark_partq.storage.files import FileMissing
from spark_partq.storage.log import DeltaLog, retrying
from spark_partq.storage.queue.partition_table import NEXT
from spark_partq.storage.rows import RowTable, in_order
from spark_partq.storage.store import Store, partition_folder, queue_folder

Role = Literal["primary", "replica", "promoted"]
Options = Mapping[str, str]

# Of one replica; the copy of each table that skips a version leaves one.
MOST_FACTS = 1_000_000
_COLUMNS = (("seq", "long"), ("kind", "string"), ("body", "string"), ("by", "string"), ("at", "timestamp"))


class ReplicaTable:
    """One process's view of a replica's table. Tables are copied by several threads, which all may ask."""

    def __init__(self, store: Store, queue: str) -> None:
        self.store, self._queue, self._folder = store, queue, f"{queue_folder(queue)}/replica"
        self._about = f"the replica table of queue {queue!r}"
        self._what = f"{self._about} in {store.uri}"
        self._rows = self._open()
        self._lock = store.runtime.lock()

    def _open(self) -> RowTable:
        return RowTable(self.store, self._folder, self._about, _COLUMNS, MOST_FACTS)

    def refresh(self) -> ReplicaState | None:
        """The state as it is now; None if there is no replica.

        Raises
        ------
        CorruptTableError
            If its facts cannot follow one another.
        """
        with self._lock:
            return self._refresh()

    def _refresh(self) -> ReplicaState | None:
        try:
            if not self.store.is_local:
                self._rows = self._open()  # only so a table that was created again is seen there
            if not self._rows.exists():
                return None
            self._rows.refresh()
        except CorruptTableError:
            self._rows = self._open()
            if not self._rows.exists():
                return None
            self._rows.refresh()
        return self._replayed()

    def _replayed(self) -> ReplicaState | None:
        state: ReplicaState | None = None
        version = self._rows.version
        for row in in_order(self._rows.rows(), self._what, version):
            try:
                state = replay(self._queue, [ReplicaFact(row["kind"], body_of(row["body"]))], state)
            except MALFORMED as error:
                raise CorruptTableError(
                    f"{self._what}, version {version}, holds a fact that cannot be (number {row['seq']}, "
                    f"{row['kind']}: {reason(error)}): it was edited. Restore it from a backup, or, if it was not promoted, remove the "
                    "replica and create it again",
                    queue=self._queue,
                    version=version,
                    seq=row["seq"],
                ) from error
        return state

    def decide(self, facts: Callable[[ReplicaState | None], Sequence[ReplicaFact]]) -> ReplicaState | None:
        """Commit what follows from the newest state, which is read again when a race was lost; the state after that.

        Makes the table if there is none.
        """

        def attempt() -> ReplicaState | None:
            state = self._refresh()
            rows = [
                {
                    "seq": seq,
                    "kind": fact.kind,
                    "body": json.dumps(fact.body),
                    "by": "replication",
                    "at": self.store.now(),
                }
                for seq, fact in enumerate(facts(state), len(self._rows.rows()) if state is not None else 0)
            ]
            if rows and state is not None:
                check_writable(state.format, self._what)
            if rows and state is None:
                self._rows.create(rows)
            elif rows:
                self._rows.append(rows)
            return self._replayed() if rows else state

        with self._lock:
            return retrying(self.store.runtime, attempt, self._what)


def replica_role(store: Store, queue: str) -> Role:
    """What the queue in this store is. Asks the file system once, if it never was a replica."""
    state = replica_state(store, queue)
    if state is None:
        return "primary"
    return "promoted" if state.promoted else "replica"


def replica_state(store: Store, queue: str) -> ReplicaState | None:
    """What the table of a replica says of the queue in this store; None if it never was one."""
    return ReplicaTable(store, queue).refresh() if store.has_folder(f"{queue_folder(queue)}/replica") else None


def is_replica(store: Store, queue: str) -> bool:
    """Whether only a replicator may write the queue's tables in this store."""
    return replica_role(store, queue) == "replica"


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
    except (NotAStoreError, InvalidArgumentError, QueueFencedError, CorruptTableError, NewerStoreError, ReplicaError):
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
