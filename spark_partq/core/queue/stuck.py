"""Decisions about messages that are stuck in the parent of a queue that became partitioned (S6).

As in `decide`, each may come late or more than once.
"""

from __future__ import annotations

from spark_partq.core.errors import InvalidArgumentError, ScalingInProgressError
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState

_NOTHING: Facts = ()


def start_copying(state: QueueState, unread_from: int) -> Facts:
    """Begin to copy stuck messages into the partitions. Only one copy is under way at a time.

    Parameters
    ----------
    unread_from : int
        The first of the parent's messages that some group has not acknowledged.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive.
    ScalingInProgressError
        If the queue is about to become exclusive.
    """
    if state.first == PARENT:
        raise InvalidArgumentError(
            f"queue {state.name!r} is exclusive: its consumers read the messages in the parent, so no message is stuck",
            queue=state.name,
        )
    if not state.usable or not state.stuck or state.copying is not None:
        return _NOTHING
    if state.scaling is not None and state.scaling.partition_count == 0:
        raise ScalingInProgressError(
            f"queue {state.name!r} is about to become exclusive; then its consumers read the messages in the parent",
            queue=state.name,
        )
    start = max(unread_from, state.removed_ends.get(PARENT, 0))
    return [QueueFact(Kind.STUCK_COPY_STARTED, {"start": start})]


def go_on_copying(state: QueueState, copied: int, unread_from: int) -> Facts:
    """Begin the copy in a replica that takes over and has copies of stuck messages, but does not know that the primary had begun to copy.

    Parameters
    ----------
    copied : int
        The first offset of the parent's last file of which a partition has a copy; -1 if none has.
    unread_from : int
        As in `start_copying`.
    """
    removed = state.removed_ends.get(PARENT, 0)
    began = state.stuck and state.copying is None and copied >= removed
    return [QueueFact(Kind.STUCK_COPY_STARTED, {"start": max(unread_from, removed)})] if began else _NOTHING


def finish_copying(state: QueueState, started: QueueState, end: int) -> Facts:
    """The copy that was under way in `started` has ended: the parent's messages below `end` are in the partitions.

    A later copy may have begun at the same offset, if the first one had nothing to copy. Then the parent has got messages since.
    """
    same = (state.copying, state.end_of_parent) == (started.copying, started.end_of_parent)
    ended = state.usable and state.stuck and state.copying is not None and same
    return [QueueFact(Kind.STUCK_COPIED, {"end": end})] if ended else _NOTHING


def close_parent(state: QueueState, measured: QueueState, end: int) -> Facts:
    """Nothing has to be copied: in `measured`, every group had acknowledged the stuck messages, unless the state has changed since."""
    same = state.revision == measured.revision and state.copying is None
    return [QueueFact(Kind.STUCK_COPIED, {"end": end})] if state.usable and state.stuck and same else _NOTHING
