"""Attaches a group to queues, before anybody reads where it starts in them (Q8)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from spark_partq.core.errors import PartqError
from spark_partq.core.queue import decide
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.handle import Queue, attach_group
from spark_partq.storage.replica.table import fenced_error


def is_attached(queue: Queue, group: Group) -> bool:
    return decide.is_attached(queue.state, group.name, group.state.deletions)


def attach(queue: Queue, group: Group) -> None:
    """Attach the group, as of its last refresh, so that no message at or above its start is removed.

    Raises
    ------
    QueueFencedError
        If a replica has taken over from the queue, and the group is not attached there.
    """
    attach_group(queue, group.name, group.state.deletions)
    if queue.state.fenced_by is not None and not is_attached(queue, group):
        raise fenced_error(queue.store, queue.state, queue.state.fenced_by)


def detach_deleted(queues: Iterable[Queue], group: Group) -> None:
    """Detach a group that was deleted. Its deletion may have ended before this process, which stood still, attached it."""
    group.refresh_if_there()
    for queue in queues:
        with contextlib.suppress(PartqError):  # a queue that is deleted or fenced waits for nobody
            queue.control.decide(lambda state: decide.detach_group(state, group.name, group.state.deletions))
