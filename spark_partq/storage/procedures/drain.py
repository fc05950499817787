"""Partitions are drained before they are removed (S2, S4)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.queue import decide
from spark_partq.core.queue.removal import older
from spark_partq.storage.inspect.replicas import ReplicaStatus, status
from spark_partq.storage.procedures.partition_map import remove_files, update_groups
from spark_partq.storage.procedures.remainder import ScaleProgress, next_offsets, undrained
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.clock import measured_ms
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.replica.table import Options

_OTHERS = ScaleProgress("others who decide about the queue", 1)


def decide_drained(queue: Queue, replica_options: Options | None = None) -> ScaleProgress | None:
    """Mode ``drain``: once everything is acknowledged, decide that the count may change. Until then, return what it waits for."""
    measured = queue.state
    left = undrained(queue, list(measured.partition_numbers))
    if left is None:
        behind = [replica for replica in update_replicas(queue, replica_options) if replica.total_lag or replica.unread]
        if behind:
            return ScaleProgress(f"the replica in {behind[0].location}", behind[0].total_lag + behind[0].unread)
        queue.control.decide(lambda state: decide.finish_draining(state, measured))
        if queue.state.scaling is not None and not queue.state.scaling.drained:
            return _OTHERS
    return left


def update_replicas(queue: Queue, options: Options | None = None) -> list[ReplicaStatus]:
    """Bring every replica up to date.

    Parameters
    ----------
    options : dict, optional
        Storage options of the replicas' stores. Without them, those of the queue's store are used if both are object stores.

    Raises
    ------
    ReplicaError
        If a replica cannot be reached, or does not exist any more.
    """
    for location in queue.state.replicas:
        Replicator(queue.store, queue.name, location, options).sync()
    return status(queue.store, queue.name, options) if queue.state.replicas else []


def remove_drained(queue: Queue) -> ScaleProgress | None:
    """Remove the partitions that a change of the count left to be drained, once every group has settled all of them and `min_retention_ms` keeps
    none (S2).

    Returns what this waits for; None if no such partition is left. Nothing is written to them any more: they are sealed, and the map in force
    does not name them.
    """
    queue.control.refresh()
    measured, removing = queue.state, queue.state.removing
    if not removing:
        return None
    left = undrained(queue, removing) or _kept(queue, removing)
    if left is not None:
        return left
    ends = next_offsets(queue, removing)
    queue.control.decide(lambda state: decide.remove_drained(state, measured, ends))
    if queue.state.removing:  # a group attached meanwhile, or the count has changed
        return _OTHERS
    update_groups(queue)
    remove_files(queue)
    return None


def _kept(queue: Queue, drained: Sequence[int]) -> ScaleProgress | None:
    """The messages of these partitions that are too young to be removed, as of the last refresh.

    None at the end of a drain, which keeps ingress disabled until they are removed. A drain does not begin while an earlier change has left any.
    """
    settings, scaling, left = queue.state.settings, queue.state.scaling, 0
    if not settings.min_retention_ms or (scaling is not None and scaling.mode == "drain" and scaling.opened):
        return None
    now_ms = measured_ms(queue.store, queue.name)
    for number in drained:
        index = queue.table(number).index
        left += int(index.left[older(index.enqueued_us, settings.min_retention_ms, now_ms) :].sum())
    return ScaleProgress("messages that min_retention_ms keeps", left, alone=True) if left else None
