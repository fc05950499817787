"""Messages in partitions that some group still wants: a removal loses them, and a change of the count waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.queue.partition_map import drained
from spark_partq.core.queue.scaling import Remainder
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import freeing, unread
from spark_partq.storage.procedures.settled import settled_groups
from spark_partq.storage.queue.handle import Queue

_MOST_NAMED = 3  # groups that are behind


@dataclass(frozen=True)
class ScaleProgress:
    """What a change of the partition count waits for.

    Attributes
    ----------
    what : str
        What it waits for, in words for people.
    left : int
        How many messages, or groups.
    alone : bool
        No process will end the wait: no group that is behind has a member that reads the queue, or only time ends it.
    """

    what: str
    left: int
    alone: bool = False


def undrained(queue: Queue, partitions: Sequence[int]) -> ScaleProgress | None:
    """What a change waits for. None if every group has settled these partitions; without groups, if they are empty.

    Messages that maintenance has removed count, too: a group that has not read them gets `DATA_LOSS`, until it goes on behind them.
    """
    readers, queue_id = freeing(queue, settled_groups(queue)), queue.state.queue_id
    left, ends = unread(queue, partitions, readers), next_offsets(queue, partitions)
    if left == 0:
        for group in readers:
            group.commit_floors(queue_id, ends)
        if drained(ends, [group.state.committed_floors(queue_id) for group in readers]):
            return None
    if queue.state.holds_dead_messages:
        return ScaleProgress("retention_ms or max_bytes to remove what is left of its dead messages", left, alone=True)
    missing = {
        group: sum(max(0, end - (group.position((queue_id, n)) or 0)) for n, end in ends.items()) for group in readers
    }
    behind = [group for group, messages in missing.items() if messages]
    what = "what is left" if left else "messages that were removed before they were read (failOnDataLoss=false)"
    return ScaleProgress(
        f"consumers{_of(behind)} to acknowledge {what}",
        left or max(missing.values(), default=0),
        alone=not any(m.subscribes(queue.name) for group in behind for m in group.state.members.values()),
    )


def _of(groups: Sequence[Group]) -> str:
    """The names of the first groups, for people."""
    if not groups:
        return ""
    names = ", ".join(group.name for group in groups[:_MOST_NAMED])
    more = f" and {len(groups) - _MOST_NAMED} more" if len(groups) > _MOST_NAMED else ""
    return f" of group{'s' * (len(groups) > 1)} {names}{more}"


def measure_remainder(queue: Queue, partitions: Sequence[int]) -> Remainder:
    """What these partitions hold, and how much of it not every group has acknowledged."""
    lost = unread(queue, partitions, freeing(queue, settled_groups(queue)))
    return Remainder(next_offsets(queue, partitions), lost)


def next_offsets(queue: Queue, partitions: Sequence[int]) -> Mapping[int, int]:
    return {n: queue.table(n).next_offset for n in partitions}
