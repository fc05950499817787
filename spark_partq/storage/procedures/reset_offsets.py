"""Setting a group's positions, while no query consumes in the group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from spark_partq.core.delivery.offsets import LATEST
from spark_partq.core.delivery.resets import Goal, parse_goal, within
from spark_partq.core.errors import (
    CommitFailedError,
    GroupNotFoundError,
    InvalidArgumentError,
    PartqError,
    QueueNotFoundError,
    QueueNotReadyError,
)
from spark_partq.core.group.events import Reset, VoidResets
from spark_partq.core.ids import PartitionId
from spark_partq.core.names import check_name
from spark_partq.core.queue.resetting import announce_reset
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.procedures.attached import detach_deleted
from spark_partq.storage.procedures.inactive import Report, await_inactive
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.control import user_and_host
from spark_partq.storage.queue.handle import Queue, attach_group, barrier_of, first_left, open_queue
from spark_partq.storage.queue.starting import first_since
from spark_partq.storage.store import Store

# How often the reset is announced again when other processes come between.
_TRIES = 100


@dataclass(frozen=True)
class OffsetReset:
    """A partition in which the position of a group is set.

    Attributes
    ----------
    queue : str
        The name of the queue.
    partition : int
        The number of the partition in the queue.
    old : int
        The group's position in the partition before the reset: the offset of the next message that the group wanted.
    new : int
        The group's position in the partition after the reset: the offset of the next message that the group wants.
    again : int
        Messages at or above `new` that were delivered before: they are delivered again, marked as redelivered.
    skipped : int
        Messages below `new` that the group has not acknowledged: they are not delivered to the group any more.
    """

    queue: str
    partition: int
    old: int
    new: int
    again: int
    skipped: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def reset_offsets(
    store: Store,
    name: str,
    to: object,
    queues: Sequence[str] | None = None,
    dry_run: bool = False,
    report: Report = lambda _: None,
) -> list[OffsetReset]:
    """Set positions of a group; see `spark_partq.reset_offsets`.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, QueueNotFoundError, QueueNotReadyError, InvalidArgumentError, OffsetOutOfRangeError
    GroupActiveError, QueueFencedError, ReplicaError, NewerStoreError, CommitFailedError
        In each case nothing was changed.
    """
    store.check_exists()
    group = open_group(store, check_name("group", name))
    opened = _queues(group, queues)
    goal = parse_goal(to, {queue.name: queue.state.partition_numbers for queue in opened})
    now_us = store.now_ms() * 1000
    planned = _planned(group, opened, goal, now_us)
    await_inactive(store, group, decides=not dry_run, report=report)
    if dry_run or not planned:
        return list(planned.values())
    return _commit(group, opened, goal, now_us)


def _queues(group: Group, names: Sequence[str] | None) -> list[Queue]:
    """The queues to reset: all that the group reads and that exist, or the queues of these names."""
    read = {queue.name: queue_id for queue_id, queue in group.state.queues.items()}
    if isinstance(names, str) or (names is not None and not names):
        raise InvalidArgumentError(
            f"queues={names!r}: give a list of names, or none for all that the group reads", queues=names
        )
    unread = [name for name in names or () if name not in read]
    if unread or not read:
        reads = ", ".join(sorted(read)) or "no queue"
        raise InvalidArgumentError(
            f"group {group.name!r} does not read queue {unread[0] if unread else ''!r}; it reads {reads}",
            group=group.name,
        )
    found = []
    missing = (QueueNotFoundError, QueueNotReadyError) if names is None else ()  # deleted, or being deleted
    for name in sorted(set(read if names is None else names)):
        with contextlib.suppress(*missing):
            queue = open_queue(group.store, name)
            if queue.state.queue_id == read[name]:
                check_primary(queue, opening=True)
                found.append(queue)
            elif names is not None:
                raise QueueNotFoundError(
                    f"queue {name!r} was deleted and created again since group {group.name!r} read it; there is no position to set",
                    queue=name,
                    group=group.name,
                )
    return found


def _planned(group: Group, queues: Sequence[Queue], goal: Goal, now_us: int) -> dict[PartitionId, OffsetReset]:
    """Which positions are set to which offsets, as of the last refresh of the group. The queues are read now.

    Raises
    ------
    OffsetOutOfRangeError
    """
    found = {}
    since_us = goal.at(now_us)
    for queue in queues:
        queue.control.refresh()
        queue.refresh()
        for table in queue.partitions:
            partition_id = queue.state.queue_id, table.partition
            wanted = goal.offset(queue.name, table.partition) if since_us is None else LATEST
            if wanted is None or partition_id not in group.state.partitions:
                continue
            first, end = min(first_left(queue, table), table.next_offset), table.next_offset
            at_time = None if since_us is None else first_since(table, since_us)
            new = within(wanted, first, end, queue.name, table.partition) if at_time is None else max(first, at_time)
            old = group.position(partition_id) or 0
            again, skipped = max(0, group.delivered(partition_id) - new), max(0, new - max(old, first))
            found[partition_id] = OffsetReset(queue.name, table.partition, old, new, again, skipped)
    return found


def _commit(group: Group, queues: Sequence[Queue], goal: Goal, now_us: int) -> list[OffsetReset]:
    """Announce the reset in each queue. Then plan and commit it, if no process has made it void meanwhile (`core.queue.resetting`)."""
    planned: dict[PartitionId, OffsetReset] = {}

    def reset() -> list[Reset]:
        """Plan on the newest state of the group, and then of the queues."""
        nonlocal planned
        number = group.state.resets + 1
        planned = _planned(group, queues, goal, now_us)
        as_told = all(queue.state.resets.get(group.name) == number and _is_known(group, queue) for queue in queues)
        positions = {p: reset.new for p, reset in planned.items()}
        return [Reset(positions, number, goal.text, _overtaking(group, queues, positions))] if as_told else []

    try:
        for _ in range(_TRIES):
            for queue in queues:
                check_primary(queue)
                update_groups(queue)
            group = open_group(group.store, group.name)
            announced = max(queue.state.resets.get(group.name, 0) for queue in queues)
            if (
                announced > group.state.resets + 1
            ):  # in a promoted replica the queue may know of resets that the group does not
                group.decide(partial(list, [VoidResets(announced)]), user_and_host())
            number = group.state.resets + 1
            for queue in queues:
                attach_group(queue, group.name, group.state.deletions)
                queue.control.decide(partial(announce_reset, group=group.name, number=number))
            try:
                if group.decide(reset, user_and_host()):
                    return list(planned.values())
            except PartqError:
                group.decide(partial(list, [VoidResets(number)]), user_and_host())
                raise
    except GroupNotFoundError:
        detach_deleted(queues, group)
        raise
    raise CommitFailedError(
        f"the positions of group {group.name!r} were not set: {_TRIES} times, messages were removed or a partition count was changed meanwhile; "
        "try again",
        group=group.name,
    )


def _overtaking(group: Group, queues: Sequence[Queue], positions: Mapping[PartitionId, int]) -> list[PartitionId]:
    """Other partitions whose handed-out messages must now wait for messages that come again. A replay of these would not wait."""
    found = []
    for queue in queues:
        queue_id = queue.state.queue_id
        floors = group.state.committed_floors(queue_id)
        new = {number: offset for (id_, number), offset in positions.items() if id_ == queue_id}
        barrier = barrier_of(queue, partial(_settled, floors, new))
        for partition_id in group.state.partitions.keys() - positions.keys():
            at, given = group.position(partition_id) or 0, group.delivered(partition_id)
            if partition_id[0] == queue_id and barrier.limit(partition_id[1], at, given) < given:
                found.append(partition_id)
    return found


def _settled(floors: Callable[[int], int], new: Mapping[int, int], number: int) -> int:
    """The offset of a partition below which the group has settled everything, once these are its positions."""
    return min(floors(number), new.get(number, floors(number)))


def _is_known(group: Group, queue: Queue) -> bool:
    """Whether the group knows which partitions the queue has now."""
    known = group.state.queues.get(queue.state.queue_id)
    return known is not None and known.partition_numbers == queue.state.partition_numbers
