"""Who may write a queue and consume it: a primary whose replica has not taken over (S7)."""

from __future__ import annotations

import contextlib

from spark_partq.core.errors import PartqError, ReplicaError
from spark_partq.core.queue import decide
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import Options, ReplicaTable, fenced_error, is_replica
from spark_partq.storage.store import Store, queue_folder


def check_primary(queue: Queue, opening: bool = False, options: Options | None = None) -> None:
    """Refuse a queue, as of its last refresh, whose replica took over, or that is a replica.

    Parameters
    ----------
    opening : bool
        Ask the replicas, too: one may have been promoted while this store could not be reached.
    options : dict, optional
        Storage options of the replicas' stores.

    Raises
    ------
    QueueFencedError, ReplicaError, NewerStoreError
    """
    queue.control.check_writable()
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
        check_not_superseded(queue.store, state, options)


def fence(store: Store, queue: str, location: str) -> QueueState:
    """Fence the queue, as its replica there takes over: producers and consumers get `QueueFencedError`.

    Also a producer that has read the control table before cannot append any more.

    Raises
    ------
    ReplicaError
        If another replica has taken over, or there is no such replica any more.
    """
    state = open_control(store, queue).decide(lambda state: decide.fence(state, location))
    if state.fenced_by == location:
        fence_partitions(store, state, True)
    return state


def fence_partitions(store: Store, state: QueueState, fenced: bool) -> None:
    numbers = [int(name.partition("=")[2]) for name in store.names(f"{queue_folder(state.name)}/partitions")]
    tables = [PartitionTable(store, state.name, number, state.schema) for number in numbers]
    store.map(lambda table: table.fence(fenced), [table for table in tables if table.exists()])


def check_not_superseded(store: Store, state: QueueState, options: Options | None = None) -> None:
    """Refuse a queue whose replica was promoted while this store could not be reached, and fence it.

    Raises
    ------
    QueueFencedError
    """
    if state.fenced_by is not None:
        raise fenced_error(store, state, state.fenced_by)
    for location in state.replicas:
        replica = None
        with contextlib.suppress(PartqError, OSError, FileMissing):  # who cannot be reached cannot be asked
            replica = ReplicaTable(store.sibling(location, options), state.name).refresh()
        if replica is not None and replica.queue_id == state.queue_id and replica.takes_over:
            fence(store, state.name, location)
            raise fenced_error(store, state, location)
