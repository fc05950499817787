"""Which queue may be written and consumed: a primary whose replica has not taken over (S7)."""

from __future__ import annotations

from collections.abc import Collection

from spark_partq.core.errors import QueueNotFoundError, ReplicaError
from spark_partq.core.queue import replicas
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.rivals import Asking, taking_over
from spark_partq.storage.replica.table import Options, ReplicaTable, fenced_error
from spark_partq.storage.store import Store, partition_numbers


def check_primary(queue: Queue, opening: bool = False, options: Options | None = None) -> None:
    """Refuse a queue whose replica took over, or that is a replica itself, as of its last refresh.

    Parameters
    ----------
    opening : bool
        Ask the replicas, too: a replica may have been promoted while this store could not be reached.
    options : dict, optional
        Storage options of the replicas' stores.

    Raises
    ------
    QueueFencedError, ReplicaError, NewerStoreError
    """
    queue.control.check_writable()
    check_not_fenced(queue)
    replica = queue.kept(ReplicaTable).refresh()
    if replica is not None and not replica.promoted:
        raise ReplicaError(
            f"queue {queue.name!r} in {queue.store.uri} is a replica: it can be read as a DataFrame, and nothing else. Use its "
            "primary, or promote it",
            queue=queue.name,
        )
    if opening and queue.state.replicas:
        check_not_superseded(queue.store, queue.state, options)


def check_not_fenced(queue: Queue) -> None:
    """Refuse a queue whose replica took over, as of its last refresh.

    Raises
    ------
    QueueFencedError
    """
    if queue.state.fenced_by is not None:
        raise fenced_error(queue.store, queue.state, queue.state.fenced_by)


def know_replica(store: Store, queue: QueueState, location: str, replica_id: str) -> None:
    """Record in the queue which replica follows it at that location, unless another queue has its name by now."""
    open_control(store, queue.name).decide(
        lambda state: replicas.add_replica(state, location, replica_id) if _is_same(state, queue) else ()
    )


def _is_same(state: QueueState, queue: QueueState) -> bool:
    return (state.queue_id, state.incarnation) == (queue.queue_id, queue.incarnation)


def fence(store: Store, queue: QueueState, location: str, replica_id: str) -> QueueState:
    """Fence the queue, as the replica at that location takes over: producers and consumers get `QueueFencedError`.

    A producer that has read the control table before the fence cannot append any more, either.

    Raises
    ------
    ReplicaError
        If another replica has taken over, or the queue no longer has this replica.
    QueueNotFoundError
        If another queue has its name by now.
    """
    state = open_control(store, queue.name).decide(
        lambda state: replicas.fence(state, location, replica_id) if _is_same(state, queue) else ()
    )
    if not _is_same(state, queue):
        raise QueueNotFoundError(
            f"queue {queue.name!r} in {store.uri} was deleted, and another one has its name",
            queue=queue.name,
            store=store.uri,
        )
    if state.fenced_by == location:
        fence_partitions(store, state)
    return state


def fence_partitions(store: Store, state: QueueState) -> None:
    """Fence each partition as the queue's control table says. A partition whose fence was taken back meanwhile stays open."""
    store.map(lambda table: table.fence(state.last_fence), _tables(store, state))


def unfence(queue: Queue, partitions: Collection[int]) -> list[PartitionTable]:
    """Take back fences of partitions that were found before the last refresh of the queue, which is not fenced.

    A process that slept may fence a table that was made after the fence was taken back.
    """
    tables = [queue.table(number) for number in partitions]
    queue.store.map(lambda table: table.unfence(queue.state.last_fence), tables)
    return tables


def unfence_partitions(store: Store, state: QueueState, number: int) -> None:
    """Take back the fences of each partition up to that number, including fences that are still to come."""
    store.map(lambda table: table.unfence(number), _tables(store, state))


def _tables(store: Store, state: QueueState) -> list[PartitionTable]:
    tables = [
        PartitionTable(store, state.name, number, state.schema) for number in partition_numbers(store, state.name)
    ]
    return [table for table in tables if table.exists()]


def check_not_superseded(store: Store, state: QueueState, options: Options | None = None) -> None:
    """Refuse a queue whose replica was promoted while this store could not be reached, and fence the queue.

    Raises
    ------
    QueueFencedError
    """
    if state.fenced_by is not None:
        raise fenced_error(store, state, state.fenced_by)
    asking = Asking(store.uri, state.incarnation)
    for rival in taking_over(store, state.name, state.queue_id, state.replicas, asking, options):
        # The queue may not know this replica's id: the replica was made again, and the process that had to record the
        # id here died.
        know_replica(store, state, rival.location, rival.state.replica_id)
        fence(store, state, rival.location, rival.state.replica_id)
        raise fenced_error(store, state, rival.location)
