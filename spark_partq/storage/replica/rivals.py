"""Which replicas of a queue take over: whoever opens a primary asks, and whoever promotes one of them (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from spark_partq.core.errors import NotPermittedError, PartqError, StoreUnavailableError
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.replica.table import Options, ReplicaTable
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store

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
