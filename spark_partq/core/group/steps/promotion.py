"""A group goes on with a promoted replica: nobody of before is bound, and nobody knows what was delivered last (S7, H4)."""

from __future__ import annotations

from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.events import Promoted
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import leaving, rebalancing
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import instance_of

_CAUSE = "the replica was promoted"
# In place of an incarnation. No process of a group has that name, so nothing else of the row counts.
BY_A_PROMOTION = "promotion"


def begin_anew(decision: Decision, event: Promoted) -> None:
    """Unbind who read the queue at the primary, go on behind what was removed, and take all that is there for delivered."""
    state = decision.state
    queue = state.queues.get(event.queue_id)
    if queue is None:
        return
    readers = [member for _, member in sorted(state.members.items()) if member.subscribes(queue.name)]
    for member in readers:
        leaving.unbind(decision, member, _CAUSE, forced=True)
    if readers:
        rebalancing.begin(decision, _CAUSE)
    for number, first in sorted(event.firsts.items()):
        position = state.position((event.queue_id, number), decision.acks)
        if position is not None and position < first:
            cause = f"{_CAUSE}; what lies below was removed"
            decision.emit_partition(Kind.FLOOR, (event.queue_id, number), cause, offset=first)
    for number, end in sorted(event.ends.items()):
        partition_id = event.queue_id, number
        own = state.partitions.get(partition_id)
        if own is not None and state.delivered(partition_id, decision.acks) < end:
            decision.emit_partition(
                Kind.UNASSIGNED, partition_id, f"{_CAUSE}; what is there may have been delivered",
                offset=state.position(partition_id, decision.acks), delivered=end, epoch=own.epoch + 1,
                lineage_epoch=own.epoch + 1, flow=own.last_flow, instance=None if own.last_flow is None else instance_of(own.last_flow),
            )  # fmt: skip


def unheard_of(state: GroupState, acks: Acks, event: Promoted) -> list[AckRow]:
    """Rows that take for delivered what lies in partitions that the group does not know here.

    A group that had attached may have joined the primary after the last pass, or have learned of a partition there. No fact can say so
    of a partition before the group adds it; an ack row can, and counts from then on.
    """
    return [
        AckRow(BY_A_PROMOTION, 0, event.queue_id, number, epoch=0, offset=0, delivered=end)
        for number, end in sorted(event.ends.items())
        if (event.queue_id, number) not in state.partitions and acks.delivered((event.queue_id, number)) < end
    ]
