"""How far behind the replicas of a queue are (S7)."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spark_partq.core.errors import PartqError, QueueNotFoundError
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing, FileTooLarge
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.log.folder import MAX_HINT_BYTES
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.closing import was_closed
from spark_partq.storage.replica.following import following_problem
from spark_partq.storage.replica.group_copies import is_copy
from spark_partq.storage.replica.history import queue_history_problem
from spark_partq.storage.replica.table import (
    SYNCED,
    Options,
    ReplicaTable,
    log_of,
    next_offset,
    reaching,
)
from spark_partq.storage.store import Store, group_folder, queue_folder


@dataclass(frozen=True)
class ReplicaStatus:
    """A replica of a queue, and how far it is behind.

    Attributes
    ----------
    location : str
        The location of the store that holds the replica.
    promoted : bool
        Whether the replica has taken over from the queue.
    problem : str
        What is wrong with the replica; empty if nothing is.
    reachable : bool
        Whether the replica can be reached. If not, `problem` says why, and nothing else is known. If it can, `problem` says why it does not
        follow the primary.
    lag : dict
        By partition number, how many messages of the primary the replica lacks.
    unread : int
        Messages in the replica that not every group has acknowledged there.
    generation : int
        The generation of the queue, as the replica knows it; -1 before the first pass has ended.
    revision : int
        The revision of the queue (how many facts it has), as the replica knows it; 0 before the first pass has ended.
    synced_at : datetime
        When the last pass ended, by the clock of the process that made it; for people.
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
    """How far behind each replica of the queue is.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    state = queue_state(store, queue)
    return [status_of(store, state, store.sibling(location, options)) for location in state.replicas]


def in_sync(store: Store, queue: str, options: Options | None = None) -> bool:
    """Whether every replica has all messages, and all facts of the queue (S7)."""
    state = queue_state(store, queue)
    return all(
        s.reachable and not s.problem and s.total_lag == 0 and s.revision >= state.revision
        for s in status(store, queue, options)
    )


def status_of(store: Store, state: QueueState, target: Store) -> ReplicaStatus:
    try:
        with reaching(target):
            replica = ReplicaTable(target, state.name).refresh()
            if replica is None:
                return ReplicaStatus(target.uri, False, problem="there is no replica any more")
            found = ReplicaStatus(target.uri, True, replica.takes_over)
            lag = {n: next_offset(log_of(store, state.name, n)) for n in state.all_partitions}
            try:
                there = queue_state(target, state.name)
            except QueueNotFoundError:
                return replace(found, lag=lag, problem="its first pass has not ended")
            behind = {n: max(0, end - next_offset(log_of(target, state.name, n))) for n, end in lag.items()}
            synced_at = None
            with contextlib.suppress(FileMissing, FileTooLarge, ValueError, KeyError, TypeError, RecursionError):
                data = target.files.read(f"{queue_folder(state.name)}/replica/{SYNCED}", MAX_HINT_BYTES)
                synced_at = dt.datetime.fromisoformat(json.loads(data)["at"])
            return replace(
                found,
                lag=behind,
                unread=_unread(store, target, there),
                generation=there.generation,
                revision=there.revision,
                synced_at=synced_at,
                problem=following_problem(target, replica, store, state) or _history_problem(store, target, replica),
            )
    except PartqError as error:
        return ReplicaStatus(target.uri, False, problem=str(error))


def _history_problem(store: Store, target: Store, replica: ReplicaState) -> str:
    return "" if replica.takes_over else queue_history_problem(store, target, replica.queue)


def _unread(primary: Store, store: Store, state: QueueState) -> int:
    """Messages that not every copied group has acknowledged.

    A group that is used in the replica's store, with another queue that was promoted, does not count: it reads this queue once the queue is promoted.
    """
    groups = [
        group
        for group in groups_of(store, state)
        if is_copy(group) and not was_closed(primary, store, f"{group_folder(group.name)}/control")
    ]
    unread = 0
    for number in state.partition_numbers:
        table = PartitionTable(store, state.name, number, state.schema)
        table.refresh()
        read = min(((group.position((state.queue_id, number)) or 0) for group in groups), default=0)
        unread += max(0, table.next_offset - max(read, table.first_offset))
    return unread
