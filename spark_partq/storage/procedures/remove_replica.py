"""A queue gives up a replica (S7)."""

from __future__ import annotations

import os
from functools import partial

from spark_partq.core.errors import PartqError, ReplicaError
from spark_partq.core.queue import replicas as decide_replicas
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide as decide_replica
from spark_partq.storage.procedures.primary import unfence_partitions
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.complete import incarnation_there
from spark_partq.storage.replica.following import follows_another
from spark_partq.storage.replica.rivals import Asking, went_on_without
from spark_partq.storage.replica.table import Options, ReplicaTable, reaching
from spark_partq.storage.store import Store


def remove_replica(
    store: Store,
    queue: str,
    location: str | os.PathLike[str],
    *,
    force: bool = False,
    options: Options | None = None,
) -> QueueState:
    """Give up the replica at that location. Its files stay, for `delete_queue`. A promotion that cannot be finished is taken back.

    Parameters
    ----------
    force : bool
        Cancel a promotion that has not ended. Also take a promotion back if the replica cannot be asked whether it took over.

    Raises
    ------
    ReplicaError
        If there is no such replica, or it was promoted, even if it follows another store since. Without `force`, also if it is being
        promoted, or the queue is fenced for it and it cannot be asked.
    """
    state, target = queue_state(store, queue), store.sibling(location, options)
    if target.uri not in state.replicas:
        raise ReplicaError(
            f"{target.uri} is no replica of queue {queue!r}; it has {', '.join(state.replicas) or 'none'}", queue=queue
        )

    table, replica, why, is_own = ReplicaTable(target, queue), None, "it is not there", False
    try:
        with reaching(target):
            replica = table.refresh()
            if replica is not None and replica.queue_id == state.queue_id:
                # If this queue goes on, a replica that another store has registered but not yet copied to could still be promoted beside
                # it.
                goes_on = state.fenced_by is None and incarnation_there(target, queue) == state.incarnation
                is_own = goes_on or not follows_another(target, replica, store, state)
                why = f"it follows {replica.primary}"
    except PartqError as error:
        why = str(error)
    queue_id = state.queue_id
    if replica is not None and not is_own and went_on_without(target, replica, Asking(store.uri, state.incarnation)):
        raise ReplicaError(
            f"{target.uri} was promoted, and took over from queue {queue!r} in {store.uri}; it follows {replica.primary} since. Use the queue "
            "there",
            queue=queue,
            location=target.uri,
        )
    # The replicas that are not promoted from here on. A replica that is made there later has another id.
    gone = {state.replica_ids.get(target.uri, "")}
    if replica is not None and is_own:
        with reaching(target):
            removed = table.decide(lambda replica: decide_replica.remove(replica, queue_id, force))
        gone.add(replica.replica_id if removed is None else removed.replica_id)
    elif state.fenced_by == target.uri and not force:
        raise ReplicaError(
            f"queue {queue!r} in {store.uri} was fenced for the promotion of {target.uri}, which cannot be asked whether it took over "
            f"({why}). Bring it back; or, if it is lost for good, pass force to go on here",
            queue=queue,
            location=target.uri,
        )
    given_way = force or replica is not None  # a promotion that began before may still fence the queue
    while state.usable and decide_replicas.is_followed(state, target.uri, gone):
        unfenced = state.last_fence if given_way else None
        if given_way and state.fenced_by == target.uri:
            unfence_partitions(store, state, state.last_fence)
        decision = partial(decide_replicas.remove_replica, location=target.uri, replica_ids=gone, unfenced=unfenced)
        state = open_control(store, queue).decide(decision)
    return state
