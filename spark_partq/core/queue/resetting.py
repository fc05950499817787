"""A group's positions are about to be set: a queue is told before, as what the group has settled may be unsettled again.

One table cannot be committed on top of another one. So both sides take turns in the queue's control table. Who sets positions announces
that there, reads what is left, and then commits in the group's table. Who removes messages, or partitions, first voids in the groups'
tables what was announced and is not made, then measures, and then commits on top of the version that he knew. Whichever of the two was
late finds that its commit fails, and begins again.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.state import QueueState


def announce_reset(state: QueueState, group: str, number: int) -> Sequence[QueueFact]:
    """Tell the queue that the positions of an attached group are about to be set: that is reset 1, 2, 3…

    Nothing is decided if a replica has taken over, which would not know of it.
    """
    known = state.resets.get(group, 0) >= number
    if not state.usable or state.fenced_by is not None or group not in state.groups or known:
        return ()
    return [QueueFact(Kind.GROUP_RESETTING, {"group": group, "number": number})]
