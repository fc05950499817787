"""What is left to read of a queue, over all the groups that read it, and what of it has to wait (Q8, S5, S6)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from spark_partq.core.delivery.barrier import waiting
from spark_partq.core.errors import PartqError
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.group.handle import Group, groups_of
from spark_partq.storage.queue.handle import Queue, barrier_of


def groups(queue: Queue) -> list[Group]:
    """The groups that are attached to the queue, as of its last refresh."""
    return groups_of(queue.store, queue.state)


def freeing(queue: Queue, readers: Sequence[Group]) -> Sequence[Group]:
    """Those whose acknowledgements free messages of the queue: all, but none of a dead-message queue."""
    return () if queue.state.holds_dead_messages else readers


def unread(queue: Queue, partitions: Sequence[int], readers: Sequence[Group]) -> int:
    """Messages in these partitions that not every group has acknowledged; with no group all that are stored."""

    def count(number: int) -> int:
        table = queue.table(number)
        table.refresh()
        read = [group.position((queue.state.queue_id, number)) or 0 for group in readers]
        return max(0, table.next_offset - max(table.first_offset, min(read, default=0)))

    return sum(queue.store.map(count, partitions))


def waiting_partitions(queue: Queue, group: Group) -> dict[int, dict[int, int]]:
    """What partitions wait for at the barrier of a resize: others, each with the offset up to which the group must have acknowledged it.

    As of the last refresh of both, of the queue after the group. Those that wait for nothing are left out.
    """
    queue_id = queue.state.queue_id
    barrier = barrier_of(queue, group.state.committed_floors(queue_id))
    ends = {table.partition: table.next_offset for table in queue.partitions}
    return waiting(group.state, group.acks, queue_id, barrier, ends)


def stuck_messages(queue: Queue, readers: Sequence[Group]) -> int:
    """How many messages nobody is given until they are copied from the parent of a queue that became partitioned; dead ones are put back from there."""
    return 0 if queue.state.holds_dead_messages else left_in_parent(queue, readers)


def told_of_stuck(queue: Queue) -> str:
    """How many messages are stuck, for people; nothing if none is, or that cannot be read."""
    stuck = 0
    with contextlib.suppress(PartqError, *MALFORMED):  # the checks of the group or the table tell
        stuck = stuck_messages(queue, groups(queue)) if queue.state.stuck else 0
    are = "are" if stuck > 1 else "is"
    return (
        f"{stuck:,} message{'s' if stuck > 1 else ''} in its parent {are} stuck: no consumer is given them"
        if stuck
        else ""
    )


def left_in_parent(queue: Queue, readers: Sequence[Group]) -> int:
    """How many messages are left in the parent of a queue that became partitioned and some group has not acknowledged."""
    if not queue.state.stuck:
        return 0
    parent = queue.table(PARENT)
    parent.refresh()
    return max(0, parent.next_offset - max(stuck_from(queue, readers), queue.state.removed_ends.get(PARENT, 0)))


def stuck_from(queue: Queue, readers: Sequence[Group]) -> int:
    """The first message of the parent, as of its last refresh, that some group wants of those that have shared it."""
    positions = [_in_parent(queue, group) for group in freeing(queue, readers)]
    return max(queue.table(PARENT).first_offset, min((p for p in positions if p is not None), default=0))


def _in_parent(queue: Queue, group: Group) -> int | None:
    """Its position there; nothing is settled for one that attached before the queue was last exclusive, and does not know the parent. None if it
    attached later.
    """
    found = group.position((queue.state.queue_id, PARENT))
    return 0 if found is None and queue.state.shared_parent_with(group.name) else found
