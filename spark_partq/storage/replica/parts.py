"""The queues that one pass copies: those of its groups, and then their dead-message queues (S7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_partq.core.errors import PartqError
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.queue.handle import state_unless_deleted
from spark_partq.storage.replica.explained import Read
from spark_partq.storage.replica.following import check_placed, follows_another
from spark_partq.storage.replica.manifest_copy import ManifestCopy
from spark_partq.storage.replica.step import Step
from spark_partq.storage.replica.table import replica_role
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store


@dataclass
class Part:
    """One queue, and what a pass has read of it."""

    state: QueueState
    has_dead_messages: bool  # of other queues
    was_whole: bool = False
    manifests: ManifestCopy = field(init=False)
    read: tuple[TableCopy, list[Step], QueueState, Read] = field(init=False)


def parts(
    store: Store,
    target: Store,
    states: Mapping[str, QueueState],
    first: str,
    replica: Callable[[str], ReplicaState | None],
) -> tuple[list[Part], dict[str, PartqError]]:
    """Those queues, then their dead-message queues that are used here and have a replica there; and by name the errors of queues where this is
    not known.

    They are read in this order. So messages that a group has put aside, and messages that were put back, are in the dead-message queue when it
    is read.

    Parameters
    ----------
    first : str
        The queue of the pass.
    replica : function
        Returns the state of a queue's replica there.
    """
    dead = {state.settings.dead_letter_queue or "" for state in states.values()} - {"", first}
    found = [Part(state, has_dead_messages=False) for name, state in states.items() if name not in dead]
    unknown: dict[str, PartqError] = {}
    for name in sorted(dead):
        try:
            followed = replica(name)
            state = states.get(name) or _followed(store, target, name, followed)
            if state is not None and followed is not None:
                check_placed(target, followed, store, state, anywhere=True)
        except PartqError as error:
            unknown[name] = error
        else:
            if state is not None:
                found.append(Part(state, has_dead_messages=True))
    return found, unknown


def _followed(store: Store, target: Store, queue: str, replica: ReplicaState | None) -> QueueState | None:
    if replica is None or replica.takes_over or replica.removed:
        return None
    state = _in_use(store, queue, replica.queue_id)
    if state is None or state.fenced_by is not None or replica_role(store, queue) == "replica":
        return None
    return None if follows_another(target, replica, store, state) else state


def in_use(store: Store, queues: Iterable[str], replica: Callable[[str], ReplicaState | None]) -> dict[str, QueueState]:
    """Those of the queues that the store still has, as they are now. Without a queue that was deleted, even if it was created again since."""
    known = {name: replica(name) for name in sorted(queues)}
    found = {name: _in_use(store, name, followed.queue_id) for name, followed in known.items() if followed is not None}
    return {name: state for name, state in found.items() if state is not None}


def _in_use(store: Store, queue: str, queue_id: str) -> QueueState | None:
    """The queue of that name, if it has that id and is not being deleted."""
    state = state_unless_deleted(store, queue)
    return state if state is not None and state.usable and state.queue_id == queue_id else None


def each(do: Callable[[Part], None], parts: Iterable[Part], problems: list[PartqError]) -> list[Part]:
    """Call `do` for each part, and return the parts where it succeeded. An error of a dead-message queue does not keep other queues back."""
    done = []
    for part in parts:
        try:
            do(part)
        except PartqError as error:
            if not part.has_dead_messages:
                raise
            problems.append(error)
        else:
            done.append(part)
    return done


def held_back(parts: Iterable[Part], done: Iterable[Part], unknown: Collection[str]) -> set[str]:
    """The queues whose groups are not copied, as the messages that these groups have put aside may not be there."""
    failed = {*unknown, *(part.state.name for part in parts)} - {part.state.name for part in done}
    return failed | {part.state.name for part in parts if part.state.settings.dead_letter_queue in failed}
