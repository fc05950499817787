"""The other replicas of a queue, while one of them takes over: it asks them whether they take over, and tells them that it does (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial

from spark_partq.core.errors import PartqError, ReplicaError
from spark_partq.core.queue import replicas as decide_replicas
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide as decide_replica
from spark_partq.core.replica.facts import ReplicaFact
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.complete import incarnation_there, is_whole
from spark_partq.storage.replica.following import follows_other_primary
from spark_partq.storage.replica.rivals import Asking, Rival, patiently, taking_over
from spark_partq.storage.replica.table import ReplicaTable, reaching, replica_state, same_place
from spark_partq.storage.store import Store


def check_is_no_copy(store: Store, replica: ReplicaState) -> None:
    """Refuse a store that was copied from the replica's own place, if the replica is still there.

    Raises
    ------
    ReplicaError
    """
    if same_place(store, replica.location):
        return
    original = None
    with contextlib.suppress(PartqError, OSError, FileMissing):  # it was moved
        original = patiently(store.runtime, lambda: replica_state(store.sibling(replica.location), replica.queue))
    if original is not None and (original.replica_id == replica.replica_id or original.takes_over):
        raise ReplicaError(
            f"the replica of queue {replica.queue!r} in {store.uri} was made in {replica.location}, and is there, too: {store.uri} is a copy, or "
            f"another name of that store. Promote the replica in {replica.location}; for a trial, copy the primary and replicate the copy",
            queue=replica.queue,
            location=replica.location,
        )


def other_replicas(store: Store, replica: ReplicaState) -> list[str]:
    """Locations of the primary's other replicas, by the copy of its control table."""
    if not is_whole(store, replica):
        return []
    return [location for location in queue_state(store, replica.queue).replicas if location != replica.location]


def make_known(store: Store, mine: ReplicaState, others: Iterable[str]) -> None:
    """Tell the other replicas of this one, as an older copy does not name it. If this one's primary is a copy, the original's replicas are not told."""

    def facts(other: ReplicaState | None) -> Sequence[ReplicaFact]:
        if other is None or follows_other_primary(store, other, mine.primary):
            return ()
        return decide_replica.know(other, mine)

    for location in sorted(others):
        with contextlib.suppress(PartqError, OSError, FileMissing):  # a replica that cannot be reached is not told
            patiently(store.runtime, partial(ReplicaTable(store.sibling(location), mine.queue).decide, facts))


def check_alone(store: Store, table: ReplicaTable, mine: ReplicaState, others: Iterable[str], force: bool) -> None:
    """Refuse if another replica takes over. Then a promotion here that has begun is cancelled; or, with `force`, the other replica's.

    Raises
    ------
    ReplicaError
    """
    asking = Asking(mine.primary, incarnation_there(store, mine.queue))
    for rival in taking_over(store, mine.queue, mine.queue_id, sorted(others), asking, patient=True):
        copy = queue_state(store, mine.queue) if rival.state.promoted and is_whole(store, mine) else None
        if copy is not None and _descends_from(store, mine, copy, rival):
            continue
        if rival.has_taken_over or not force:
            table.decide(lambda now: decide_replica.cancel_promotion(now, mine.incarnation))
            raise _another(mine, copy, rival)
        incarnation = rival.state.incarnation
        with reaching(rival.table.store):
            left = rival.table.decide(lambda now: decide_replica.cancel_promotion(now, incarnation))  # noqa: B023
        if left is not None and left.takes_over:
            raise _another(mine, copy, rival)


def check_not_taken_over(replica: ReplicaState, primary: Store) -> None:
    """Raise `ReplicaError` if the primary is fenced for another replica: this promotion could not go on after cancelling that one's."""
    state = None
    with contextlib.suppress(PartqError):  # the primary is lost or damaged, and says nothing
        state = queue_state(primary, replica.queue)
    if state is not None and state.queue_id == replica.queue_id:
        decide_replicas.check_not_taken_over(state, replica.location)


def _descends_from(store: Store, mine: ReplicaState, copy: QueueState, rival: Rival) -> bool:
    """Whether this is a replica of the queue that the rival became, which is fenced for this replica or for a later one."""
    if rival.state.incarnation != copy.incarnation and not _is_former(copy, rival):
        return False
    followed = ReplicaTable(store.sibling(mine.primary), mine.queue).refresh()
    if followed is not None and followed.replica_id == rival.state.replica_id:  # perhaps by another location
        return True
    return queue_state(rival.table.store, mine.queue).fenced_by is not None


def _is_former(copy: QueueState, rival: Rival) -> bool:
    """Whether a later promotion ended what the rival was promoted to, and this is a copy of what came after."""
    return rival.state.incarnation in {incarnation for incarnation, _ in copy.former}


def _another(mine: ReplicaState, copy: QueueState | None, rival: Rival) -> ReplicaError:
    queue = rival.state.queue
    if copy is not None and _is_former(copy, rival):
        why = (
            f"has taken over, and {mine.primary}, which this replica follows, took over from it later. If programs have used {rival.location} since, "
            f"use that one. If it only came back, move its files to another place, and promote again"
        )
    elif rival.has_taken_over:
        why = "has taken over; use that one"
    else:
        why = "is being promoted. If that was interrupted, or both were begun at once, promote one of them again; force cancels the other"
    return ReplicaError(
        f"another replica of queue {queue!r}, {rival.location}, {why}", queue=queue, location=rival.location
    )
