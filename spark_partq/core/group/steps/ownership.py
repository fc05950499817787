"""Which flow owns a partition, and from which offset on: grants, ends, and floors."""

from __future__ import annotations

from spark_partq.core.group.events import EndLineage, RaiseFloors
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import Flow, PartitionId, instance_of


def grant(decision: Decision, partition_id: PartitionId, flow: Flow, cause: str, forced: bool = False) -> None:
    """Make `flow` the owner of the partition from its position on.

    If the instance is the same as before, the lineage goes on. It ends if the partition is taken, without waiting, from a flow whose
    application acknowledges by hand: an acknowledgement of this moment may come too late to count, and the application has no reason to
    repeat it.
    """
    state, own = decision.state, decision.state.partitions[partition_id]
    member = state.members[instance_of(flow)]
    epoch = own.epoch + 1
    same_instance = own.last_flow is not None and instance_of(own.last_flow) == member.instance
    goes_on = same_instance and not (forced and member.manual)
    offset = state.position(partition_id, decision.acks) or 0
    delivered = state.delivered(partition_id, decision.acks)
    decision.emit_partition(
        Kind.GRANTED, partition_id, cause, offset=offset, delivered=delivered, epoch=epoch, flow=flow, forced=forced,
        lineage_epoch=own.lineage_epoch if goes_on else epoch,
        instance=member.instance, incarnation=member.incarnation, host=member.host,
    )  # fmt: skip


def end(
    decision: Decision,
    kind: Kind,
    partition_id: PartitionId,
    cause: str,
    *,
    forced: bool | None = None,
    ends_lineage: bool = False,
) -> None:
    """End the ownership (`kind` is ``Released`` or ``Unassigned``). The lineage ends with it if `forced` or `ends_lineage` is set.

    For a partition without an owner, only the lineage is ended: then a replay of its last owner leaves the partition out.
    """
    state, own = decision.state, decision.state.partitions[partition_id]
    flow = own.last_flow  # the owner, if it has one
    decision.emit_partition(
        kind, partition_id, cause, offset=state.position(partition_id, decision.acks),
        delivered=state.delivered(partition_id, decision.acks), epoch=own.epoch + (kind is Kind.UNASSIGNED),
        lineage_epoch=own.epoch + 1 if forced or ends_lineage else own.lineage_epoch, forced=forced,
        flow=flow, instance=None if flow is None else instance_of(flow), incarnation=own.incarnation or None,
    )  # fmt: skip


def begin_again(decision: Decision, partition_id: PartitionId, cause: str) -> None:
    """End the lineage and keep the owner: what the owner had planned is neither delivered again as a whole nor acknowledged."""
    state, own = decision.state, decision.state.partitions[partition_id]
    decision.emit_partition(
        Kind.ISOLATED, partition_id, cause, offset=state.position(partition_id, decision.acks),
        delivered=state.delivered(partition_id, decision.acks), epoch=own.epoch + 1, lineage_epoch=own.epoch + 1,
        flow=own.flow, instance=instance_of(own.flow or ""), incarnation=own.incarnation,
    )  # fmt: skip


def leave_to_others(decision: Decision, event: EndLineage) -> None:
    """End the lineage of messages that a member leaves out of a replay, so that the group delivers them again."""
    state, own = decision.state, decision.state.partitions.get(event.partition_id)
    member = state.members.get(event.instance)
    if member is None or member.incarnation != event.incarnation:
        return  # it is fenced, and leaves out nothing
    if own is None or own.incarnation == event.incarnation or not own.continues(event.epoch):
        return
    cause = f"{event.instance} was started from a checkpoint of {instance_of(own.last_flow or '')}, and leaves its messages out"
    if own.flow is None:
        end(decision, Kind.UNASSIGNED, event.partition_id, cause, ends_lineage=True)
    else:
        begin_again(decision, event.partition_id, cause)


def force(decision: Decision, partition_id: PartitionId, cause: str) -> None:
    """Take a partition from its owner without waiting."""
    receiver = decision.state.partitions[partition_id].to_flow
    if receiver is None:
        # The lineage ends, even if the same instance gets the partition back: an acknowledgement of this moment may come too late.
        end(decision, Kind.UNASSIGNED, partition_id, cause, forced=True)
    else:
        grant(decision, partition_id, receiver, cause, forced=True)


def raise_floors(decision: Decision, event: RaiseFloors) -> None:
    """Make the positions of the named partitions their floors."""
    state = decision.state
    for partition_id in sorted(state.partitions):
        queue_id, number = partition_id
        position = state.position(partition_id, decision.acks) or 0
        named = queue_id == event.queue_id and (event.partitions is None or number in event.partitions)
        there = position <= event.ends.get(number, position)
        if named and there and position > state.floors.get(partition_id, 0):
            decision.emit_partition(Kind.FLOOR, partition_id, "what lies below is finished for good", offset=position)
