"""Partitions are drained before they go (S2, S4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_partq.core.queue.partition_map import drained
from spark_partq.core.queue.state import QueueFact
from spark_partq.storage.inspect.backlog import groups, unread
from spark_partq.storage.inspect.replicas import ReplicaStatus, status
from spark_partq.storage.procedures.partition_map import next_offsets, remove_files, tell_groups
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import Queue


@dataclass(frozen=True)
class Waiting:
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


def decide_drained(queue: Queue) -> Waiting | None:
    """Mode ``drain``: wait until everything is acknowledged, then decide that the count may change."""
    looked = queue.state
    left = _not_drained(queue, list(looked.numbers))
    if left is None:
        behind = [replica for replica in update_replicas(queue) if replica.total_lag or replica.unread]
        if behind:
            return Waiting(f"the replica in {behind[0].location}", behind[0].total_lag + behind[0].unread)
        queue.control.decide(lambda state: [QueueFact("QueueDrained", {})] if state.revision == looked.revision else [])
        if queue.state.scaling is not None and not queue.state.scaling.drained:
            return Waiting("others who decide about the queue", 1)
    return left


def _not_drained(queue: Queue, partitions: Sequence[int]) -> Waiting | None:
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
    return Waiting(
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


def remove_drained(queue: Queue) -> Waiting | None:
    """Remove the partitions that go, once every group has settled all of them (S2); None if none is left.

    Nothing is written to them any more: they are sealed, and the map in force does not name them.
    """
    queue.control.refresh()
    looked, going = queue.state, queue.state.going
    left = _not_drained(queue, going) if going else None
    if left is not None or not going:
        return left
    removed = [QueueFact("PartitionsRemoved", {"ends": next_offsets(queue, going), "lost": 0})]
    same = (looked.generation, going)  # else they may have come back, and be written again
    queue.control.decide(lambda now: removed if (now.generation, now.going) == same else [])
    tell_groups(queue)
    remove_files(queue)
    return None
