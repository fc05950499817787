"""Computes which flow shall own which partition, and takes the rebalance to its end (steps 2 to 6 of R6)."""

from __future__ import annotations

from collections import Counter

from spark_partq.core import assignors
from spark_partq.core.assignors.balanced import is_balanced
from spark_partq.core.group import choice
from spark_partq.core.group.facts import GroupFact, Kind, Protocol, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import ownership
from spark_partq.core.group.steps.decision import Decision, as_json
from spark_partq.core.ids import Flow, PartitionId, QueuePartition


def begin(decision: Decision, cause: str) -> None:
    """Begin a rebalance now."""
    decision.change_status(Status.REBALANCING, cause)
    advance(decision)


def advance(decision: Decision) -> None:
    """Take a rebalance as far as it can go now."""
    state = decision.state
    if state.status is not Status.REBALANCING:
        return
    if not state.members:
        decision.change_status(Status.READY, "no flows are left")
        return
    if not state.assignment_due and not state.draining and not fits(state):
        decision.change_status(Status.REBALANCING, state.trigger)  # a flow that was to receive partitions has left
    if state.assignment_due:
        assignor, protocol = choice.choose(state.members.values())
        if protocol is Protocol.EAGER:
            revoke_all(decision)
            if state.draining:
                return
        assign(decision, assignor, protocol)
    if not state.draining:
        decision.change_status(Status.READY, "balanced")


def fits(state: GroupState) -> bool:
    """Whether every subscribed partition has an owner or a receiver, and no other partition has to move."""
    targets = {partition_id: state.partitions[partition_id].target for partition_id in state.subscribed_partitions}
    if any(flow is None or not state.subscribed(flow, partition_id) for partition_id, flow in targets.items()):
        return False
    return not choice.count_decides(state) or is_balanced(targets, state.flows)


def revoke_all(decision: Decision) -> None:
    """The first phase of an eager rebalance: all owners give up everything; the receivers are not known yet."""
    state = decision.state
    for partition_id in sorted(state.partitions):
        own = state.partitions[partition_id]
        if own.flow is not None and own.target is not None:
            _start_handoff(decision, partition_id, None, state.trigger)


def assign(decision: Decision, name: str, protocol: Protocol) -> None:
    """Compute the assignment; grant partitions without an owner, start the handoffs of those that move."""
    state, found = decision.state, target(decision, name, protocol)
    cause = state.trigger
    body: dict[str, object] = {"assignor": name, "protocol": protocol}
    if decision.loads is not None and decision.assignor(name).loads:
        body["loads"] = [[*partition_id, load] for partition_id, load in sorted(decision.loads.items())]
    decision.emit(GroupFact(Kind.ASSIGNMENT_COMPUTED, body=as_json(**body), cause=cause, by=decision.by))
    for partition_id, flow in found.items():
        own = state.partitions[partition_id]
        if own.target == flow:
            continue
        if own.flow is None:
            ownership.grant(decision, partition_id, flow, cause)
        elif own.flow == flow:
            decision.emit_partition(Kind.HANDOFF_CANCELLED, partition_id, cause, flow=flow)
        else:
            _start_handoff(decision, partition_id, flow, cause)


def _start_handoff(decision: Decision, partition_id: PartitionId, to_flow: Flow | None, cause: str) -> None:
    """Let the owner give up the partition. If the queue allows no time for it, take the partition at once."""
    state = decision.state
    giver = state.partitions[partition_id].flow
    decision.emit_partition(Kind.HANDOFF_STARTED, partition_id, cause, flow=giver, to_flow=to_flow)
    if not state.queues[partition_id[0]].max_handoff_time_ms:
        ownership.force(decision, partition_id, "max_handoff_time_ms is 0")


def target(decision: Decision, name: str, protocol: Protocol) -> dict[PartitionId, Flow]:
    """Ask the assignor who shall own each subscribed partition."""
    state = decision.state
    ids = {queue.name: queue_id for queue_id, queue in state.queues.items()}
    flows = [
        assignors.Member(flow, read, flow if static else None, weight=weight)
        for flow, (read, weight, static) in state.view().items()
    ]
    # An eager rebalance has revoked everything, so a sticky assignor is given the last owners.
    current = {
        _named(state, partition_id): own.to_flow or own.flow or (own.last_flow if protocol is Protocol.EAGER else None)
        for partition_id, own in state.partitions.items()
    }
    counts = Counter(queue for queue, _ in current)
    loads = None
    if decision.loads is not None:
        loads = {_named(state, id_): load for id_, load in decision.loads.items() if id_ in state.partitions}
    found = assignors.target(decision.assignor(name), flows, counts, current, loads)
    return {
        (ids[queue], index + state.queues[ids[queue]].first): flow for (queue, index), flow in sorted(found.items())
    }


def _named(state: GroupState, partition_id: PartitionId) -> QueuePartition:
    """The partition as assignors number it: by the queue's name, and from 0."""
    queue = state.queues[partition_id[0]]
    return queue.name, partition_id[1] - queue.first


def loads_measured(decision: Decision) -> None:
    """Begin a rebalance if the assignor finds that moving load pays."""
    state = decision.state
    if state.status is not Status.READY or not state.members:
        return
    name, protocol = choice.choose(state.members.values())
    if not decision.assignor(name).loads:
        return
    found = target(decision, name, protocol)
    if any(state.partitions[partition_id].target != flow for partition_id, flow in found.items()):
        begin(decision, "the load has shifted")
