"""Which store a replica follows: the first that it was made from, and after a promotion the one that took over (S7)."""

from __future__ import annotations

from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.replica.complete import incarnation_there
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store


def follow(table: ReplicaTable, primary: Store, state: QueueState) -> ReplicaState | None:
    """Let the store of that table have a replica of the queue of the store `primary`; the replica after that."""
    target, replica_id = table.store, str(table.store.runtime.new_uuid())

    def facts(replica: ReplicaState | None) -> decide.Facts:
        takes_over = follows_another(target, replica, primary, state)
        return decide.follow(replica, replica_id, primary.uri, target.uri, state.queue_id, takes_over)

    return table.decide(facts)


def follows_another(target: Store, replica: ReplicaState | None, primary: Store, state: QueueState) -> bool:
    """Whether a replica follows another store: one from which this one has taken over, or which had taken over from this one.

    The same store may have two names; then it knows the replica's id, and the copy its incarnation.
    """
    if replica is None or replica.primary == primary.uri:
        return False
    is_known = replica.replica_id in state.replica_ids.values()
    return not is_known or incarnation_there(target, state.name) != state.incarnation
