"""Before a group's positions are set, the reset is announced to each queue, as messages that the group has settled may become unsettled again.

No commit covers two tables. So both sides take turns in the queue's control table. A process that sets positions announces the reset
there, reads which messages are left, and then commits in the group's table. A process that removes messages or partitions first voids,
in the groups' tables, resets that were announced and not made. Then it measures, and then it commits in the queue's table on top of the
version that it knew. The one of the two that was late finds that its commit fails, and begins again.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.state import QueueState


def announce_reset(state: QueueState, group: str, number: int) -> Sequence[QueueFact]:
    """Tell the queue that the positions of an attached group are about to be set. Resets of a group are numbered 1, 2, 3…

    Nothing is decided if a replica has taken over, as it would not know of the reset.
    """
    known = state.resets.get(group, 0) >= number
    if not state.usable or state.fenced_by is not None or group not in state.groups or known:
        return ()
    return [QueueFact(Kind.GROUP_RESETTING, {"group": group, "number": number})]
