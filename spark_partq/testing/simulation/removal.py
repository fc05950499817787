"""What a queue may give up, and when it may change after a drain: what its groups have settled (S2, S4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy

from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.state import QueueState
from spark_partq.testing.simulation.stored import StoredPartition, StoredQueue

Groups = Mapping[str, GroupState]


class DeletedGroups:
    """What groups had settled when they were deleted. Until the queue's table says that such a group is detached, a decision may rest on it."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], GroupState] = {}

    def decided(self, uri: str, name: str, state: GroupState, fact: GroupFact) -> None:
        """A fact comes to the state of a group."""
        if fact.kind == Kind.GROUP_DELETED:
            self._states[uri, name] = copy(state)
        elif fact.kind == Kind.QUEUE_ADDED:
            self._states.pop((uri, name), None)

    def beside(self, groups: Groups, uri: str, queue: QueueState | None) -> Groups:
        """These groups, and those that were deleted and are still attached."""
        attached = {} if queue is None else queue.groups
        return {**groups, **{name: s for (at, name), s in self._states.items() if at == uri and name in attached}}


def unsettled(queue: StoredQueue, groups: Groups, ends: Mapping[int, int], now_ns: int) -> str:
    """Who needs something below these ends of partitions that are given up; or nothing. With no group nothing must be left in them.

    What goes is old enough, but after a drain, which keeps ingress disabled.
    """
    if queue.state is None:
        return ""
    for number in ends if queue.mode == "live" else ():
        for low, high in queue.partitions.get(number, StoredPartition()).files.values():
            if problem := _young(queue, queue.state, number, low, high, now_ns):
                return problem
    readers = [(name, state) for name, state in groups.items() if queue.state.queue_id in state.queues]
    for number, end in ends.items():
        partition_id = queue.state.queue_id, number
        for group, state in readers:
            if partition_id in state.partitions and state.committed_floor(partition_id) < end:
                at = state.committed_floor(partition_id)
                return f"REMOVED: partition {number} is given up at {end}, group {group} is at {at}"
        if not readers and any(high <= end for _, high in queue.partitions[number].files.values()):
            return f"REMOVED: partition {number} is given up at {end}, and nobody has read it"
    return ""


def wanted(
    name: str,
    queue: StoredQueue,
    groups: Groups,
    number: int,
    low: int,
    high: int,
    now_ns: int,
    expires_ms: int | None = None,
) -> str:
    """Who needs something of the messages that a partition loses; or nothing. Nobody needs what a removed partition held.

    Parameters
    ----------
    expires_ms : int, optional
        So long messages stay that nobody has read.
    """
    state = queue.state
    if state is None or high <= state.removed_ends.get(number, 0):
        return ""
    for group, known in groups.items():
        partition_id = state.queue_id, number
        if partition_id in known.partitions and known.committed_floor(partition_id) < high:
            if expires_ms is not None and not _younger(queue, number, high - 1, high, now_ns, expires_ms):
                continue
            settled = known.committed_floor(partition_id)
            return f"REMOVED: partition {number} of {name} loses [{low}, {high}), group {group} is at {settled}"
    return _young(queue, state, number, low, high, now_ns) if number in state.partition_numbers else ""


def _young(queue: StoredQueue, state: QueueState, number: int, low: int, high: int, now_ns: int) -> str:
    """Which message of those came so lately that it must stay, whoever has acknowledged it, unless somebody has deleted it; or nothing."""
    kept_ms, deleted = state.settings.min_retention_ms, queue.partitions[number].deleted
    left = [offset for offset in range(low, high) if kept_ms and offset not in deleted]
    return next(filter(None, (_younger(queue, number, at, at + 1, now_ns, kept_ms) for at in left)), "")


def _younger(queue: StoredQueue, number: int, low: int, high: int, now_ns: int, kept_ms: int) -> str:
    """Which message of those came less than that long ago; or nothing."""
    came_ms = queue.partitions[number].enqueued_ms
    for offset in range(low, high):
        age_ms = now_ns // 1_000_000 - came_ms.get(offset, 0)
        if age_ms <= kept_ms:
            return (
                f"YOUNG: partition {number} loses offset {offset}, which came {age_ms} ms ago and stays for {kept_ms}"
            )
    return ""


def undrained(name: str, before: QueueState, after: QueueState, groups: Groups, drained: Collection[str]) -> str:
    """Which group has not settled everything though the count changes after a drain; or nothing.

    Parameters
    ----------
    drained : collection of str
        The groups that read the queue when it was drained.
    """
    for group, known in groups.items():
        for number in before.partition_numbers:
            partition_id, cut = (before.queue_id, number), after.generations[-2].cuts.get(number, 0)
            if group in drained and partition_id in known.partitions:
                floor = known.committed_floor(partition_id)
                if floor < cut:
                    return f"DRAIN: partition {number} of {name} is cut at {cut}, and group {group} is at {floor}"
    return ""


def wrong_cut(name: str, queue: StoredQueue, opened: QueueFact, *, is_copy: bool) -> str:
    """Which partition a new map cuts elsewhere than where it was sealed; or nothing. A copy may not have the seal yet."""
    generation = queue.state.generation - 1 if queue.state is not None else 0
    for partition, cut in opened.body["cuts"].items():
        log = queue.partitions.get(int(partition), StoredPartition())
        if cut != log.cuts.get(generation, cut if is_copy else -1):
            return f"CUT: partition {partition} of {name} is cut at {cut}, and was sealed at {log.cuts}"
    return ""
