"""The table that says that a queue is a replica, and where replicas may be (S7).

The table ``queues/<queue>/replica/`` in the replica's store is made first. Until it says that the replica is promoted, only a
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
from spark_partq.core.replica.decide import still_needed
from spark_partq.core.replica.facts import ReplicaFact
from spark_partq.core.replica.state import ReplicaState, replay
from spark_partq.core.stored import MALFORMED, body_of, reason
from spark_partq.storage.files import FileMissing
from spark_partq.storage.log import DeltaLog, retrying
from spark_partq.storage.queue.partition_table import NEXT
from spark_partq.storage.rows import Row, RowTable, in_order
from spark_partq.storage.store import Store, partition_folder, queue_folder

Role = Literal["primary", "replica", "promoted"]
Options = Mapping[str, str]

# The most facts of one replica. Before files were merged, each jump of a copy left one.
MOST_FACTS = 1_000_000
# This many files are merged into one.
MERGE_AFTER = 64
# How long merged files stay, for processes that are about to read them.
_GRACE_MS = 86_400_000
# When the last pass ended, for people; a file beside the table's.
SYNCED = "synced.json"
_COLUMNS = (("seq", "long"), ("kind", "string"), ("body", "string"), ("by", "string"), ("at", "timestamp"))


class ReplicaTable:
    """One process's view of a replica's table, which may not exist. Several threads copy tables, and all may use this."""

    def __init__(self, store: Store, queue: str) -> None:
        self.store, self._queue, self._folder = store, queue, f"{queue_folder(queue)}/replica"
        self._about = f"the replica table of queue {queue!r}"
        self._what = f"{self._about} in {store.uri}"
        self._rows = self._open()
        self._state: ReplicaState | None = None
        self._lock = store.runtime.lock()

    def _open(self) -> RowTable:
        return RowTable(self.store, self._folder, self._about, _COLUMNS, MOST_FACTS)

    def refresh(self) -> ReplicaState | None:
        """The state as it is now; None if there is no replica, which takes one request to the store.

        Raises
        ------
        CorruptTableError
            If its facts cannot follow one another.
        """
        with self._lock:
            return self._refresh()

    def _refresh(self) -> ReplicaState | None:
        if self._rows.version < 0 and not self.store.has_folder(self._folder):
            return None
        try:
            if not self._rows.exists():
                return None
            self._rows.refresh(sure=not self.store.is_local)  # the table may have been created again
        except CorruptTableError:
            self._rows, self._state = self._open(), None
            if not self._rows.exists():
                return None
            self._rows.refresh()
        return self._take_in()

    def _take_in(self) -> ReplicaState | None:
        """Update the state to the rows as of the last refresh."""
        state, self._state = self._state, None  # an error leaves no state, so the next refresh begins with all rows
        fresh = self._rows.take_fresh()
        self._state = self._replayed(*((None, self._rows.rows()) if state is None or fresh is None else (state, fresh)))
        return self._state

    def _replayed(self, state: ReplicaState | None, rows: Sequence[Row]) -> ReplicaState | None:
        version = self._rows.version
        for row in in_order(rows, self._what, version):
            try:
                state = replay(self._queue, [_fact(row)], state)
            except MALFORMED as error:
                raise CorruptTableError(
                    f"{self._what}, version {version}, holds a fact that cannot be (number {row['seq']}, "
                    f"{row['kind']}: {reason(error)}): it was edited. Restore it from a backup, or, if it was not promoted, remove the "
                    "replica and replicate to another place",
                    queue=self._queue,
                    version=version,
                    seq=row["seq"],
                ) from error
        return state

    def decide(self, facts: Callable[[ReplicaState | None], Sequence[ReplicaFact]]) -> ReplicaState | None:
        """Commit what follows from the newest state, which is read again after a lost race. Returns the state after that.

        Makes the table if it does not exist.
        """

        def attempt() -> ReplicaState | None:
            state = self._refresh()
            decided = facts(state)
            if not decided:
                return state
            if state is None:
                self._rows.create([self._row(fact, seq) for seq, fact in enumerate(decided)])
            else:
                check_writable(state.format, self._what)
                self._append(state, decided)
            return self._take_in()

        with self._lock:
            return retrying(self.store.runtime, attempt, self._what)

    def _row(self, fact: ReplicaFact, seq: int) -> Row:
        at = self.store.now()
        return {"seq": seq, "kind": fact.kind, "body": json.dumps(fact.body), "by": "replication", "at": at}

    def _append(self, state: ReplicaState, facts: Sequence[ReplicaFact]) -> None:
        """Commit facts. If the table has many files, merge all facts that are still needed into one file."""
        if len(self._rows.files) < MERGE_AFTER:
            count = self._rows.count()
            return self._rows.append([self._row(fact, seq) for seq, fact in enumerate(facts, count)])
        before = in_order(self._rows.rows(), self._what, self._rows.version)
        kept = [row for row in before if still_needed(state, _fact(row))]
        rows = [{**row, "seq": seq} for seq, row in enumerate(kept)]
        rows += [self._row(fact, seq) for seq, fact in enumerate(facts, len(rows))]
        self._rows.append(rows, replace=True)
        self.store.runtime.request_upkeep(self._what, lambda: self._open().vacuum(_GRACE_MS, [SYNCED]))


def _fact(row: Row) -> ReplicaFact:
    return ReplicaFact(row["kind"], body_of(row["body"]))


def replica_role(store: Store, queue: str) -> Role:
    """The role of the queue in this store."""
    state = replica_state(store, queue)
    if state is None:
        return "primary"
    return "promoted" if state.promoted else "replica"


def replica_state(store: Store, queue: str) -> ReplicaState | None:
    """The state of the replica in this store; None if the queue never was a replica."""
    return ReplicaTable(store, queue).refresh()


def is_replica(store: Store, queue: str) -> bool:
    """Whether only a replicator may write the queue's tables in this store."""
    return replica_role(store, queue) == "replica"


def check_apart(store: Store, target: Store, queue: str) -> None:
    """Refuse a location that is the primary's, lies in it, or contains it.

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
                    f"{target.uri} is {'the store' if a == b else 'inside or around the store'} of queue {queue!r} "
                    "itself; a replica needs a place of its own",
                    queue=queue,
                    location=target.uri,
                )


def _real(store: Store, uri: str) -> str:
    """The same name for all names of a place, without links."""
    if store.is_local:
        return os.path.realpath(uri).rstrip("/")
    parts = urlsplit(uri)
    scheme = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}.get(parts.scheme.lower(), parts.scheme.lower())
    return f"{scheme}://{parts.netloc}{posixpath.normpath(parts.path or '/')}".rstrip("/")


def same_place(store: Store, uri: str) -> bool:
    """Whether that URI is one of the store's names, as far as this machine can tell."""
    return uri == store.uri or _real(store, uri) == _real(store, store.uri)


@contextlib.contextmanager
def reaching(target: Store) -> Iterator[None]:
    """Turn errors about files in that store into one kind of error."""
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
        f"queue {state.name!r} in {store.uri} was taken over by its replica in {location}; use that store. If the replica is not promoted "
        "there, its promotion was interrupted: promote it again, or remove the replica (with force) to go on here",
        queue=state.name,
        location=location,
    )
