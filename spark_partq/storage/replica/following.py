"""Which store a replica follows: at first the one that it was made from, after a promotion the one that took over (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from spark_partq.core.errors import OtherHistoryError, PartqError, ReplicaError
from spark_partq.core.queue.replicas import is_followed
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.complete import incarnation_there
from spark_partq.storage.replica.table import ReplicaTable, fenced_error, is_replica, same_place
from spark_partq.storage.store import Store


def check_source(store: Store, queue: str, taking_over: bool = False) -> QueueState:
    """Refuse a queue that cannot be followed, and return its state.

    Parameters
    ----------
    taking_over : bool
        The pass is the last one, after the queue was fenced.

    Raises
    ------
    ReplicaError, QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    state = queue_state(store, queue)
    if not state.usable:
        raise ReplicaError(f"queue {queue!r} in {store.uri} is {state.status}", queue=queue)
    if state.fenced_by is not None and not taking_over:
        raise fenced_error(store, state, state.fenced_by)
    if is_replica(store, queue):
        raise ReplicaError(f"queue {queue!r} in {store.uri} is a replica itself; replicate its primary", queue=queue)
    return state


@contextlib.contextmanager
def promoted_meanwhile(check_follows: Callable[[], object]) -> Iterator[None]:
    """A copy that was promoted in the middle of a pass has a history of its own from then on. `check_follows` raises in that case."""
    try:
        yield
    except OtherHistoryError:
        check_follows()
        raise


class Misplaced(NamedTuple):
    """A primary or a replica that lies elsewhere than the replica's table says: what was found, and what to do."""

    what: str
    remedy: str


def follow(table: ReplicaTable, primary: Store, state: QueueState) -> ReplicaState | None:
    """Begin a replica of the queue of the store `primary` in the store of that table, or let one follow it. Returns the replica's state.

    Raises
    ------
    ReplicaError
        If the replica was promoted, is one of another queue, or is misplaced.
    """
    target, replica_id = table.store, str(table.store.runtime.new_uuid())

    def facts(replica: ReplicaState | None) -> decide.Facts:
        takes_over = not goes_on(target, replica, primary, state)
        return decide.follow(replica, replica_id, primary.uri, target.uri, state.queue_id, takes_over)

    return table.decide(facts)


def goes_on(
    target: Store, replica: ReplicaState | None, primary: Store, state: QueueState, *, anywhere: bool = False
) -> bool:
    """Whether a pass from `primary` goes on with the replica that is in `target`. If not, that replica must begin anew.

    Parameters
    ----------
    anywhere : bool
        Go on although the replica's table names another location than `target`, as the last pass of a promotion does.

    Raises
    ------
    ReplicaError
        If one of the two is `misplaced`.
    """
    if replica is None or replica.removed:
        return False
    check_placed(target, replica, primary, state, anywhere=anywhere)
    if follows_another(target, replica, primary, state):
        return False
    return anywhere or same_place(target, replica.location)


def check_placed(
    target: Store, replica: ReplicaState, primary: Store, state: QueueState, *, anywhere: bool = False
) -> None:
    """Refuse a primary or a replica that is `misplaced`, before anything is copied.

    Raises
    ------
    ReplicaError
    """
    wrong = misplaced(target, replica, primary, state, anywhere)
    if wrong is not None:
        raise ReplicaError(
            f"{wrong.what}. Nothing of the queue was copied. {wrong.remedy}", queue=state.name, location=target.uri
        )


def misplaced(
    target: Store, replica: ReplicaState, primary: Store, state: QueueState, anywhere: bool = False
) -> Misplaced | None:
    """Whether the primary or the replica lies elsewhere than the replica's table says, so that a promotion would miss one of them; None if not.

    The same store may have two names on one machine. A replica that follows another store, which was promoted before or after, is not misplaced.
    """
    if replica.phase is not Phase.FOLLOWING or replica.queue_id != state.queue_id:
        return None
    about = f"the replica of queue {state.name!r} in {target.uri}"
    if not same_place(primary, replica.primary) and (
        not follows_another(target, replica, primary, state) or _is_copied(replica, primary, state)
    ):
        if target.uri in state.replicas:
            then = f"remove the replica from the queue in {primary.uri}, and replicate from there again"
        else:
            then = f"and replicate from {primary.uri} to another place"
        return Misplaced(
            f"{about} follows the queue in {replica.primary}, and not the one in {primary.uri}: that store was moved or copied, or has two "
            "names. A promotion looks for the primary only under the first name",
            f"If {replica.primary} is in use, use that name. If {primary.uri} is used from now on, stop all programs that use "
            f"{replica.primary}, {then}",
        )
    known_there = is_followed(state, replica.location, (replica.replica_id,))
    if known_there and not anywhere and not same_place(target, replica.location):
        return Misplaced(
            f"{about} was made in {replica.location}, and the queue in {primary.uri} knows it there: that store was moved or copied, or has two "
            "names. A promotion gives producers and consumers the first name",
            f"If {replica.location} is in use, use that name. If not, remove the replica in {replica.location} from the queue in {primary.uri}, "
            f"and replicate to {target.uri} again",
        )
    return None


def _is_copied(replica: ReplicaState, primary: Store, state: QueueState) -> bool:
    """Whether the replica follows another store that can be reached, and both that store and `primary` hold the same queue, unfenced."""
    theirs = _followed_in_use(primary, replica)
    return theirs is not None and (theirs.queue_id, theirs.incarnation) == (state.queue_id, state.incarnation)


def follows_other_primary(store: Store, replica: ReplicaState, primary: str) -> bool:
    """Whether the replica follows another store than `primary`, where the queue is in use: one of the two stores was copied, as for a trial.

    Parameters
    ----------
    store : Store
        The store from which to reach the one that is followed.
    """
    if same_place(store.sibling(replica.primary), primary):
        return False
    state = _followed_in_use(store, replica)
    return state is not None and state.queue_id == replica.queue_id


def _followed_in_use(store: Store, replica: ReplicaState) -> QueueState | None:
    """The queue that the replica follows; None if it is fenced, is a replica or cannot be reached from `store`. What cannot be reached is taken for lost."""
    with contextlib.suppress(PartqError, OSError, FileMissing):
        followed = store.sibling(replica.primary)
        state = queue_state(followed, replica.queue)
        if state.usable and state.fenced_by is None and not is_replica(followed, replica.queue):
            return state
    return None


def follows_another(target: Store, replica: ReplicaState | None, primary: Store, state: QueueState) -> bool:
    """Whether a replica follows another store than `primary`: one from which `primary` has taken over, or one that had taken over from it.

    The same store may have two names. Then the queue knows the replica's id, and the copy has the queue's incarnation.
    """
    if replica is None or replica.primary == primary.uri:
        return False
    is_known = replica.replica_id in state.replica_ids.values()
    return not is_known or incarnation_there(target, state.name) != state.incarnation


def following_problem(target: Store, replica: ReplicaState, primary: Store, state: QueueState) -> str:
    """Why a replica that the queue knows does not follow it; empty if it follows the queue, or takes over from it.

    A removal that was interrupted between the two stores leaves a replica that is removed there and known here.
    """
    if replica.takes_over:
        return ""
    if replica.queue_id != state.queue_id:
        return f"it is the replica of another queue {state.name!r} (of {replica.primary})"
    if replica.removed:
        return "it is removed there, and its removal was interrupted"
    return f"it follows {replica.primary}" if follows_another(target, replica, primary, state) else ""
