"""How many messages of a queue are left to read, over all its groups, and which of them have to wait (Q8, S5, S6)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from spark_partq.core.delivery.barrier import waiting
from spark_partq.core.errors import PartqError
from spark_partq.core.group.held_keys import withheld
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.group.handle import Group, groups_of
from spark_partq.storage.queue.handle import Queue, barrier_of


def groups(queue: Queue) -> list[Group]:
    """The groups that are attached to the queue, as of its last refresh."""
    return groups_of(queue.store, queue.state)


def freeing(queue: Queue, readers: Sequence[Group]) -> Sequence[Group]:
    """The groups whose acknowledgements free messages of the queue: all groups, but none for a dead-message queue."""
    return () if queue.state.holds_dead_messages else readers


def unread(queue: Queue, partitions: Sequence[int], readers: Sequence[Group]) -> int:
    """Messages in these partitions that not every group has acknowledged; without groups, all stored messages."""

    def count(number: int) -> int:
        table = queue.table(number)
        table.refresh()
        read = [group.position((queue.state.queue_id, number)) or 0 for group in readers]
        return max(0, table.next_offset - max(table.first_offset, min(read, default=0)))

    return sum(queue.store.map(count, partitions))


def waiting_partitions(queue: Queue, group: Group) -> dict[int, dict[int, int]]:
    """What partitions wait for at the barrier of a resize: other partitions, each with the offset up to which the group must have acknowledged it.

    As of the last refresh of both; the queue must be refreshed after the group. Partitions that wait for nothing are left out.
    """
    queue_id = queue.state.queue_id
    barrier = barrier_of(queue, group.state.committed_floors(queue_id))
    ends = {table.partition: table.next_offset for table in queue.partitions}
    return waiting(group.state, group.acks, queue_id, barrier, ends)


def held_keys(queue: Queue, group: Group) -> frozenset[int]:
    """The keys of the queue whose messages the group is not given."""
    return withheld(group.state.held.get(queue.state.queue_id, frozenset()), queue.state.settings.dead_letter_order)


def stuck_messages(queue: Queue, readers: Sequence[Group]) -> int:
    """How many messages of the parent of a queue that became partitioned are given to no consumer until they are copied. 0 for a dead-message
    queue, as `redrive` reads the parent.
    """
    return 0 if queue.state.holds_dead_messages else left_in_parent(queue, readers)


def told_of_stuck(queue: Queue) -> str:
    """How many messages are stuck, in words for people; empty if none is, or if the number cannot be read."""
    stuck = 0
    with contextlib.suppress(PartqError, *MALFORMED):  # the check of the group or table reports it
        stuck = stuck_messages(queue, groups(queue)) if queue.state.stuck else 0
    are = "are" if stuck > 1 else "is"
    return (
        f"{stuck:,} message{'s' if stuck > 1 else ''} in its parent {are} stuck: no consumer is given them"
        if stuck
        else ""
    )


def left_in_parent(queue: Queue, readers: Sequence[Group]) -> int:
    """How many messages in the parent of a queue that became partitioned some group has not acknowledged."""
    if not queue.state.stuck:
        return 0
    parent = queue.table(PARENT)
    parent.refresh()
    return max(0, parent.next_offset - max(stuck_from(queue, readers), queue.state.removed_ends.get(PARENT, 0)))


def stuck_from(queue: Queue, readers: Sequence[Group]) -> int:
    """The parent's first message that some group wants, of the groups that have shared the parent. As of the parent's last refresh."""
    return max(queue.table(PARENT).first_offset, min(_in_parent(queue, readers), default=0))


def waits_for_copies(queue: Queue, readers: Sequence[Group]) -> bool:
    """Whether a group wants messages of the parent that are stuck there. As of the parent's last refresh."""
    end = queue.table(PARENT).next_offset
    return queue.state.stuck and any(position < end for position in _in_parent(queue, readers))


def _in_parent(queue: Queue, readers: Sequence[Group]) -> list[int]:
    """The positions in the parent of the groups that have shared it.

    It is 0 for a group that attached before the queue was last exclusive and does not know the parent.
    """
    queue_id = queue.state.queue_id
    positions = [(group.name, group.position((queue_id, PARENT))) for group in freeing(queue, readers)]
    return [
        position or 0 for name, position in positions if position is not None or queue.state.shared_parent_with(name)
    ]
