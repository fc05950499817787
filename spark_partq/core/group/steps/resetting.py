"""Positions that a person sets: the group goes on there under new epochs, so nothing from before can change them."""

from __future__ import annotations

from spark_partq.core.group.events import Reset, VoidResets
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.steps import leaving, ownership
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import instance_of


def reset(decision: Decision, event: Reset) -> None:
    """Set the positions, unless the reset that was announced is void by now.

    Raises
    ------
    GroupActiveError
        If the group has members, which would go on from their own positions.
    """
    state, acks = decision.state, decision.acks
    if event.number != state.resets + 1:
        return
    leaving.check_inactive(state)
    cause = f"reset to {event.to}"
    decision.emit(GroupFact(Kind.OFFSETS_RESET, cause=cause, by=decision.by))
    for partition_id, offset in sorted(event.positions.items()):
        own = state.partitions[partition_id]
        decision.emit_partition(
            Kind.POSITION_RESET, partition_id, cause,
            offset=offset, delivered=max(offset, state.delivered(partition_id, acks)), epoch=own.epoch + 1,
            lineage_epoch=own.epoch + 1, flow=own.last_flow, instance=None if own.last_flow is None else instance_of(own.last_flow),
        )  # fmt: skip
    for partition_id in sorted(event.overtaking):
        why = f"its messages wait for those that come again: {cause}"
        ownership.end(decision, Kind.UNASSIGNED, partition_id, why, ends_lineage=True)


def void(decision: Decision, event: VoidResets) -> None:
    """Make announced resets void: a process that has announced a reset and not made it finds its number taken, and announces another one."""
    while decision.state.resets < event.number:
        cause = "a reset that had not been made yet is void"
        decision.emit(GroupFact(Kind.OFFSETS_RESET, cause=cause, by=decision.by))
