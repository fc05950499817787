"""The next partition map of a queue that is scaled comes into force (S1, S5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.partition_map import partition_numbers
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.inspect.backlog import freeing, groups
from spark_partq.storage.procedures.create import make_tables
from spark_partq.storage.procedures.primary import check_primary, unfence
from spark_partq.storage.procedures.remainder import ScaleProgress, measure_remainder, undrained
from spark_partq.storage.queue.file_index import FileIndex
from spark_partq.storage.queue.handle import Queue, first_left, in_group
from spark_partq.storage.queue.partition_table import Fenced


def open_generation(queue: Queue) -> ScaleProgress | None:
    """Make the tables of the new map, seal those of both, and put the new one in force, if a change is at that point.

    From the first seal of an old table on producers wait, so whatever can be done before is done before. With mode ``drain`` a producer
    that had found ingress enabled may have appended until then; what it has is waited for, too, if anybody reads the queue (S4).

    Raises
    ------
    QueueFencedError, ReplicaError
        If the tables cannot be sealed, as a replica takes over.
    """
    queue.control.refresh()
    state = queue.state
    scaling = state.scaling
    if scaling is None or not decide.may_open_generation(state):
        return None
    old, new = list(partition_numbers(state.partition_count)), list(partition_numbers(scaling.partition_count))
    added = [n for n in new if n not in old]
    update_groups(queue)  # a partition that comes back is new to everybody
    remove_files(queue)  # and holds nothing of what was removed
    make_tables(queue, added)
    cuts: dict[int, int] = {}
    try:
        for part in (added, old):
            with queue.explained():
                sealed = queue.store.map(lambda n: queue.table(n).seal(state.generation), part)
            cuts |= zip(part, sealed, strict=True)
    except Fenced:
        queue.control.refresh()
        check_primary(queue)
        unfence(queue, [*added, *old])
        return ScaleProgress("a fence that is being taken back", 1)
    if scaling.mode == "drain" and freeing(queue, groups(queue)):
        left = undrained(queue, old)
        if left is not None:
            return left
    goes = state.not_named_by(scaling.partition_count)

    def facts(now: QueueState) -> Sequence[QueueFact]:
        remainder = measure_remainder(queue, goes) if scaling.mode == "delete" else None  # also of a group that is new
        return decide.open_generation(now, state.generation, cuts, remainder)

    queue.control.decide(facts)
    return None


def remove_files(queue: Queue) -> int:
    """Take out of the logs what removed partitions held, and return how many messages that were."""
    state = queue.state
    removed = [n for n in state.all_partitions if n in state.removed_ends and n not in state.partition_numbers]

    def below(end: int) -> Callable[[FileIndex], int]:
        return lambda index: int((index.end <= end).sum())

    return sum(queue.store.map(lambda n: queue.table(n).remove(below(state.removed_ends[n])), removed))


def update_groups(queue: Queue, by: str = "scaling") -> bool:
    """Let the groups that do not know which partitions and settings there are now know it, so that they rebalance at once (R2); any?"""
    queue.control.refresh()
    queue_id, now = queue.state.queue_id, in_group(queue.state)
    reading = [group for group in groups(queue) if queue_id in group.state.queues]
    outdated = [group for group in reading if now.replaces(group.state.queues[queue_id])]
    if not outdated:
        return False
    queue.refresh()
    starts = {(queue_id, table.partition): first_left(queue, table) for table in queue.partitions}
    changes = QueuesChanged({queue_id: in_group(queue.state)}, starts)
    for group in outdated:  # unless the queue was deleted, and the group has dropped it, meanwhile
        group.decide(lambda group=group: [changes] if queue_id in group.state.queues else [], by)  # type: ignore[misc]
    return True
