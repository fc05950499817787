"""Why a partition is where it is, and what it waits for, by the tables of its group and its queue."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.delivery.barrier import waiting
from spark_partq.core.errors import InvalidArgumentError, QueueNotFoundError, QueueNotReadyError
from spark_partq.core.group.explain import Explanation, Surroundings
from spark_partq.core.group.explain import explain as explained
from spark_partq.core.ids import PartitionId
from spark_partq.core.names import check_name
from spark_partq.core.payload.keys import DEFAULT_HASH
from spark_partq.core.queue.partition_map import target
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.inspect.backlog import held_keys
from spark_partq.storage.inspect.describe_queue import fenced_by
from spark_partq.storage.inspect.fact_reader import FactReader
from spark_partq.storage.inspect.heartbeats import heartbeats
from spark_partq.storage.queue.handle import Queue, barrier_of, open_queue, queue_state
from spark_partq.storage.store import Store


def explain(store: Store, queue: str, partition: int, group: str) -> Explanation:
    """See `spark_partq.explain`.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, InvalidArgumentError, CorruptTableError
    """
    opened = open_group(store, check_name("group", group))
    partition_id = find_partition(opened, check_name("queue", queue), partition)
    return explain_open(opened, partition_id, _queue(store, opened, partition_id[0]), FactReader(store, group))


def groups_to_explain(store: Store, queue: str) -> list[str]:
    """The groups that read the queue, sorted.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    InvalidArgumentError
        If no group reads the queue.
    """
    groups = sorted(queue_state(store, check_name("queue", queue)).groups)
    if not groups:
        raise InvalidArgumentError(
            f"no group reads queue {queue!r}, so its messages wait for nothing but a reader; start a query that reads it", queue=queue
        )  # fmt: skip
    return groups


def explain_open(group: Group, partition_id: PartitionId, queue: Queue | None, facts: FactReader) -> Explanation:
    """The same for a partition that the group has.

    Parameters
    ----------
    queue : Queue or None
        The partition's queue, refreshed after the group; None if it is gone.
    """
    state, own = group.state, group.state.partitions[partition_id]
    facts.refresh()
    told = facts.about(partition_id, (state.status_seq, own.handoff), state.seq)
    silent_s = {name: beat.silent_s for name, beat in heartbeats(group, told).items() if beat.expired}
    seen = replace(_surroundings(group, partition_id, queue), silent_s=silent_s)
    return explained(state, group.acks, told, partition_id, group.name, seen)


def _queue(store: Store, group: Group, queue_id: str) -> Queue | None:
    try:
        queue = open_queue(store, group.state.queues[queue_id].name)
    except (QueueNotFoundError, QueueNotReadyError):
        return None
    if queue.state.queue_id != queue_id:
        return None
    queue.refresh()
    return queue


def find_partition(group: Group, queue: str, partition: int) -> PartitionId:
    """
    Raises
    ------
    InvalidArgumentError
        If the group has no such partition.
    """
    state = group.state
    queue_id = next((queue_id for queue_id, known in state.queues.items() if known.name == queue), None)
    if queue_id is None:
        reads = ", ".join(sorted(known.name for known in state.queues.values())) or "no queue"
        raise InvalidArgumentError(
            f"group {group.name!r} does not read queue {queue!r}; it reads {reads}", group=group.name, queue=queue
        )
    if (queue_id, partition) not in state.partitions:
        numbers = state.queues[queue_id].partition_numbers
        raise InvalidArgumentError(
            f"group {group.name!r} has no partition {partition} of queue {queue!r}; it has {numbers.start} to {numbers.stop - 1}",
            group=group.name, queue=queue, partition=partition,
        )  # fmt: skip
    return queue_id, partition


def _surroundings(group: Group, partition_id: PartitionId, queue: Queue | None) -> Surroundings:
    queue_id, number = partition_id
    now = group.store.now()
    if queue is None:
        return Surroundings(now)
    ends = {table.partition: table.next_offset for table in queue.partitions}
    first = queue.table(number).first_offset if number in ends else 0
    barrier = barrier_of(queue, group.state.committed_floors(queue_id))
    waits_for = waiting(group.state, group.acks, queue_id, barrier, ends).get(number, {})
    return Surroundings(
        now, ends.get(number), first, waits_for, _scaling(queue, number), fenced_by(queue),
        held_keys=_held(queue, held_keys(queue, group), number),
        held_anywhere=queue.state.key_hash != DEFAULT_HASH,
        dead_letter_queue=queue.state.settings.dead_letter_queue,
    )  # fmt: skip


def _held(queue: Queue, keys: frozenset[int], number: int) -> int:
    """How many of these keys any map of the queue places in the partition. All of them if their places are not known.

    A group knows a held key by its `DEFAULT_HASH` (`core.group.held_keys`).
    """
    if queue.state.key_hash != DEFAULT_HASH:
        return len(keys)
    counts = {generation.partition_count for generation in queue.state.generations}
    return sum(any(target(key, count) == number for count in counts) for key in keys)


def _scaling(queue: Queue, number: int) -> str:
    """What a change of the partition count means for the partition."""
    state = queue.state
    if state.scaling is None:
        if number not in state.removing:
            return ""
        old = " and min_retention_ms is over" if state.settings.min_retention_ms else ""
        return f"The queue was scaled and has this partition no longer: it goes once every group has read it{old}."
    to = f"The queue is being scaled to {state.scaling.partition_count} partitions (mode {state.scaling.mode})"
    if not state.scaling.drained:
        return f"{to}: it takes no messages until every group has read all."
    if not state.scaling.opened and queue.table(number).sealed >= state.generation:
        return f"{to}: this partition is sealed, and producers wait until the others are."
    return f"{to}."
