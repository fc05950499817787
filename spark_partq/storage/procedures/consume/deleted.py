"""The queues that a query reads and that were deleted while it ran (K3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_partq.core.errors import CheckpointMismatchError, PartqError, QueueNotFoundError
from spark_partq.storage.procedures.primary import check_not_fenced, check_primary
from spark_partq.storage.queue.handle import Queue, state_unless_deleted
from spark_partq.storage.store import Store


def deleted_queues(queues: Mapping[str, Queue]) -> tuple[str, ...]:
    """The ids of those of these queues that were deleted, or are being deleted. The query goes on with the others.

    Raises
    ------
    CheckpointMismatchError
        A queue was created again.
    QueueNotFoundError
        No queue is left.
    QueueFencedError, ReplicaError
        As `check_primary`; of a queue that is being deleted, only whether a replica had taken over.
    """
    gone: dict[str, Queue] = {}
    for name, queue in queues.items():
        state = state_unless_deleted(queue.store, name)
        if state is None:
            check_not_fenced(queue)
            gone[queue.state.queue_id] = queue
            continue
        check_primary(queue)
        if state.queue_id != queue.state.queue_id:
            raise created_again(name)
    if gone and len(gone) == len(queues):
        raise none_left(gone.values())
    return tuple(sorted(gone))


def none_left(queues: Collection[Queue]) -> QueueNotFoundError:
    """The error of a query that has lost these queues, at least one, and has no others."""
    first, *others = sorted(queues, key=lambda queue: queue.name)
    names = ", ".join(repr(queue.name) for queue in (first, *others))
    return QueueNotFoundError(
        f"{'queues' if others else 'queue'} {names} in {first.store.uri}: deleted, or being deleted; this query has no other queue to read",
        queue=first.name,
        store=first.store.uri,
    )


def is_deleted(store: Store, name: str, queue_id: str) -> bool:
    """Whether a queue was deleted or is being deleted, and not merely cannot be read."""
    try:
        state = state_unless_deleted(store, name)
    except PartqError:  # unknown for now
        return False
    return state is None or state.queue_id != queue_id


def created_again(name: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"queue {name!r} was deleted and created again while this query ran; start it with a new checkpointLocation",
        queue=name,
    )
