"""Decisions about a replica: each takes the replica's newest state and returns the facts that follow.

Each function is pure, and any process may call it. It is called on the newest state, and its facts are committed as the next version
of the replica's table. If another process was first, nothing is committed, and the function is called again on the newer state. A
decision that no longer applies gives no facts. `core.replica.state` says which fact may come when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_partq.core import format
from spark_partq.core.errors import ReplicaError
from spark_partq.core.replica.facts import Kind, Phase, ReplicaFact
from spark_partq.core.replica.state import ReplicaState

Facts = Sequence[ReplicaFact]
_NOTHING: Facts = ()


def follow(
    state: ReplicaState | None, replica_id: str, primary: str, location: str, queue_id: str, takes_over: bool = False
) -> Facts:
    """Begin a replica in the store at `location`, of that queue of the store `primary`, unless it has begun.

    Parameters
    ----------
    takes_over : bool
        The replica follows another store, from which `primary` has taken over: it follows `primary` from now on.

    Raises
    ------
    ReplicaError
        If the replica there was promoted, or is one of another queue.
    """
    if state is not None:
        check_follows(state)
        check_same_queue(state, location, queue_id)
        if not state.removed and not takes_over:
            return _NOTHING
    body = {"replica_id": replica_id, "primary": primary, "location": location, "queue_id": queue_id}
    body |= format.of_new_tables().body()
    before = [] if state is None or state.removed else [ReplicaFact(Kind.REMOVED, {})]
    return [*before, ReplicaFact(Kind.REPLICA_OF, body)]


def announce_jump(state: ReplicaState | None, folder: str, version: int) -> Facts:
    """Announce that a copy is about to skip to a version of that table, so that a promotion can take that version's place.

    The promotion takes the place of the highest announced version; files that are put below it have no effect.

    Raises
    ------
    ReplicaError
        If the replica was promoted.
    """
    if state is None:
        return _NOTHING
    check_follows(state)
    if state.jumps.get(folder, -1) >= version:
        return _NOTHING
    return [ReplicaFact(Kind.JUMPING, {"folder": folder, "version": version})]


def still_needed(state: ReplicaState, fact: ReplicaFact) -> bool:
    """Whether the state would be another one without this fact, which led to it and can be read."""
    return fact.kind != Kind.JUMPING or fact.body["version"] == state.jumps[fact.body["folder"]]


def remove(state: ReplicaState | None, queue_id: str, force: bool = False) -> Facts:
    """The queue has given the replica up.

    Parameters
    ----------
    force : bool
        Also if the replica is being promoted: the promotion is cancelled.

    Raises
    ------
    ReplicaError
        If the replica takes over from that queue.
    """
    if state is None or state.queue_id != queue_id:
        return _NOTHING
    if state.promoted:
        raise ReplicaError(
            f"the replica in {state.location} was promoted and took over from queue {state.queue!r}; use that store",
            queue=state.queue,
        )
    if state.takes_over and not force:
        raise ReplicaError(
            f"the replica in {state.location} is being promoted, to take over from queue {state.queue!r}. If that was interrupted, promote it again, "
            "or pass force to cancel its promotion",
            queue=state.queue,
        )
    cancelled = cancel_promotion(state, state.incarnation)
    return cancelled if state.removed or state.was_removed else [*cancelled, ReplicaFact(Kind.REMOVED, {})]


def start_promotion(
    state: ReplicaState | None, seen: ReplicaState, incarnation: str, others: Iterable[str], force: bool = False
) -> Facts:
    """Stop following the primary. A promotion that was interrupted goes on, under the incarnation that it chose.

    Parameters
    ----------
    seen : ReplicaState
        The replica's state before the primary was fenced for it.
    incarnation : str
        UUID of the queue's new incarnation.
    others : iterable of str
        Locations of the primary's other replicas.
    force : bool
        Promote the replica even if it was removed before `seen`.

    Raises
    ------
    ReplicaError
        If the replica was promoted already, or was removed; then its primary is in use.
    """
    if state is None or state.replica_id != seen.replica_id or (state.removed and not seen.removed):
        raise ReplicaError(
            f"the replica of queue {seen.queue!r} in {seen.location} was removed while it was being promoted: its primary "
            f"{seen.primary} goes on without it",
            queue=seen.queue,
            location=seen.location,
        )
    check_can_be_promoted(state, force)
    if state.phase is Phase.PROMOTING:
        return _NOTHING
    return [ReplicaFact(Kind.PROMOTING, {"incarnation": incarnation, "others": sorted(others)})]


def know(state: ReplicaState | None, other: ReplicaState) -> Facts:
    """Record another replica, which is being promoted: this one asks it before it is promoted itself. The copy here may not name that one yet."""
    if state is None or state.queue_id != other.queue_id or other.location in (*state.others, state.location):
        return _NOTHING
    return [ReplicaFact(Kind.OTHER_REPLICA, {"location": other.location})]


def cancel_promotion(state: ReplicaState | None, incarnation: str) -> Facts:
    """Cancel a promotion, as another replica takes over or is being promoted at the same time.

    Replication goes on as before. A promotion that has ended stays.

    Parameters
    ----------
    incarnation : str
        The incarnation of the promotion that is meant.
    """
    meant = state is not None and state.phase is Phase.PROMOTING and state.incarnation == incarnation
    return [ReplicaFact(Kind.PROMOTION_CANCELLED, {})] if meant else _NOTHING


def finish_promotion(state: ReplicaState | None, seen: ReplicaState) -> Facts:
    """Open the queue here to producers and consumers.

    Parameters
    ----------
    seen : ReplicaState
        The replica's state when no other replica was found to take over.

    Raises
    ------
    ReplicaError
        If another process has finished it, or the promotion was cancelled.
    """
    check_goes_on(state, seen)
    return [ReplicaFact(Kind.PROMOTED, {})]


# ---- refusals
def check_can_be_promoted(state: ReplicaState, force: bool) -> None:
    """
    Raises
    ------
    ReplicaError
        If the replica was promoted, or was removed and `force` is not set.
    """
    if state.promoted:
        raise ReplicaError(
            f"the replica of queue {state.queue!r} in {state.location} is already promoted; use it", queue=state.queue
        )
    if state.removed and not force:
        raise ReplicaError(
            f"queue {state.queue!r} in {state.location} was removed as a replica of {state.primary}, which goes on without it. "
            "Use the queue there; if that store is lost, pass force to promote this replica with what it has",
            queue=state.queue,
        )


def check_goes_on(state: ReplicaState | None, seen: ReplicaState) -> None:
    """
    Raises
    ------
    ReplicaError
        If the promotion in `seen` has ended, or was cancelled.
    """
    if state is not None:
        check_can_be_promoted(state, force=True)
    if state is None or state.phase is not Phase.PROMOTING or state.incarnation != seen.incarnation:
        raise ReplicaError(
            f"the promotion of queue {seen.queue!r} in {seen.location} was cancelled, as another replica was being promoted at the "
            "same time. Promote one of them again",
            queue=seen.queue,
            location=seen.location,
        )


def check_follows(state: ReplicaState) -> None:
    """
    Raises
    ------
    ReplicaError
        If the replica was promoted, or is being promoted.
    """
    if state.takes_over:
        raise ReplicaError(
            f"the replica of queue {state.queue!r} in {state.location} was promoted; nothing is copied there any more",
            queue=state.queue,
            location=state.location,
        )


def check_same_queue(state: ReplicaState, location: str, queue_id: str) -> None:
    """
    Raises
    ------
    ReplicaError
        If the replica is one of another queue.
    """
    if state.queue_id != queue_id:
        raise ReplicaError(
            f"{location} holds the replica of another queue {state.queue!r} (of {state.primary}); choose another location",
            queue=state.queue,
            location=location,
        )
