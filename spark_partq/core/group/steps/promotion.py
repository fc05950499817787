"""A group goes on with a promoted replica: members of the primary are unbound, and the last deliveries are unknown (S7, H4)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.events import Promoted
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import leaving, rebalancing
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import PartitionId, instance_of

_CAUSE = "the replica was promoted"
# Stands for an incarnation. No process of a group has that name, so only the delivered end of the row counts.
BY_A_PROMOTION = "promotion"


def begin_anew(decision: Decision, event: Promoted) -> None:
    """Unbind the members that read the queue at the primary.

    Positions go on behind removed messages, but not beyond the end. All messages count as delivered.
    """
    state = decision.state
    queue = state.queues.get(event.queue_id)
    if queue is None:
        return
    set_back = beyond(state, decision.acks, event)
    members = [member for _, member in sorted(state.members.items()) if set_back or member.subscribes(queue.name)]
    for member in members:
        leaving.unbind(decision, member, _CAUSE, forced=True)
    if members:
        rebalancing.begin(decision, _CAUSE)
    _set_back(decision, set_back)
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


def beyond(state: GroupState, acks: Acks, event: Promoted) -> dict[PartitionId, int]:
    """The partitions of which the group has read, or was given, messages that do not exist here, each with its end here.

    New messages will get those offsets. This happens if the replica no longer followed its primary, while the group was copied with another
    queue.
    """
    ends = {(event.queue_id, number): end for number, end in sorted(event.ends.items())}
    return {id_: end for id_, end in ends.items() if id_ in state.partitions and state.delivered(id_, acks) > end}


def _set_back(decision: Decision, ends: Mapping[PartitionId, int]) -> None:
    """Set positions that lie beyond the end back to the end. The group has no members, and offsets that were delivered there name other messages."""
    state, cause = decision.state, f"{_CAUSE}, which does not have what the group had read of its primary"
    if ends:
        decision.emit(GroupFact(Kind.OFFSETS_RESET, cause=cause, by=decision.by))
    for partition_id, end in ends.items():
        own, position = state.partitions[partition_id], state.position(partition_id, decision.acks) or 0
        decision.emit_partition(
            Kind.POSITION_RESET, partition_id, cause, offset=min(position, end), delivered=end, epoch=own.epoch + 1,
            lineage_epoch=own.epoch + 1, flow=own.last_flow, instance=None if own.last_flow is None else instance_of(own.last_flow),
        )  # fmt: skip


def delivered_here(acks: Acks, event: Promoted) -> list[AckRow]:
    """Rows that mark all messages as delivered.

    The group may not know a partition here, as its members may have joined at the primary after the last pass: no fact can say this of the
    partition before the group adds it. And the facts about a partition end with it, but it may come back. A row counts in both cases.
    """
    return [
        AckRow(BY_A_PROMOTION, 0, event.queue_id, number, epoch=0, offset=0, delivered=end)
        for number, end in sorted(event.ends.items())
        if acks.delivered((event.queue_id, number)) < end
    ]
