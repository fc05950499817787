"""Messages that were delivered too often, or are too old: their owner begins again with fewer at a time, or leaves them out."""

from __future__ import annotations

from spark_partq.core.group import held_keys
from spark_partq.core.group.events import Isolate, ReleaseKeys, Skip
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState
from spark_partq.core.group.steps import ownership
from spark_partq.core.group.steps.decision import Decision, as_json
from spark_partq.core.ids import instance_of


def isolate(decision: Decision, event: Isolate) -> None:
    """End the lineage: what the owner had planned, and Spark would repeat as a whole, is no longer delivered nor acknowledged."""
    own = decision.state.partitions.get(event.partition_id)
    if own is None or own.flow is None or own.incarnation != event.incarnation:
        return
    ownership.begin_again(decision, event.partition_id, event.cause)


def skip(decision: Decision, event: Skip) -> None:
    """Go on behind messages that are left out, and hold their keys back if the queue has that order.

    Raises
    ------
    KeysHeldError
        If these were too many keys.
    """
    state, own = decision.state, decision.state.partitions.get(event.partition_id)
    if own is None or own.state is not PartitionState.OWNED or own.incarnation != event.incarnation:
        return
    if event.start != state.position(event.partition_id, decision.acks):
        return
    held = state.held.get(event.partition_id[0], frozenset())
    held_keys.check_room(held | event.holds, state.queues[event.partition_id[0]].name)
    where = "are discarded" if event.dead_letter_queue is None else f"are now in queue {event.dead_letter_queue!r}"
    count = event.end - event.start
    cause = f"{count} message{'' if count == 1 else 's'} from offset {event.start} on {where}: {_WHY[event.why]}"
    decision.emit_partition(
        Kind.SKIPPED, event.partition_id, cause, offset=event.start, delivered=event.end, epoch=own.epoch,
        flow=own.flow, instance=instance_of(own.flow or ""),
        body=as_json(why=event.why, dead_letter_queue=event.dead_letter_queue, **held_keys.body(event.holds - held)),
    )  # fmt: skip


def release_keys(decision: Decision, event: ReleaseKeys) -> None:
    """Hold no key of the queue any more, unless the group has messages left to read there, as these would come before those that are put back."""
    state, queue_id = decision.state, event.queue_id
    if queue_id not in state.held:
        return
    for number, end in event.ends.items():
        partition_id = queue_id, number
        _, last = state.removed.get(partition_id, (0, 0))
        if (state.position(partition_id, decision.acks) or last) < end:
            return
    count = len(state.held[queue_id])
    cause = f"{count} key{'' if count == 1 else 's'} {'is' if count == 1 else 'are'} held no longer: the messages are put back"
    decision.emit(GroupFact(Kind.KEYS_RELEASED, state.queues[queue_id].name, queue_id, cause=cause, by=decision.by))


_WHY = {
    "dead": "delivered too often without being acknowledged",
    "held": "behind a dead message of their key",
    "expired": "too old",
}
