"""Decisions about a queue's replicas, and about the queue when a replica takes over (S7). They are made like those of `core.queue.decide`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_partq.core.errors import ReplicaError
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.state import QueueState

_NOTHING: Facts = ()


def is_followed(state: QueueState, location: str, replica_ids: Collection[str]) -> bool:
    """Whether one of these replicas is the queue's replica at that location. The queue may have another replica there by now.

    If an older program added the replica, its id is not known; then the answer is yes.
    """
    return location in state.replicas and state.replica_ids.get(location) in (None, *replica_ids)


def add_replica(state: QueueState, location: str, replica_id: str = "") -> Facts:
    """Add a replica at that location. A former replica there is removed, but not while the queue is fenced for it."""
    listed = location in state.replicas
    known = state.replica_ids.get(location, "")
    if not state.usable or state.fenced_by == location or (listed and replica_id in ("", known)):
        return _NOTHING
    body = {"location": location} | ({"replica_id": replica_id} if replica_id else {})
    return [*(_removed(location) if listed else _NOTHING), QueueFact(Kind.REPLICA_ADDED, body)]


def _removed(location: str) -> Facts:
    return [QueueFact(Kind.REPLICA_REMOVED, {"location": location})]


def remove_replica(
    state: QueueState, location: str, replica_ids: Collection[str] = (), unfenced: int | None = None
) -> Facts:
    """Remove the replica at that location.

    Parameters
    ----------
    replica_ids : collection of str
        The replicas at that location that are given up. Nothing is decided if the queue has another replica there by now: a fence is for that
        one.
    unfenced : int, optional
        If given, a promotion of the replica that did not end is taken back: the partitions' fences up to this number are taken back. Nothing
        is decided if there is a later fence.

    Raises
    ------
    ReplicaError
        If the replica takes over, and its promotion is not taken back.
    """
    if not state.usable or not is_followed(state, location, replica_ids):
        return _NOTHING
    if state.fenced_by == location and unfenced is None:
        raise ReplicaError(
            f"the replica in {location} was promoted and took over from queue {state.name!r}; use that store",
            queue=state.name,
        )
    if state.fenced_by == location and unfenced is not None and unfenced < state.last_fence:
        return _NOTHING
    return [*(_fence(None) if state.fenced_by == location else _NOTHING), *_removed(location)]


def fence(state: QueueState, location: str, replica_id: str = "") -> Facts:
    """Fence the queue: it takes no messages and gives none any more, as its replica at that location takes over.

    The fact also records the replica's id.

    Raises
    ------
    ReplicaError
        If another replica has taken over, or the queue no longer has this replica.
    """
    if not state.usable:
        return _NOTHING
    check_not_taken_over(state, location)
    if not is_followed(state, location, (replica_id,)):
        raise ReplicaError(
            f"queue {state.name!r} does not know the replica in {location} any more, and goes on without it; use the queue, or "
            "replicate it again",
            queue=state.name,
            location=location,
        )
    return _NOTHING if state.fenced_by == location else [*add_replica(state, location, replica_id), *_fence(location)]


def check_not_taken_over(state: QueueState, location: str) -> None:
    """
    Raises
    ------
    ReplicaError
        If the queue is fenced for another replica than that one.
    """
    if state.fenced_by not in (None, location):
        raise ReplicaError(
            f"another replica of queue {state.name!r}, {state.fenced_by}, has taken over; use that one. If its promotion was "
            "interrupted, promote it again. If it cannot be promoted, or is lost, remove it as a replica (with force), then promote another",
            queue=state.name,
            location=state.fenced_by,
        )


def _fence(location: str | None) -> Facts:
    return [QueueFact(Kind.QUEUE_FENCED, {"location": location})]


def become_primary(state: QueueState, incarnation: str, ends: Mapping[int, int], before: str) -> Facts:
    """Turn a replica into a queue: it has no replicas itself, no replica has taken over from it, and it gets that incarnation.

    Nothing is decided if another process has done so, or a later promotion: facts that came since belong to the queue that is in use.

    Parameters
    ----------
    ends : dict
        The next offset of each partition that the queue ever had. Below these it has the messages of the incarnation before.
    before : str
        The queue's incarnation when the promotion was found under way.
    """
    if not state.usable or state.incarnation != before or before == incarnation:
        return _NOTHING
    forgotten = [fact for location in state.replicas for fact in _removed(location)]
    body = {"incarnation": incarnation, "ends": {str(number): end for number, end in sorted(ends.items())}}
    fence_of_before = _fence(None) if state.fenced_by is not None else _NOTHING
    return [*fence_of_before, *forgotten, QueueFact(Kind.PROMOTED, body)]
