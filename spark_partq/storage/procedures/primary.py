"""Who may write a queue and consume it: a primary whose replica has not taken over (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from spark_partq.core.errors import NotPermittedError, PartqError, ReplicaError, StoreUnavailableError
from spark_partq.core.queue import decide
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import Options, ReplicaTable, fenced_error, is_replica
from spark_partq.storage.runtime import Runtime
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
        fence_partitions(store, state)
    return state


def fence_partitions(store: Store, state: QueueState) -> None:
    """Fence each partition as the queue's control table says; one whose fence was taken back meanwhile stays open."""
    store.map(lambda table: table.fence(state.last_fence), _tables(store, state))


def unfence_partitions(store: Store, state: QueueState, number: int | None = None) -> None:
    """Take the fences of each partition back up to that number, also those that are still to come; without one, what is there."""
    store.map(lambda table: table.unfence(number), _tables(store, state))


def _tables(store: Store, state: QueueState) -> list[PartitionTable]:
    numbers = [int(name.partition("=")[2]) for name in store.names(f"{queue_folder(state.name)}/partitions")]
    tables = [PartitionTable(store, state.name, number, state.schema) for number in numbers]
    return [table for table in tables if table.exists()]


def check_not_superseded(store: Store, state: QueueState, options: Options | None = None) -> None:
    """Refuse a queue whose replica was promoted while this store could not be reached, and fence it.

    Raises
    ------
    QueueFencedError
    """
    if state.fenced_by is not None:
        raise fenced_error(store, state, state.fenced_by)
    for rival in taking_over(store, state.name, state.queue_id, state.replicas, options):
        fence(store, state.name, rival.location)
        raise fenced_error(store, state, rival.location)


# A store that cannot be reached so often, with such pauses, is taken for lost by who promotes.
_ATTEMPTS, _PAUSE_S = 6, 1.0
_T = TypeVar("_T")


class Rival(NamedTuple):
    """A replica that takes over, or has."""

    location: str
    table: ReplicaTable
    state: ReplicaState


def taking_over(
    store: Store,
    queue: str,
    queue_id: str,
    locations: Iterable[str],
    options: Options | None = None,
    *,
    patient: bool = False,
) -> Iterator[Rival]:
    """Those of the replicas of a queue that say `Promoting` or `Promoted`. One that cannot be reached cannot be asked.

    Parameters
    ----------
    patient : bool
        Ask again and again before a replica is taken for one that cannot be reached.
    """
    for location in locations:
        table, state = None, None
        with contextlib.suppress(PartqError, OSError, FileMissing):
            table = ReplicaTable(store.sibling(location, options), queue)
            state = patiently(store.runtime, table.refresh) if patient else table.refresh()
        if table is not None and state is not None and state.queue_id == queue_id and state.takes_over:
            yield Rival(location, table, state)


def patiently(runtime: Runtime, ask: Callable[[], _T]) -> _T:
    """The answer of a store. One that is lost does not make a lost store: what only that has would be lost with it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except NotPermittedError:
            raise
        except StoreUnavailableError:
            runtime.sleep(_PAUSE_S)
    return ask()
