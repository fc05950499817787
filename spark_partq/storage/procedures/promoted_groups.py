"""The groups of a queue go on with its replica that is promoted (S7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from spark_partq.core.group.events import Event, Promoted, QueuesChanged
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.steps.promotion import beyond, unheard_of
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
    """Unbind the primary's members; whatever is there may have been delivered after the last pass (H4).

    Positions go on to the first message where those below are gone: a pass copies removals before the floors that allowed them (Q8). They
    go back to the end where they lie beyond: passes of another queue copied the group, and of this one none was made any more.

    Parameters
    ----------
    goes_on : function
        Raises if the promotion has ended. It is asked after a group was read, and what is decided is committed on that: so it unbinds nobody who
        came after the end.
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
        rows = unheard_of(group.state, group.acks, promoted)
        if rows:
            group.acknowledge(rows, goes_on)
    return tuple(raised)


def _as_it_is_here(
    group: Group, state: QueueState, firsts: Mapping[int, int], ends: Mapping[int, int]
) -> list[QueuesChanged]:
    """The queue is another one to a group that knows later facts of it: it was copied beside another queue, after the replica was removed.

    It may have had other partitions there, and would learn of none here until the queue has as many facts.
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
