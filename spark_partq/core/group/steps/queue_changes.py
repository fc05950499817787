"""Queues and partitions that are added or removed, and what the group knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from spark_partq.core.format import FORCED_WRITES
from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.group.facts import GroupFact, Kind, QueueInGroup
from spark_partq.core.group.steps import leaving, ownership, rebalancing
from spark_partq.core.group.steps.decision import Decision, as_json
from spark_partq.core.ids import PartitionId


def queues_changed(decision: Decision, event: QueuesChanged) -> None:
    """Add and remove queues and partitions; if that changed what the group reads, rebalance at once."""
    state = decision.state
    names_before = {queue_id: queue.name for queue_id, queue in state.queues.items()}
    before = set(state.subscribed_partitions)
    for queue_id in event.gone:
        remove_queue(decision, queue_id, "the queue was deleted")
    add_queues(decision, event.queues, event.starts, "found by its members")
    changed = before.symmetric_difference(state.subscribed_partitions)
    if changed:
        names_after = {queue_id: queue.name for queue_id, queue in state.queues.items()}
        names = {names_after.get(queue_id) or names_before[queue_id] for queue_id, _ in changed}
        rebalancing.begin(decision, f"the partitions of {', '.join(sorted(names))} changed")


def add_queues(
    decision: Decision, queues: Mapping[str, QueueInGroup], starts: Mapping[PartitionId, int], cause: str
) -> bool:
    """Add queues and partitions that the group does not know. True if its partitions have changed."""
    state, is_new = decision.state, decision.begins_the_group
    before = set(state.partitions)
    force_writes(decision, state.queues.values())  # a program that does not force writes may have added them
    for queue_id, queue in sorted(queues.items()):
        for old_id, old in list(state.queues.items()):
            if old.name == queue.name and old_id != queue_id:
                remove_queue(decision, old_id, "the queue was deleted and created again")
        known = state.queues.get(queue_id)
        if known is None or (known.revision <= queue.revision and known != queue):
            # Added also if only the revision is new: an event with a revision between the two must not count later.
            if known is not None and known.exclusive != queue.exclusive:
                unbind_all(decision, queue, "became exclusive" if queue.exclusive else "became partitioned")
            force_writes(decision, [queue])
            body = as_json(**{name: value for name, value in asdict(queue).items() if name not in ("name", "more")})
            decision.emit(GroupFact(Kind.QUEUE_ADDED, queue.name, queue_id, body=body, cause=cause, by=decision.by))
            remove_partitions(decision, queue_id, queue)
    for partition_id, start in sorted(starts.items()):
        queue_id, number = partition_id
        if partition_id not in state.partitions and number in state.queues[queue_id].partition_numbers:
            # No epoch is higher than the number of facts. So acknowledgements for a former queue of this name do not count.
            last = state.last_epoch if is_new else state.seq
            epoch, position = state.removed.get(partition_id, (last, 0))
            decision.emit_partition(
                Kind.PARTITION_ADDED, partition_id, "new to the group",
                offset=max(start, position), epoch=epoch + 1, lineage_epoch=epoch + 1,
            )  # fmt: skip
    return set(state.partitions) != before


def force_writes(decision: Decision, queues: Iterable[QueueInGroup]) -> None:
    """Keep programs away from the group that do not force writes to the disk, if writes for one of the queues must be forced."""
    for queue in queues:
        if queue.durable:
            decision.require_feature(FORCED_WRITES, f"what is written for queue {queue.name} is forced to the disk")


def unbind_all(decision: Decision, queue: QueueInGroup, what: str) -> None:
    """Remove all members that read the queue. They bind again, so no member goes on by the former rules (S6)."""
    for member in sorted(decision.state.members.values(), key=lambda m: m.instance):
        if member.subscribes(queue.name):
            leaving.unbind(decision, member, f"queue {queue.name} {what}: all clients bind again", forced=True)


def remove_partitions(decision: Decision, queue_id: str, queue: QueueInGroup) -> None:
    """Remove the partitions that the queue no longer has. Their owners lose them at once (S2)."""
    state = decision.state
    for partition_id in sorted(state.partitions):
        if partition_id[0] == queue_id and partition_id[1] not in queue.partition_numbers:
            cause = f"queue {queue.name} has no partition {partition_id[1]} any more"
            if state.partitions[partition_id].flow is not None:
                ownership.end(decision, Kind.UNASSIGNED, partition_id, cause)
            position = state.position(partition_id, decision.acks)
            decision.emit_partition(Kind.PARTITION_REMOVED, partition_id, cause, offset=position)


def remove_queue(decision: Decision, queue_id: str, cause: str) -> None:
    """Remove a queue that does not exist any more."""
    queue = decision.state.queues.get(queue_id)
    if queue is not None:
        decision.emit(GroupFact(Kind.QUEUE_REMOVED, queue.name, queue_id, cause=cause, by=decision.by))
