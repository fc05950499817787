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
    """Make the tables of the new map, seal the tables of both maps, and put the new map in force, if a change of the count is at that point.

    Producers wait from the first seal of an old table on, so everything that can be done earlier is done earlier. With mode ``drain``,
    a producer that had found ingress enabled may have appended until then. If any group reads the queue, the change waits for these
    messages, too (S4).

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
    update_groups(queue)  # a partition that comes back is new to every group
    remove_files(queue)  # and holds none of its removed messages
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
        remainder = measure_remainder(queue, goes) if scaling.mode == "delete" else None  # also for a new group
        return decide.open_generation(now, state.generation, cuts, remainder)

    queue.control.decide(facts)
    return None


def remove_files(queue: Queue) -> int:
    """Take the files of removed partitions out of their logs, and return how many messages they held."""
    state = queue.state
    removed = [n for n in state.all_partitions if n in state.removed_ends and n not in state.partition_numbers]

    def below(end: int) -> Callable[[FileIndex], int]:
        return lambda index: int((index.end <= end).sum())

    return sum(queue.store.map(lambda n: queue.table(n).remove(below(state.removed_ends[n])), removed))


def update_groups(queue: Queue, by: str = "scaling") -> bool:
    """Tell the queue's present partitions and settings to groups that do not know them, so that these rebalance at once (R2).

    Returns whether any did not.
    """
    queue.control.refresh()
    queue_id, now = queue.state.queue_id, in_group(queue.state)
    reading = [group for group in groups(queue) if queue_id in group.state.queues]
    outdated = [group for group in reading if now.replaces(group.state.queues[queue_id])]
    if not outdated:
        return False
    queue.refresh()
    starts = {(queue_id, table.partition): first_left(queue, table) for table in queue.partitions}
    changes = QueuesChanged({queue_id: in_group(queue.state)}, starts)
    for group in outdated:  # unless the queue was deleted meanwhile, and the group has dropped it
        group.decide(lambda group=group: [changes] if queue_id in group.state.queues else [], by)  # type: ignore[misc]
    return True
