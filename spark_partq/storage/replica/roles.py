"""Who may write a queue and consume it: a primary whose replica has not taken over (S7)."""

from __future__ import annotations

from spark_partq.core.errors import ReplicaError
from spark_partq.storage.procedures.promote import check_not_superseded
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.replica.table import fenced_error, is_replica


def check_primary(queue: Queue, opening: bool = False) -> None:
    """Refuse a queue, as of its last look, whose replica took over, or that is a replica.

    Parameters
    ----------
    opening : bool
        Ask the replicas, too: one may have been promoted while this store could not be reached.

    Raises
    ------
    QueueFencedError, ReplicaError
    """
    state = queue.state
    if state.fenced_by is not None:
        raise fenced_error(queue.store, state, state.fenced_by)
    if is_replica(queue.store, queue.name):
        raise ReplicaError(
            f"queue {queue.name!r} in {queue.store.uri} is a replica: it can be read as a DataFrame, and nothing else. Use its "
            "primary, or promote it",
            queue=queue.name,
        )
    if opening and state.replicas:
        check_not_superseded(queue.store, state)
