"""The groups of a queue go on with the promoted replica of the queue (S7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from spark_partq.core.group.events import Event, Promoted, QueuesChanged
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.steps.promotion import beyond, delivered_here
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group, groups_of
from spark_partq.storage.queue.handle import in_group
from spark_partq.storage.store import Store


def begin_groups_anew(
    store: Store,
    state: QueueState,
    firsts: Mapping[int, int],
    ends: Mapping[int, int],
    goes_on: Callable[[], None],
) -> tuple[tuple[str, int, int, int], ...]:
    """Unbind the primary's members. All messages here count as delivered, as the primary may have delivered them after the last pass (H4).

    A position below the first message moves up to it: a pass copies removals before the floors that allowed them (Q8). A position beyond the end
    goes back to the end: passes of another queue copied the group, and no pass of this queue was made any more.

    Parameters
    ----------
    goes_on : function
        Raises if the promotion has ended. It is called after a group was read, and the decision is committed on top of what was read. So no
        member is unbound that joined after the end.
    """
    raised: list[tuple[str, int, int, int]] = []
    promoted = Promoted(state.queue_id, dict(firsts), dict(ends))

    def events(group: Group) -> list[Event]:
        goes_on()
        return [*_as_it_is_here(group, state, firsts, ends), promoted]

    for group in groups_of(store, state):
        before = {number: group.position((state.queue_id, number)) for number in firsts}
        for fact in group.decide(partial(events, group), "promotion"):
            if fact.kind == Kind.FLOOR and fact.partition is not None and fact.offset is not None:
                raised.append((group.name, fact.partition, before[fact.partition] or 0, fact.offset))
        if gone := beyond(group.state, group.acks, promoted):
            group.forget_acks(gone, goes_on)
        rows = delivered_here(group.acks, promoted)
        if rows:
            group.acknowledge(rows, goes_on)
    return tuple(raised)


def _as_it_is_here(
    group: Group, state: QueueState, firsts: Mapping[int, int], ends: Mapping[int, int]
) -> list[QueuesChanged]:
    """Events that replace the queue in a group that knows later facts of it: the group was copied with another queue, after this replica was removed.

    The queue may have had other partitions at the primary. The group would learn of no partitions here until the queue has as many facts.
    """
    known, here, queue_id = group.state.queues.get(state.queue_id), in_group(state), state.queue_id
    if known is None or known.revision <= here.revision:
        return []
    starts = {}
    for number in here.partition_numbers:
        _, last = group.state.removed.get((queue_id, number), (0, 0))
        position = group.position((queue_id, number))
        starts[queue_id, number] = max(firsts[number], min(ends[number], last if position is None else position))
    return [QueuesChanged({}, {}, (queue_id,)), QueuesChanged({queue_id: here}, starts, ())]
