"""Whether a replica is a whole copy of its queue, so that it can be promoted: a file that each pass puts when it ends (S7)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing, FileTooLarge
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.log.folder import MAX_HINT_BYTES
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import SYNCED, ReplicaTable
from spark_partq.storage.store import Store, queue_folder


@dataclass(frozen=True)
class SyncReport:
    """What one pass did: how many versions it copied, and how many messages of each partition were left when it ended."""

    commits: int
    lag: dict[int, int]

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())


def is_complete(target: Store, queue: str) -> bool:
    """Whether a pass has ended. If the copy then got messages of a later incarnation: whether a pass has ended since.

    A pass that stood still may say late that it has ended. That counts only for the replica and the incarnation that it copied.
    """
    try:
        told = json.loads(target.files.read(_path(queue), MAX_HINT_BYTES))
    except FileMissing:
        return False
    except (ValueError, FileTooLarge):  # a power cut may have left it empty
        return True
    if not isinstance(told, dict) or "replica_id" not in told:  # of an older program
        return True
    replica = ReplicaTable(target, queue).refresh()
    if (
        replica is None or replica.takes_over
    ):  # it was whole when its promotion began, and has another incarnation since
        return replica is not None
    return replica.replica_id == told["replica_id"] and incarnation_there(target, queue) == told.get("incarnation")


def is_whole(target: Store, replica: ReplicaState) -> bool:
    """Whether the replica is complete, or was so when its promotion began: a pass that slept may have removed the file since."""
    return replica.phase is Phase.PROMOTING or is_complete(target, replica.queue)


def has_ended(target: Store, queue: str, replica_id: str, incarnation: str, lag: int) -> None:
    """Record that a pass has ended that copied to that replica from that incarnation of the queue, and how many messages it left."""
    told = {"at": target.now().isoformat(), "lag": lag, "replica_id": replica_id, "incarnation": incarnation}
    target.files.put(_path(queue), json.dumps(told).encode())


def begin(target: Store, state: QueueState) -> bool:
    """A pass is about to copy a queue whose incarnation the copy lacks: the copy is not whole until the pass ends. Returns whether it was whole before.

    The copy gets messages of the new incarnation before the fact that says up to which offsets both incarnations have the same
    messages.
    """
    was_whole = is_complete(target, state.name)
    target.files.delete(_path(state.name))
    return was_whole


def lacks(target: Store, state: QueueState) -> bool:
    """Whether a copy was made before the queue's incarnation began."""
    return incarnation_there(target, state.name) not in (None, state.incarnation)


def incarnation_there(target: Store, queue: str) -> str | None:
    """The incarnation of a queue that its copy knows; None if there is no control table yet."""
    if not DeltaLog(target, f"{queue_folder(queue)}/control", queue).exists():
        return None
    return queue_state(target, queue).incarnation


def _path(queue: str) -> str:
    return f"{queue_folder(queue)}/replica/{SYNCED}"
