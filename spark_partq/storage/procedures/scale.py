"""Changing a queue's partition count while it is in use (S1, S2, S4, S5).

Every step follows from the tables and may be taken by anybody, again and again: by the process that asked for the change, by
another that asks for the same after it died, and by a producer that meets a seal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.errors import InvalidArgumentError, PartqError, ScalingInProgressError
from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.group.state import Status
from spark_partq.core.queue.partition_map import PARENT, drained, numbers
from spark_partq.core.queue.settings import check_partition_count
from spark_partq.core.queue.state import MODES, Mode, QueueFact, QueueState
from spark_partq.storage.group.handle import Group, groups_of
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.procedures.replicas import ReplicaStatus, status
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.file_index import FileIndex
from spark_partq.storage.queue.handle import Queue, check_usable, first_left, in_group, make_tables
from spark_partq.storage.replica.roles import check_primary

_EVERY_S = 0.2


@dataclass(frozen=True)
class Waiting:
    """What a change of the partition count waits for.

    Attributes
    ----------
    what : str
        For people.
    left : int
        Messages, or groups.
    alone : bool
        Nobody is there who would do it: no group that is behind has a member.
    """

    what: str
    left: int
    alone: bool = False


def scale(
    queue: Queue,
    partitions: int,
    mode: Mode = "live",
    confirm_lost: int | None = None,
    timeout_s: float | None = None,
    report: Callable[[Waiting], None] = lambda _: None,
) -> QueueState:
    """Change the count, and wait until that has ended.

    With ``live`` it does not wait for partitions that go to be drained while nobody reads them: whoever does later ends it. A
    replica has all messages before, and knows the new count after (S7).

    Raises
    ------
    InvalidArgumentError, ScalingInProgressError, QueueFencedError, ReplicaError
        Before anything is changed; ScalingInProgressError also when `timeout_s` is over: run it again to go on.
    """
    check_primary(queue, opening=True)
    update_replicas(queue)
    start(queue, partitions, mode, confirm_lost)
    clock = queue.store.runtime.monotonic_s
    deadline = None if timeout_s is None else clock() + timeout_s
    watchers = [Rebalancer(queue.store, group.name) for group in groups(queue)]
    while True:
        waiting = step(queue)
        if waiting is None or (mode == "live" and waiting.alone):
            update_replicas(queue)
            return queue.state
        if mode == "delete":  # until the partitions were sealed more came in than was confirmed
            start(queue, partitions, mode, confirm_lost)
            continue
        report(waiting)
        if deadline is not None and clock() > deadline:
            raise ScalingInProgressError(
                f"scaling queue {queue.name!r} to {partitions} partitions still waits for {waiting.what} ({waiting.left} left); "
                "run it again to go on",
                queue=queue.name,
                partitions=partitions,
                mode=mode,
            )
        for watcher in watchers:  # so that members that died while nobody else is there are waited for no longer
            with contextlib.suppress(PartqError):  # a group that was deleted meanwhile, or cannot be assigned here
                for _ in watcher.step():
                    pass
        queue.store.runtime.sleep(_EVERY_S)


def start(queue: Queue, partitions: int, mode: Mode, confirm_lost: int | None = None) -> QueueState:
    """Decide to change the count; or go on with the same change, if one was begun.

    Parameters
    ----------
    confirm_lost : int, optional
        With ``delete``: how many messages may be lost at most.

    Raises
    ------
    InvalidArgumentError, ScalingInProgressError, QueueFencedError, ReplicaError
        Before anything is changed.
    """
    check_partition_count(partitions)
    if mode not in MODES:
        raise InvalidArgumentError(f"mode={mode!r} is none of {', '.join(MODES)}", mode=mode)

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue)
        if state.scaling is not None:
            return _go_on(state, partitions, mode)
        lost = _confirmed_loss(queue, partitions, confirm_lost) if mode == "delete" else 0
        if partitions != state.partitions:
            _check_not_copying(state, partitions)
            confirmed = {"confirmed": confirm_lost or 0} if mode == "delete" else {}
            return [QueueFact("ScalingStarted", {"partitions": partitions, "mode": mode, **confirmed})]
        if state.going and mode == "delete":
            return [QueueFact("PartitionsRemoved", {"ends": _ends(queue, state.going), "lost": lost})]
        if not state.going and not ended:
            raise InvalidArgumentError(
                f"queue {queue.name!r} has {partitions} partitions already, and nothing of a change is left to do",
                queue=queue.name,
                partitions=partitions,
            )
        return []  # an interrupted change is ended

    # What an interrupted change has left to do; each of them, whatever the others had.
    ended = any([tell_groups(queue), close_parent(queue), remove_files(queue)])
    return queue.control.decide(facts)


def _go_on(state: QueueState, partitions: int, mode: Mode) -> Sequence[QueueFact]:
    """A change is under way: the same is gone on with; one that is not drained yet can be taken back."""
    scaling = state.scaling
    assert scaling is not None
    if (partitions, mode) == (scaling.partitions, scaling.mode):
        return []
    if partitions == state.partitions and not scaling.drained:
        return [QueueFact("ScalingCancelled", {})]
    cancel = "" if scaling.drained else f", or scale it to {state.partitions} to take that back"
    raise ScalingInProgressError(
        f"queue {state.name!r} is being scaled to {scaling.partitions} partitions (mode {scaling.mode}); wait for it, or run that "
        f"again if it was interrupted{cancel}",
        queue=state.name,
        partitions=scaling.partitions,
        mode=scaling.mode,
    )


def _check_not_copying(state: QueueState, partitions: int) -> None:
    if partitions == 0 and state.copying is not None:
        raise ScalingInProgressError(
            f"what was stuck in the parent of queue {state.name!r} is being copied into its partitions, so the queue cannot become "
            "exclusive now; run copy_stuck again to finish that",
            queue=state.name,
        )


def _confirmed_loss(queue: Queue, partitions: int, confirmed: int | None) -> int:
    """How many messages mode ``delete`` would lose now."""
    lost = unread(queue, [n for n in queue.state.numbers if n not in numbers(partitions)], groups(queue))
    if lost and (confirmed is None or confirmed < lost):
        told = "nothing was confirmed" if confirmed is None else f"only {confirmed} were confirmed"
        raise InvalidArgumentError(
            f"mode delete would lose {lost} messages of queue {queue.name!r} that not every group has acknowledged, and {told}; "
            f"confirm_lost={lost} accepts that, and mode live loses none",
            queue=queue.name,
            lost=lost,
        )
    return lost


def step(queue: Queue) -> Waiting | None:
    """Take a change of the count as far as it can go now; None if nothing is left to do."""
    queue.control.refresh()
    check_usable(queue.control)
    scaling = queue.state.scaling
    if scaling is not None and not scaling.drained:
        waiting = _drain(queue)
        if waiting is not None:
            return waiting
    open_generation(queue)
    tell_groups(queue)
    waiting = remove_drained(queue)
    if waiting is not None:
        return waiting
    close_parent(queue)
    remove_files(queue)
    if queue.state.scaling is not None and queue.state.scaling.opened:
        behind = [group for group in groups(queue) if group.state.members and group.state.status is not Status.READY]
        if behind:
            return Waiting("the rebalance of " + ", ".join(group.name for group in behind), len(behind))
        queue.control.decide(
            lambda state: [QueueFact("ScalingEnded", {})] if state.scaling and state.scaling.opened else []
        )
    return None


# ---- draining
def groups(queue: Queue) -> list[Group]:
    """The groups that have ever read the queue."""
    return groups_of(queue.store, queue.state.queue_id)


def unread(queue: Queue, partitions: Sequence[int], readers: Sequence[Group]) -> int:
    """Messages in these partitions that not every group has acknowledged; with no group all that are stored."""

    def count(number: int) -> int:
        table = queue.table(number)
        table.refresh()
        read = [group.position((queue.state.queue_id, number)) or 0 for group in readers]
        return max(0, table.next_offset - max(table.first_offset, min(read, default=0)))

    return sum(queue.store.map(count, partitions))


def _drain(queue: Queue) -> Waiting | None:
    """Mode ``drain``: wait until everything is acknowledged, then decide that the count may change."""
    looked = queue.state
    left = _not_drained(queue, list(looked.numbers))
    if left is None:
        behind = [replica for replica in update_replicas(queue) if replica.total_lag or replica.unread]
        if behind:
            return Waiting(f"the replica in {behind[0].location}", behind[0].total_lag + behind[0].unread)
        queue.control.decide(lambda state: [QueueFact("QueueDrained", {})] if state.revision == looked.revision else [])
        if queue.state.scaling is not None and not queue.state.scaling.drained:
            return Waiting("others who decide about the queue", 1)
    return left


def _not_drained(queue: Queue, partitions: Sequence[int]) -> Waiting | None:
    """None if every group has settled all of these partitions; with no group, if nothing is stored in them.

    What maintenance has removed, as it was too old, nobody waits for.
    """
    readers, queue_id = groups(queue), queue.state.queue_id
    left = unread(queue, partitions, readers)
    if left == 0:
        ends = {
            n: queue.table(n).next_offset
            for n in partitions
            if queue.table(n).first_offset < queue.table(n).next_offset
        }
        for group in readers:
            group.settle(queue_id, ends)
        if drained(ends, [group.state.settled_in(queue_id) for group in readers]):
            return None
    behind = [
        group
        for group in readers
        if any((group.position((queue_id, n)) or 0) < queue.table(n).next_offset for n in partitions)
    ]
    return Waiting(
        "consumers to acknowledge what is left", left, alone=not any(group.state.members for group in behind)
    )


def update_replicas(queue: Queue) -> list[ReplicaStatus]:
    """Bring every replica up to date.

    Raises
    ------
    ReplicaError
        If one cannot be reached, or is not there any more.
    """
    for location in queue.state.replicas:
        Replicator(queue.store, queue.name, location).sync()
    return status(queue.store, queue.name) if queue.state.replicas else []


# ---- the map
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
            facts.append(QueueFact("PartitionsRemoved", {"ends": _ends(queue, gone), "lost": lost}))
    queue.control.decide(lambda now: facts if now.generation == state.generation and now.usable else [])


def _ends(queue: Queue, partitions: Sequence[int]) -> Mapping[int, int]:
    return {n: queue.table(n).next_offset for n in partitions}


def remove_drained(queue: Queue) -> Waiting | None:
    """Remove the partitions that go, once every group has settled all of them (S2); None if none is left.

    Nothing is written to them any more: they are sealed, and the map in force does not name them.
    """
    queue.control.refresh()
    looked, going = queue.state, queue.state.going
    left = _not_drained(queue, going) if going else None
    if left is not None or not going:
        return left
    removed = [QueueFact("PartitionsRemoved", {"ends": _ends(queue, going), "lost": 0})]
    same = (looked.generation, going)  # else they may have come back, and be written again
    queue.control.decide(lambda now: removed if (now.generation, now.going) == same else [])
    tell_groups(queue)
    remove_files(queue)
    return None


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


# ---- the parent (S6)
def stuck_messages(queue: Queue, readers: Sequence[Group]) -> int:
    """How many messages are left in the parent of a queue that became partitioned and some group has not acknowledged."""
    if not queue.state.stuck:
        return 0
    parent = queue.table(PARENT)
    parent.refresh()
    return parent.next_offset - max(stuck_from(queue, readers), queue.state.gone.get(PARENT, 0))


def stuck_from(queue: Queue, readers: Sequence[Group]) -> int:
    """The first message of the parent, as of the last look at it, that some group wants of those that have read it."""
    positions = [group.position((queue.state.queue_id, PARENT)) for group in readers]
    return max(queue.table(PARENT).first_offset, min((p for p in positions if p is not None), default=0))


def close_parent(queue: Queue) -> bool:
    """If every group has acknowledged all that was left in the parent, say that nothing is stuck any more; was that so?"""
    if not queue.state.stuck or queue.state.copying is not None or stuck_messages(queue, groups(queue)):
        return False
    copied = [QueueFact("StuckCopied", {"end": queue.table(PARENT).next_offset})]
    queue.control.decide(lambda now: copied if now.stuck and now.copying is None else [])
    return True
