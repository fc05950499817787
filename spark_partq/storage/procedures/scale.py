"""Changing a queue's partition count while it is in use (S1, S2, S4, S5).

Every step follows from the tables and may be taken by anybody, again and again: by the process that asked for the change, by
another that asks for the same after it died, and by a producer that meets a seal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from spark_partq.core.errors import InvalidArgumentError, PartqError, ScalingInProgressError
from spark_partq.core.group.facts import Status
from spark_partq.core.queue.partition_map import numbers
from spark_partq.core.queue.settings import check_partition_count
from spark_partq.core.queue.state import MODES, Mode, QueueFact, QueueState
from spark_partq.storage.inspect.backlog import groups, unread
from spark_partq.storage.procedures.copy_stuck import close_parent
from spark_partq.storage.procedures.drain import Waiting, decide_drained, remove_drained, update_replicas
from spark_partq.storage.procedures.partition_map import next_offsets, open_generation, remove_files, tell_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.queue.handle import Queue, check_usable

_EVERY_S = 0.2


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
        Before anything is changed; ScalingInProgressError also when `timeout_s` is over: run it again to go on. QueueFencedError also
        when a replica takes over meanwhile: the change goes on there, once it is asked for again.
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
            return [QueueFact("PartitionsRemoved", {"ends": next_offsets(queue, state.going), "lost": lost})]
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
    check_primary(queue)
    scaling = queue.state.scaling
    if scaling is not None and not scaling.drained:
        waiting = decide_drained(queue)
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
