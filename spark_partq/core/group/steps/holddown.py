"""The holddown: when flows join or leave, the group waits before it rebalances, as they may soon be back (R5)."""

from __future__ import annotations

from spark_partq.core.group import choice
from spark_partq.core.group.events import HolddownOver
from spark_partq.core.group.facts import Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import ownership, rebalancing
from spark_partq.core.group.steps.decision import Decision, in_words
from spark_partq.core.ids import Flow, PartitionId


def trigger(decision: Decision, count: int, cause: str) -> None:
    """Begin a holddown, as a consumer joined or left; there were `count` flows before."""
    state = decision.state
    if state.status is Status.HOLDDOWN or state.assignment_due:
        return  # the delay runs from the first change; a due assignment will be for the members of that moment
    if not state.rebalance_delay_ms:
        rebalancing.begin(decision, cause)
    else:
        decision.change_status(Status.HOLDDOWN, cause, flows=count)


def end(decision: Decision, event: HolddownOver) -> None:
    """Rebalance, as the delay is over."""
    state = decision.state
    if state.status is Status.HOLDDOWN and state.status_seq == event.status_seq:
        rebalancing.begin(decision, f"the rebalance delay is over: {state.trigger}")


def end_if_restored(decision: Decision) -> None:
    """End the holddown without a handoff if the group has the same flows as before it."""
    state = decision.state
    if state.status is not Status.HOLDDOWN or not state.members or not _is_restored(state):
        return
    cause = f"the group has {in_words(len(state.flows))} again"
    _fill_vacancies(decision, cause)
    if not rebalancing.fits(state):
        return
    if state.draining:
        rebalancing.begin(decision, cause)  # an earlier rebalance goes on
    else:
        decision.change_status(Status.READY, cause)


def _fill_vacancies(decision: Decision, cause: str) -> None:
    """Grant each returned flow what it had. If only the number of flows decides, grant each other idle flow all that one of the missing flows had."""
    state = decision.state
    vacant: dict[Flow, list[PartitionId]] = {}
    for partition_id in sorted(state.subscribed_partitions):
        own = state.partitions[partition_id]
        if own.flow is None and own.last_flow is not None:
            vacant.setdefault(own.last_flow, []).append(partition_id)
    returned = [flow for flow in state.flows if flow in vacant]
    rest = [flow for flow in state.idle_flows if flow not in vacant] if choice.count_decides(state) else []
    shares = [(flow, vacant.pop(flow)) for flow in returned]
    shares += zip(rest, vacant.values(), strict=False)
    for flow, partitions in shares:
        for partition_id in partitions:
            if state.subscribed(flow, partition_id):
                ownership.grant(decision, partition_id, flow, cause)


def _is_restored(state: GroupState) -> bool:
    """Whether an assignor would be given the same flows as for the last assignment."""
    view = state.view()
    if choice.count_decides(state) and choice.alike(state.basis, view):
        flows, most = len(state.flows), len(state.subscribed_partitions)
        same = min(flows, most) == min(state.baseline, most)  # standbys make no difference
    else:
        same = state.basis == view
    return same and choice.choose(state.members.values()) == (state.assignor, state.protocol)
