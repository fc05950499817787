"""Replicas of a queue: make one, see how far each is, remove one (S7). `storage.procedures.promote` lets one take over."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spark_partq.core.errors import PartqError, QueueNotFoundError, ReplicaError
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.procedures.promote import fence_partitions
from spark_partq.storage.procedures.replicate import SYNCED, Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import (
    About,
    Options,
    ReplicaFact,
    ReplicaTable,
    log_of,
    next_offset,
    reaching,
    target_store,
    tell,
)
from spark_partq.storage.store import Store, queue_folder


def replicate(
    store: Store, queue: str, location: str | os.PathLike[str], *, options: Options | None = None
) -> ReplicaStatus:
    """Make a replica, or bring it up to date: one pass.

    Raises
    ------
    ReplicaError
        If that cannot be a replica of this queue (nothing was written then), was promoted, or cannot be written.
    QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    replicator = Replicator(store, queue, location, options)
    replicator.register()
    replicator.sync()
    return _status_of(store, queue_state(store, queue), replicator.target)


@dataclass(frozen=True)
class ReplicaStatus:
    """A replica as `status` shows it.

    Attributes
    ----------
    reachable : bool
        If not, `problem` says why, and nothing else is known.
    lag : dict
        Per partition the messages that it lacks.
    unread : int
        Messages in the replica that not every group has acknowledged there.
    generation, revision : int
        Of the queue, as the replica knows it; -1 and 0 before its first pass has ended.
    synced_at : datetime
        When the last pass ended, by the clock of who made it; for people.
    """

    location: str
    reachable: bool
    promoted: bool = False
    lag: dict[int, int] = field(default_factory=dict)
    unread: int = 0
    generation: int = -1
    revision: int = 0
    synced_at: dt.datetime | None = None
    problem: str = ""

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps({**asdict(self), "total_lag": self.total_lag}, default=str))
        return plain


def status(store: Store, queue: str, options: Options | None = None) -> list[ReplicaStatus]:
    """How far each replica of the queue is.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    state = queue_state(store, queue)
    return [_status_of(store, state, target_store(store, location, options)) for location in state.replicas]


def in_sync(store: Store, queue: str, options: Options | None = None) -> bool:
    """Whether every replica has all messages, and knows all that was decided about the queue (S7)."""
    state = queue_state(store, queue)
    return all(s.reachable and s.total_lag == 0 and s.revision >= state.revision for s in status(store, queue, options))


def _status_of(store: Store, state: QueueState, target: Store) -> ReplicaStatus:
    try:
        with reaching(target):
            about = ReplicaTable(target, state.name).look()
            if about is None:
                return ReplicaStatus(target.uri, False, problem="there is no replica any more")
            found = ReplicaStatus(target.uri, True, about.promoting or about.promoted)
            lag = {n: next_offset(log_of(store, state.name, n)) for n in state.every}
            try:
                there = queue_state(target, state.name)
            except QueueNotFoundError:
                return replace(found, lag=lag, problem="its first pass has not ended")
            behind = {n: max(0, end - next_offset(log_of(target, state.name, n))) for n, end in lag.items()}
            synced_at = None
            with contextlib.suppress(FileMissing, ValueError, KeyError):
                data = target.files.read(f"{queue_folder(state.name)}/replica/{SYNCED}")
                synced_at = dt.datetime.fromisoformat(json.loads(data)["at"])
            return replace(
                found,
                lag=behind,
                unread=_unread(target, there),
                generation=there.generation,
                revision=there.revision,
                synced_at=synced_at,
            )
    except PartqError as error:
        return ReplicaStatus(target.uri, False, problem=str(error))


def _unread(store: Store, state: QueueState) -> int:
    groups = groups_of(store, state.queue_id)
    unread = 0
    for number in state.numbers:
        table = PartitionTable(store, state.name, number, state.schema)
        table.refresh()
        read = min(((group.position((state.queue_id, number)) or 0) for group in groups), default=0)
        unread += max(0, table.next_offset - max(read, table.first_offset))
    return unread


def remove_replica(
    store: Store,
    queue: str,
    location: str | os.PathLike[str],
    *,
    force: bool = False,
    options: Options | None = None,
) -> QueueState:
    """Follow the queue there no more. What is there stays, for `delete_queue`. A promotion that cannot be finished is taken back.

    Parameters
    ----------
    force : bool
        Take a promotion back although the replica cannot be asked whether it took over.

    Raises
    ------
    ReplicaError
        If it is none, or was promoted; or the queue is fenced for it and it cannot be reached.
    """
    state, target = queue_state(store, queue), target_store(store, location, options)
    if target.uri not in state.replicas:
        raise ReplicaError(
            f"{target.uri} is no replica of queue {queue!r}; it has {', '.join(state.replicas) or 'none'}", queue=queue
        )

    def leave(about: About | None) -> list[ReplicaFact]:
        if about is not None and about.queue_id == state.queue_id and (about.promoting or about.promoted):
            raise ReplicaError(f"{target.uri} was promoted and took over from queue {queue!r}; use it", queue=queue)
        return [] if about is None or about.queue_id != state.queue_id or about.removed else [("Removed", {})]

    table, about, why = ReplicaTable(target, queue), None, "it is not there"
    try:
        with reaching(target):
            about = table.look()
    except PartqError as error:
        why = str(error)
    if about is not None and about.queue_id == state.queue_id:
        with reaching(target):
            table.tell(leave)
    elif state.fenced_by == target.uri and not force:
        raise ReplicaError(
            f"queue {queue!r} in {store.uri} was fenced for the promotion of {target.uri}, which cannot be asked whether it took over "
            f"({why}). Bring it back; or, if it is lost for good, pass force to go on here",
            queue=queue,
            location=target.uri,
        )
    mine = state.fenced_by == target.uri
    if mine:
        fence_partitions(store, state, False)
    back = [QueueFact("QueueFenced", {"location": None})] if mine else []
    return tell(
        store,
        queue,
        lambda s: [*back, QueueFact("ReplicaRemoved", {"location": target.uri})] if target.uri in s.replicas else [],
    )
