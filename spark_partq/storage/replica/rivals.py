"""Which replicas of a queue take over. A process that opens a primary asks this, and a process that promotes a replica (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from spark_partq.core.errors import NotPermittedError, PartqError, StoreUnavailableError
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import Options, ReplicaTable, replica_state
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store

# A promotion takes a store for lost if it cannot be reached this often, with pauses of this length.
_ATTEMPTS, _PAUSE_S = 6, 1.0
_T = TypeVar("_T")


class Rival(NamedTuple):
    """A replica that takes over, or has taken over. `has_taken_over` is true also if it has become the copy of another primary since."""

    location: str
    table: ReplicaTable
    state: ReplicaState
    has_taken_over: bool


class Asking(NamedTuple):
    """The primary for which a process asks whether replicas take over: its URI, and the queue's incarnation there (None if it is not known)."""

    primary: str
    incarnation: str | None


def taking_over(
    store: Store,
    queue: str,
    queue_id: str,
    locations: Iterable[str],
    asking: Asking,
    options: Options | None = None,
    *,
    patient: bool = False,
) -> Iterator[Rival]:
    """Those replicas of a queue that are `Promoting` or `Promoted`, or that went on without it.

    A replica that cannot be reached is left out, and so is a location that leads to the asking store itself.

    Parameters
    ----------
    patient : bool
        Ask several times before a replica counts as one that cannot be reached.
    """
    for location in locations:
        table, state = None, None
        with contextlib.suppress(PartqError, OSError, FileMissing):
            table = ReplicaTable(store.sibling(location, options), queue)
            state = patiently(store.runtime, table.refresh) if patient else table.refresh()
        if table is not None and state is not None and state.queue_id == queue_id:
            went_on = not state.takes_over and went_on_without(table.store, state, asking)
            if (went_on or state.takes_over) and not _is_own(store, state):
                yield Rival(location, table, state, went_on or state.promoted)


def _is_own(store: Store, found: ReplicaState) -> bool:
    """Whether the replica that was found is that of the asking store: on this machine its location leads there."""
    own = replica_state(store, found.queue)
    return own is not None and own.replica_id == found.replica_id


def went_on_without(target: Store, replica: ReplicaState, asking: Asking) -> bool:
    """Whether the replica follows another primary, where a promotion has ended the asking queue's incarnation."""
    if replica.primary == asking.primary or asking.incarnation is None:
        return False
    for knows in (target, target.sibling(replica.primary)):  # until its first pass has ended the replica does not know
        with contextlib.suppress(PartqError, OSError, FileMissing):
            state = queue_state(knows, replica.queue)
            if state.queue_id == replica.queue_id and asking.incarnation in {f.incarnation for f in state.former}:
                return True
    return False


def patiently(runtime: Runtime, ask: Callable[[], _T]) -> _T:
    """The answer of a store, after several tries. One lost answer does not mean a lost store: data that only this store has would be lost with it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except NotPermittedError:
            raise
        except StoreUnavailableError:
            runtime.sleep(_PAUSE_S)
    return ask()
