"""Which replicas of a queue take over: whoever opens a primary asks, and whoever promotes one of them (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from spark_partq.core.errors import NotPermittedError, PartqError, StoreUnavailableError
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import Options, ReplicaTable
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store

# A store that cannot be reached so often, with such pauses, is taken for lost by who promotes.
_ATTEMPTS, _PAUSE_S = 6, 1.0
_T = TypeVar("_T")


class Rival(NamedTuple):
    """A replica that takes over, or has; `has_taken_over` also if it has become the copy of another primary since."""

    location: str
    table: ReplicaTable
    state: ReplicaState
    has_taken_over: bool


class Asking(NamedTuple):
    """Who asks whether others take over: the URI of the primary, and the queue's incarnation there; None if that is not known."""

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
    """Those of the replicas of a queue that say `Promoting` or `Promoted`, or that went on without it. One that cannot be reached cannot be asked.

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
        if table is not None and state is not None and state.queue_id == queue_id:
            went_on = not state.takes_over and went_on_without(table.store, state, asking)
            if went_on or state.takes_over:
                yield Rival(location, table, state, went_on or state.promoted)


def went_on_without(target: Store, replica: ReplicaState, asking: Asking) -> bool:
    """Whether the copy there follows another primary, whose queue has ended the incarnation of who asks: somebody was promoted in its place."""
    if replica.primary == asking.primary or asking.incarnation is None:
        return False
    with contextlib.suppress(PartqError, OSError, FileMissing):  # its first pass may not have ended
        return asking.incarnation in {former.incarnation for former in queue_state(target, replica.queue).former}
    return False


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
