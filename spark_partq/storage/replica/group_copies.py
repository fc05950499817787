"""Which groups in a store are copies of groups in another store. Only a replicator changes copies (S7)."""

from __future__ import annotations

from spark_partq.core.errors import (
    CorruptTableError,
    NewerStoreError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
)
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import replica_state
from spark_partq.storage.store import Store


def is_copy(group: Group) -> bool:
    """Whether the group in its store is a copy, as of its last refresh."""
    return replica_of(group) is not None


def replica_of(group: Group) -> str | None:
    """The replica with which a group is copied into its store; None if the group is used there.

    A group is used where a queue that it reads is used: a queue that was promoted, or that never was a replica. A copy may not yet
    have the facts that say what the group reads; then the replicas are asked which groups are attached to them.
    """
    found = ""
    for queue_id, queue in group.state.queues.items():
        replica = replica_state(group.store, queue.name)
        if replica is None:
            own = _queue(group.store, queue.name)
            if own is not None and own.queue_id == queue_id:
                return None
        elif replica.queue_id == queue_id:
            if replica.promoted:
                return None
            found = found or queue.name
    return found or _attached_to(group)


def check_not_copied(group: Group) -> None:
    """Refuse a group that is a copy, as of its last refresh.

    Raises
    ------
    ReplicaError
    """
    replica = replica_of(group)
    if replica is not None:
        raise ReplicaError(
            f"group {group.name!r} in {group.store.uri} is a copy that comes with the replica of queue {replica!r}: "
            "only the replicator changes it. Use another group, use this group in the primary's store, or promote the replica first",
            group=group.name,
            queue=replica,
        )


def _attached_to(group: Group) -> str | None:
    """A replica to which the group is attached; None if it is attached to one that was promoted."""
    names = group.store.named("queues")
    attached = [
        replica
        for replica in group.store.map(lambda name: _replica(group.store, name), names)
        if replica is not None
        and (queue := _queue(group.store, replica.queue)) is not None
        and group.name in queue.groups
    ]
    if any(replica.promoted for replica in attached):
        return None
    return attached[0].queue if attached else None


# A queue that cannot be read says nothing about the group.
def _replica(store: Store, name: str) -> ReplicaState | None:
    try:
        return replica_state(store, name)
    except (CorruptTableError, NewerStoreError):
        return None


def _queue(store: Store, name: str) -> QueueState | None:
    try:
        return queue_state(store, name)
    except (CorruptTableError, NewerStoreError, QueueNotFoundError, QueueNotReadyError):
        return None
