"""What partitions still hold of what some group wants: what is lost if they go, and what a change waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.queue.partition_map import drained
from spark_partq.core.queue.scaling import Remainder
from spark_partq.storage.inspect.backlog import groups, unread
from spark_partq.storage.procedures.settled import settled_groups
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


def undrained(queue: Queue, partitions: Sequence[int]) -> ScaleProgress | None:
    """None if every group has settled all of these partitions; with no group, if nothing is stored in them.

    What maintenance has removed, as it was too old, nobody waits for.
    """
    readers, queue_id = settled_groups(queue), queue.state.queue_id
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


def measure_remainder(queue: Queue, partitions: Sequence[int]) -> Remainder:
    """What these partitions hold, and how much of it not every group has acknowledged."""
    lost = unread(queue, partitions, groups(queue))
    return Remainder(next_offsets(queue, partitions), lost)


def next_offsets(queue: Queue, partitions: Sequence[int]) -> Mapping[int, int]:
    return {n: queue.table(n).next_offset for n in partitions}
