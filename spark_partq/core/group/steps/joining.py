"""Members that join, and members that start again as a new process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_partq.core.errors import GroupMismatchError
from spark_partq.core.group import choice
from spark_partq.core.group.events import Join, Stateful
from spark_partq.core.group.facts import GroupFact, Kind, Member, Protocol, Status
from spark_partq.core.group.state import GroupState, View
from spark_partq.core.group.steps import holddown, leaving, ownership, queue_changes, rebalancing
from spark_partq.core.group.steps.decision import Decision, as_json, in_words
from spark_partq.core.ids import Flow, instance_of


def join(decision: Decision, event: Join) -> None:
    """A process binds its flows.

    Raises
    ------
    GroupMismatchError
        If the process disagrees with the group's other members.
    """
    state, member = decision.state, event.member
    old = state.members.get(member.instance)
    if old is not None and old.incarnation == member.incarnation:
        return
    _check_agreement(member, [m for m in state.members.values() if m.instance != member.instance])
    before, (chosen, view), count_decided = state.flows, _assignment_input(state), choice.count_decides(state)
    if member.anew and all(own.last_flow is None for own in state.partitions.values()):
        member = replace(member, anew=False)  # the group has read nothing yet
    changed = queue_changes.add_queues(decision, event.queues, event.starts, f"{member.instance} reads it")
    old = state.members.get(member.instance)  # a queue that became exclusive may have unbound it
    again = binds_again(state, member)
    cause = f"{member.instance} joined with {in_words(member.flows)}"
    if old is not None:
        cause = f"{member.instance} started again while its session was alive"
    decision.emit(
        GroupFact(
            Kind.MEMBER_JOINED, instance=member.instance, incarnation=member.incarnation, host=member.host,
            flows=member.flows, body=as_json(**member.body()), cause=cause, by=decision.by,
        )
    )  # fmt: skip
    dropped = old.flow_names[member.flows :] if old is not None else []
    why = [f"{flow} did not come back when {member.instance} started again" for flow in dropped]
    left = [leaving.revoke_flow(decision, flow, reason) for flow, reason in zip(dropped, why, strict=True)]
    if old is not None:
        for flow in member.flow_names:
            resume(decision, flow, cause)
    if changed or again or (not before and state.status is Status.READY):
        # No delay for new partitions, members that were unbound for them, or the first member: waiting would save no move.
        rebalancing.begin(decision, cause)
    elif count_decided and choice.count_decides(state) and _unchanged(state, chosen, view):
        for flow, partitions, reason in zip(dropped, left, why, strict=True):
            leaving.replace_flow(decision, partitions, len(before), reason)
            before.remove(flow)
        if len(before) < min(len(state.flows), len(state.subscribed_partitions)):
            holddown.trigger(decision, len(before), cause)
    elif (chosen, view) != _assignment_input(state):
        holddown.trigger(decision, len(before), cause)
    holddown.end_if_restored(decision)
    rebalancing.advance(decision)
    end_lineages(decision, member)


def binds_again(state: GroupState, member: Member) -> bool:
    """Whether the group itself had unbound the instance that is now back."""
    return member.instance in state.unbound


def stateful(decision: Decision, event: Stateful) -> None:
    """A member's query keeps state by key: from here on, descriptions of the group say what that means."""
    member = decision.state.members.get(event.instance)
    if member is not None and member.incarnation == event.incarnation and not member.stateful:
        decision.emit(
            GroupFact(
                Kind.MEMBER_STATEFUL, instance=member.instance, incarnation=member.incarnation,
                cause=f"{member.instance} keeps state by key in Spark", by=decision.by,
            )
        )  # fmt: skip


def resume(decision: Decision, flow: Flow, cause: str) -> None:
    """A flow started again while its session was alive: grant it what it owned, and to receivers what it was handing off."""
    state = decision.state
    for partition_id, own in sorted(state.partitions.items()):
        if own.to_flow == flow and not state.subscribed(flow, partition_id):
            decision.emit_partition(Kind.HANDOFF_CANCELLED, partition_id, cause, flow=own.flow)
        if own.flow == flow:
            if own.target is None or not state.subscribed(own.target, partition_id):
                ownership.end(decision, Kind.UNASSIGNED, partition_id, cause)
            else:
                ownership.grant(decision, partition_id, own.target, cause, forced=own.target != flow)


def end_lineages(decision: Decision, member: Member) -> None:
    """End the lineages of partitions that the instance had and does not get back now, so that its replay leaves them out."""
    state = decision.state
    for partition_id, own in sorted(state.partitions.items()):
        goes_on = own.flow is None and own.lineage_epoch < own.epoch
        if goes_on and instance_of(own.last_flow or "") == member.instance:
            cause = f"{member.instance} is back without it"
            ownership.end(decision, Kind.UNASSIGNED, partition_id, cause, ends_lineage=True)


def _assignment_input(state: GroupState) -> tuple[tuple[str, Protocol] | None, View]:
    """What the assignment depends on, apart from the partitions: assignor, protocol and flows."""
    members = state.members.values()
    return choice.choose(members) if members else None, state.view()


def _unchanged(state: GroupState, chosen: tuple[str, Protocol] | None, view: View) -> bool:
    """Whether assignor and protocol have not changed, nor the flows that were there before."""
    now_chosen, now = _assignment_input(state)
    return chosen in (None, now_chosen) and all(now.get(flow, seen) == seen for flow, seen in view.items())


def _check_agreement(member: Member, others: Sequence[Member]) -> None:
    for other in others:
        if member.session_timeout_ms != other.session_timeout_ms:
            raise GroupMismatchError(
                f"{member.instance} has sessionTimeoutMs={member.session_timeout_ms}, but {other.instance} is in the group with "
                f"sessionTimeoutMs={other.session_timeout_ms}; use the same value, or wait until the other has left",
                option="sessionTimeoutMs", instance=member.instance, other=other.instance,
            )  # fmt: skip
    common = choice.common_assignors([member, *others])
    if not common:
        listed = "; ".join(f"{m.instance}: {', '.join(m.assignors)}" for m in [member, *others])
        raise GroupMismatchError(
            f"the members of the group have no assignor in common ({listed}); add one that all have",
            option="assignor", instance=member.instance,
        )  # fmt: skip
