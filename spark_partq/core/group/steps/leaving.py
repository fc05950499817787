"""Members and flows that leave, and which flows take over their partitions."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.errors import GroupActiveError
from spark_partq.core.group import choice
from spark_partq.core.group.events import Leave
from spark_partq.core.group.facts import GroupFact, Kind, Member
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import holddown, ownership, rebalancing
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import Flow, PartitionId


def leave(decision: Decision, event: Leave) -> None:
    """Remove a member: its process left, or its session expired."""
    state = decision.state
    member = state.members.get(event.instance)
    if member is None or member.incarnation != event.incarnation:
        return
    cause = f"the session of {event.instance} expired" if event.expired else f"{event.instance} left"
    before, count_decides = len(state.flows), choice.count_decides(state)
    assignor, _ = choice.choose(state.members.values())
    left = unbind(decision, member, cause, may_live=event.expired)
    rest = state.members.values()
    if count_decides and (not rest or choice.choose(rest)[0] == assignor):
        for i, partitions in enumerate(left):
            replace_flow(decision, partitions, before - i, cause)
    else:
        holddown.trigger(decision, before, cause)
    holddown.end_if_restored(decision)
    rebalancing.advance(decision)


def delete_group(decision: Decision) -> None:
    """Forget the group, even if it only attached to a queue and has no member yet: a query that joins later must attach again.

    A group of the same name may be made at once; it goes on with higher epochs.

    Raises
    ------
    GroupActiveError
        If the group has members.
    """
    check_inactive(decision.state)
    decision.emit(GroupFact(Kind.GROUP_DELETED, cause="the group was deleted", by=decision.by))


def check_inactive(state: GroupState) -> None:
    """Refuse operations that must not run beside consumers.

    Raises
    ------
    GroupActiveError
        If the group has members.
    """
    members = sorted(state.members)
    if members:
        raise GroupActiveError(
            f"the group is active: {', '.join(members)} consume in it; stop these queries, and wait until they have left",
            instances=members,
        )


def unbind(
    decision: Decision, member: Member, cause: str, *, forced: bool | None = None, may_live: bool = False
) -> list[list[PartitionId]]:
    """Remove a member; returns the partitions that each of its flows owned.

    Parameters
    ----------
    forced : bool, optional
        The group unbinds a process that is alive and shall bind again.
    may_live : bool
        The session expired, but the process may be alive. Meanwhile its acknowledgements by hand are refused. So the messages that it was given
        come again, even to the same instance: its lineages end.
    """
    decision.emit(
        GroupFact(
            Kind.MEMBER_LEFT, instance=member.instance, incarnation=member.incarnation, host=member.host,
            flows=member.flows, forced=forced, cause=cause, by=decision.by,
        )
    )  # fmt: skip
    ends_lineage = member.manual and (may_live or bool(forced))
    return [revoke_flow(decision, flow, cause, ends_lineage) for flow in member.flow_names]


def revoke_flow(decision: Decision, flow: Flow, cause: str, ends_lineage: bool = False) -> list[PartitionId]:
    """Take all partitions from a flow that left, and cancel the handoffs to it. Returns the partitions that it owned."""
    partitions = decision.state.partitions
    for partition_id in [id_ for id_, own in partitions.items() if own.to_flow == flow]:
        decision.emit_partition(Kind.HANDOFF_CANCELLED, partition_id, cause, flow=partitions[partition_id].flow)
    left = decision.state.owned(flow)
    for partition_id in left:
        ownership.end(decision, Kind.UNASSIGNED, partition_id, cause, ends_lineage=ends_lineage)
    return left


def replace_flow(decision: Decision, left: Sequence[PartitionId], count: int, cause: str) -> None:
    """A standby takes over the partitions of a flow that left, or the group waits. `count`: the group's flows including that one."""
    state = decision.state
    if state.assignment_due:
        return
    if count <= len(state.subscribed_partitions):
        holddown.trigger(decision, count, cause)
        return
    left = [partition_id for partition_id in left if state.partitions[partition_id].flow is None]
    standby = next(iter(state.idle_flows), None)
    if left and standby is not None:  # R3: there are more consumers than partitions, so one takes exactly this load
        for partition_id in left:
            ownership.grant(decision, partition_id, standby, f"{cause}; standby {standby} takes over")
    elif left:
        holddown.trigger(decision, count, cause)
