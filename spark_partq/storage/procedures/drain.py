"""Partitions are drained before they go (S2, S4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_partq.core.queue import decide
from spark_partq.core.queue.partition_map import drained
from spark_partq.storage.inspect.backlog import groups, unread
from spark_partq.storage.inspect.replicas import ReplicaStatus, status
from spark_partq.storage.procedures.partition_map import next_offsets, remove_files, update_groups
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import Queue


@dataclass(frozen=True)
class ScaleProgress:
    """What a change of the partition count waits for.

    Attributes
    ----------
    what : str
        For people.
    left : int
        Messages, or groups.
    alone : bool
        Nobody is there who would do it: no group that is behind has a member.
    """

    what: str
    left: int
    alone: bool = False


def decide_drained(queue: Queue) -> ScaleProgress | None:
    """Mode ``drain``: wait until everything is acknowledged, then decide that the count may change."""
    measured = queue.state
    left = _not_drained(queue, list(measured.partition_numbers))
    if left is None:
        behind = [replica for replica in update_replicas(queue) if replica.total_lag or replica.unread]
        if behind:
            return ScaleProgress(f"the replica in {behind[0].location}", behind[0].total_lag + behind[0].unread)
        queue.control.decide(lambda state: decide.finish_draining(state, measured))
        if queue.state.scaling is not None and not queue.state.scaling.drained:
            return ScaleProgress("others who decide about the queue", 1)
    return left


def _not_drained(queue: Queue, partitions: Sequence[int]) -> ScaleProgress | None:
    """None if every group has settled all of these partitions; with no group, if nothing is stored in them.

    What maintenance has removed, as it was too old, nobody waits for.
    """
    readers, queue_id = groups(queue), queue.state.queue_id
    left = unread(queue, partitions, readers)
    if left == 0:
        ends = {
            n: queue.table(n).next_offset
            for n in partitions
            if queue.table(n).first_offset < queue.table(n).next_offset
        }
        for group in readers:
            group.commit_floors(queue_id, ends)
        if drained(ends, [group.state.committed_floors(queue_id) for group in readers]):
            return None
    behind = [
        group
        for group in readers
        if any((group.position((queue_id, n)) or 0) < queue.table(n).next_offset for n in partitions)
    ]
    return ScaleProgress(
        "consumers to acknowledge what is left", left, alone=not any(group.state.members for group in behind)
    )


def update_replicas(queue: Queue) -> list[ReplicaStatus]:
    """Bring every replica up to date.

    Raises
    ------
    ReplicaError
        If one cannot be reached, or is not there any more.
    """
    for location in queue.state.replicas:
        Replicator(queue.store, queue.name, location).sync()
    return status(queue.store, queue.name) if queue.state.replicas else []


def remove_drained(queue: Queue) -> ScaleProgress | None:
    """Remove the partitions that go, once every group has settled all of them (S2); None if none is left.

    Nothing is written to them any more: they are sealed, and the map in force does not name them.
    """
    queue.control.refresh()
    generation, removing = queue.state.generation, queue.state.removing
    left = _not_drained(queue, removing) if removing else None
    if left is not None or not removing:
        return left
    ends = next_offsets(queue, removing)
    queue.control.decide(lambda state: decide.remove_drained(state, generation, ends))
    update_groups(queue)
    remove_files(queue)
    return None
