"""Which store a replica follows: at first the one that it was made from, after a promotion the one that took over (S7)."""

from __future__ import annotations

from spark_partq.core.errors import ReplicaError
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.complete import incarnation_there
from spark_partq.storage.replica.table import ReplicaTable, fenced_error, replica_role
from spark_partq.storage.store import Store


def check_source(store: Store, queue: str, taking_over: bool = False) -> QueueState:
    """Refuse a queue that cannot be followed, and return its state.

    Parameters
    ----------
    taking_over : bool
        The pass is the last one, after the queue was fenced.

    Raises
    ------
    ReplicaError, QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    state = queue_state(store, queue)
    if not state.usable:
        raise ReplicaError(f"queue {queue!r} in {store.uri} is {state.status}", queue=queue)
    if state.fenced_by is not None and not taking_over:
        raise fenced_error(store, state, state.fenced_by)
    if replica_role(store, queue) == "replica":
        raise ReplicaError(f"queue {queue!r} in {store.uri} is a replica itself; replicate its primary", queue=queue)
    return state


def follow(table: ReplicaTable, primary: Store, state: QueueState) -> ReplicaState | None:
    """Begin a replica of the queue of the store `primary` in the store of that table, or let one follow it. Returns the replica's state."""
    target, replica_id = table.store, str(table.store.runtime.new_uuid())

    def facts(replica: ReplicaState | None) -> decide.Facts:
        takes_over = follows_another(target, replica, primary, state)
        return decide.follow(replica, replica_id, primary.uri, target.uri, state.queue_id, takes_over)

    return table.decide(facts)


def follows_another(target: Store, replica: ReplicaState | None, primary: Store, state: QueueState) -> bool:
    """Whether a replica follows another store than `primary`: one from which `primary` has taken over, or one that had taken over from it.

    The same store may have two names. Then the queue knows the replica's id, and the copy has the queue's incarnation.
    """
    if replica is None or replica.primary == primary.uri:
        return False
    is_known = replica.replica_id in state.replica_ids.values()
    return not is_known or incarnation_there(target, state.name) != state.incarnation
