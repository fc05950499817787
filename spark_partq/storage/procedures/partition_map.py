"""The next partition map of a queue that is scaled comes into force (S1, S5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.queue.partition_map import numbers
from spark_partq.core.queue.state import QueueFact
from spark_partq.storage.inspect.backlog import groups, unread
from spark_partq.storage.procedures.create import make_tables
from spark_partq.storage.queue.file_index import FileIndex
from spark_partq.storage.queue.handle import Queue, first_left, in_group


def open_generation(queue: Queue) -> None:
    """Make the tables of the new map, seal those of both, and put the new one in force, if a change is at that point.

    From the first seal of an old table on producers wait, so whatever can be done before is done before.
    """
    queue.control.refresh()
    state = queue.state
    scaling = state.scaling
    if scaling is None or not scaling.drained or scaling.opened or not state.usable or state.fenced_by:
        return
    old, new = list(numbers(state.partitions)), list(numbers(scaling.partitions))
    added = [n for n in new if n not in old]
    tell_groups(queue)  # a partition that comes back is new to everybody
    remove_files(queue)  # and holds nothing of what was removed
    make_tables(queue, added)
    cuts: dict[int, int] = {}
    for part in (added, old):
        cuts |= zip(part, queue.store.map(lambda n: queue.table(n).seal(state.generation), part), strict=True)
    facts = [QueueFact("GenerationOpened", {"partitions": scaling.partitions, "cuts": cuts})]
    if scaling.mode == "delete":
        gone = [n for n in state.numbers if n not in new]
        lost = unread(queue, gone, groups(queue))
        if scaling.confirmed is None or lost <= scaling.confirmed:  # else they are drained
            facts.append(QueueFact("PartitionsRemoved", {"ends": next_offsets(queue, gone), "lost": lost}))
    queue.control.decide(lambda now: facts if now.generation == state.generation and now.usable else [])


def next_offsets(queue: Queue, partitions: Sequence[int]) -> Mapping[int, int]:
    return {n: queue.table(n).next_offset for n in partitions}


def remove_files(queue: Queue) -> int:
    """Take out of the logs what removed partitions held, and return how many messages that were."""
    state = queue.state
    gone = [n for n in state.every if n in state.gone and n not in state.numbers]

    def below(end: int) -> Callable[[FileIndex], int]:
        return lambda index: int((index.end <= end).sum())

    return sum(queue.store.map(lambda n: queue.table(n).remove(below(state.gone[n])), gone))


def tell_groups(queue: Queue) -> bool:
    """Let the groups that do not know which partitions there are now know it, so that they rebalance at once (R2); any?"""
    queue.control.refresh()
    queue_id, shared = queue.state.queue_id, queue.state.numbers
    untold = [group for group in groups(queue) if group.state.queues[queue_id].numbers != shared]
    if not untold:
        return False
    queue.refresh()
    starts = {(queue_id, table.partition): first_left(queue, table) for table in queue.partitions}
    changes = QueuesChanged({queue_id: in_group(queue)}, starts)
    for group in untold:
        group.decide(lambda: [changes], "scaling")
    return True
