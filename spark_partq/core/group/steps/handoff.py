"""The end of handoffs: a partition was released, or its deadline passed."""

from __future__ import annotations

from spark_partq.core.group.events import DeadlinePassed, Drained
from spark_partq.core.group.facts import Kind, PartitionState
from spark_partq.core.group.steps import ownership, rebalancing
from spark_partq.core.group.steps.decision import Decision


def drained(decision: Decision, event: Drained) -> None:
    """An owner has acknowledged all that it was given: release the partition to its receiver."""
    state, partition_id = decision.state, event.partition_id
    own = state.partitions.get(partition_id)
    if own is None or own.state is not PartitionState.DRAINING:
        return
    if (own.incarnation, own.epoch) != (event.incarnation, event.epoch):
        return
    if (state.position(partition_id, decision.acks) or 0) < event.end:
        return  # its acknowledgement did not count
    receiver, giver = own.to_flow, own.flow
    ownership.end(decision, Kind.RELEASED, partition_id, f"{giver} has acknowledged all it was given")
    if receiver is not None:
        ownership.grant(decision, partition_id, receiver, f"{giver} released it")
    decision.handoffs_ended = True


def deadline_passed(decision: Decision, event: DeadlinePassed) -> None:
    """An owner did not release a partition in time: take it away."""
    state, partition_id = decision.state, event.partition_id
    own = state.partitions.get(partition_id)
    if own is not None and own.state is PartitionState.DRAINING and own.handoff == event.handoff:
        limit = state.queues[partition_id[0]].max_handoff_time_ms
        ownership.force(decision, partition_id, f"{own.flow} did not release it within {limit} ms")
        decision.handoffs_ended = True


def advance_after(decision: Decision) -> None:
    """Advance the rebalance once for all handoffs that end in one decision, as there may be thousands."""
    if decision.handoffs_ended:
        decision.handoffs_ended = False
        rebalancing.advance(decision)
