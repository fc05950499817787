"""The groups of a queue go on with its replica that is promoted (S7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_partq.core.errors import ReplicaError
from spark_partq.core.group.events import Promoted
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.steps.promotion import beyond, unheard_of
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.queue.handle import Queue, in_group
from spark_partq.storage.store import Store


def check_known_partitions(queue: Queue) -> None:
    """Refuse a queue of which a group has other partitions than there are: others would be given to nobody, and messages be left out.

    Raises
    ------
    ReplicaError
    """
    here = in_group(queue)
    for group in groups_of(queue.store, queue.state):
        known = group.state.queues.get(queue.state.queue_id)
        if known is not None and known.revision > here.revision and known.partition_numbers != here.partition_numbers:
            raise ReplicaError(
                f"group {group.name!r} in {queue.store.uri} has learned of a resize of queue {queue.name!r} that this replica has not: the "
                f"group was copied with another queue after the replica was removed. Promote the other queues that it reads, delete it "
                f"there (spark-partq delete-group {group.name}), and promote this queue again; its queries begin as new ones then",
                queue=queue.name,
                group=group.name,
            )


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

    def events() -> list[Promoted]:
        goes_on()
        return [promoted]

    for group in groups_of(store, state):
        before = {number: group.position((state.queue_id, number)) for number in firsts}
        gone = beyond(group.state, group.acks, promoted)
        for fact in group.decide(events, "promotion"):
            if fact.kind == Kind.FLOOR and fact.partition is not None and fact.offset is not None:
                raised.append((group.name, fact.partition, before[fact.partition] or 0, fact.offset))
        if gone:
            group.forget_acks(gone, goes_on)
        rows = unheard_of(group.state, group.acks, promoted)
        if rows:
            group.acknowledge(rows, goes_on)
    return tuple(raised)
