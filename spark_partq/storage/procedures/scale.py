"""Changing a queue's partition count while it is in use (S1, S2, S4, S5).

Every step follows from the tables, and any process may take it, any number of times: the process that asked for the change, another process that
asks for the same change after the first one died, and a producer that meets a seal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from spark_partq.core import arguments
from spark_partq.core.errors import InvalidArgumentError, PartqError, ScalingInProgressError
from spark_partq.core.group.facts import Status
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import MODES, Mode, QueueFact
from spark_partq.core.queue.scaling import Remainder
from spark_partq.core.queue.settings import check_partition_count
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import groups
from spark_partq.storage.procedures.copy_stuck import close_parent
from spark_partq.storage.procedures.drain import decide_drained, remove_drained, update_replicas
from spark_partq.storage.procedures.partition_map import open_generation, remove_files, update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.procedures.remainder import ScaleProgress, measure_remainder, undrained
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.handle import Queue, check_usable, in_group
from spark_partq.storage.replica.table import Options

_EVERY_S = 0.2


def scale(
    queue: Queue,
    partitions: int,
    mode: Mode = "live",
    confirm_lost: int | None = None,
    timeout_s: float | None = None,
    report: Callable[[ScaleProgress], None] = lambda _: None,
    replica_options: Options | None = None,
) -> QueueState:
    """Change the count, and wait until the change has ended.

    With ``live`` it does not wait for partitions that no member reads, nor for `min_retention_ms`: a later reader, or maintenance, ends the
    change. Replicas have all messages before the change, and know the new count after it (S7).

    Raises
    ------
    InvalidArgumentError, ScalingInProgressError, QueueFencedError, ReplicaError, ClockSkewError
        Before anything is changed. ScalingInProgressError also when `timeout_s` is over: run it again to go on; and if another caller took the
        change back, or asked for another one meanwhile. InvalidArgumentError also with ``delete``, if more than `confirm_lost` messages came in
        before the partitions were sealed: then the count is changed, and nothing is removed. QueueFencedError also when a replica takes over
        meanwhile: the change goes on there, once it is asked for again.
    """
    arguments.count_or_none("confirm_lost", confirm_lost)
    arguments.seconds_or_none("timeout_s", timeout_s)
    check_primary(queue, opening=True, options=replica_options)
    # The removal records a time, by this machine's clock, for each removed file; by that time maintenance deletes it.
    checked_ms(queue.store, queue.name, queue.state.settings.max_clock_skew_ms)
    update_replicas(queue, replica_options)
    started = start(queue, partitions, mode, confirm_lost)
    clock = queue.store.runtime.monotonic_s
    deadline = None if timeout_s is None else clock() + timeout_s
    watchers: dict[str, Rebalancer] = {}
    while True:
        progress = step(queue, replica_options)
        _check_is_as_asked(queue.state, partitions, mode)
        if progress is None or (mode == "live" and progress.alone):
            update_replicas(queue, replica_options)
            return queue.state
        report(progress)
        if deadline is not None and clock() > deadline:
            raise ScalingInProgressError(
                f"scaling queue {queue.name!r} to {partitions} partitions still waits for {progress.what} ({progress.left} left); "
                "run it again to go on",
                queue=queue.name,
                partitions=partitions,
                mode=mode,
            )
        if mode == "delete":
            _remove_the_rest(queue, started, partitions, confirm_lost)
        # Decide for the groups, so that dead members leave them even if no other member is alive; also for groups that attached since.
        for name in queue.state.groups:
            # A group may have been deleted, may have no members yet, or may use an assignor that is not installed here.
            with contextlib.suppress(PartqError):
                if name not in watchers:
                    watchers[name] = Rebalancer(queue.store, name)
                for _ in watchers[name].step():
                    pass
        queue.store.runtime.sleep(_EVERY_S)


def _check_is_as_asked(state: QueueState, partitions: int, mode: Mode) -> None:
    """
    Raises
    ------
    ScalingInProgressError
    """
    under_way = None if state.scaling is None else state.scaling.partition_count
    if state.usable and partitions not in (state.partition_count, under_way):
        raise ScalingInProgressError(
            f"queue {state.name!r} was to have {partitions} partitions and has {state.partition_count}: somebody took the change back, or asked "
            "for another one meanwhile. Ask them, or run this again",
            queue=state.name,
            partitions=partitions,
            mode=mode,
        )


def _remove_the_rest(queue: Queue, started: QueueState, partitions: int, confirm_lost: int | None) -> None:
    """Remove the messages of partitions to be removed, if the map that was asked for is in force: more had come in before the seals than was confirmed.

    Parameters
    ----------
    started : QueueState
        The state in which the change began, or was found. What a later change leaves to be drained was not confirmed.

    Raises
    ------
    InvalidArgumentError
        If they are more than `confirm_lost`.
    ScalingInProgressError
        If they are of a later change.
    """

    opens = started.scaling is not None and not started.scaling.opened

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue)
        if state.scaling is not None or state.partition_count != partitions or not state.removing:
            return ()
        if state.generation != started.generation + opens:
            raise ScalingInProgressError(
                f"queue {state.name!r} has got {partitions} partitions, and was changed again since: what its removed partitions hold now was not "
                "confirmed, and is being drained. Wait for that, or run this again",
                queue=state.name,
                partitions=partitions,
                mode="delete",
            )
        return decide.start_scaling(state, partitions, "delete", _left(queue, state, partitions), confirm_lost)

    queue.control.decide(facts)


def _left(queue: Queue, state: QueueState, partitions: int) -> Remainder:
    """The messages of the partitions that a map of this count does not name."""
    # Messages that every group has acknowledged are settled first: no owner goes back before them.
    if partitions == state.partition_count:
        undrained(queue, state.removing)
    return measure_remainder(queue, state.not_named_by(partitions))


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
        remainder = _left(queue, state, partitions) if mode == "delete" and state.scaling is None else None
        return decide.start_scaling(state, partitions, mode, remainder, confirm_lost, finished)

    # The steps that an interrupted change has left; each one is done, whatever the others return.
    finished = any([update_groups(queue), close_parent(queue), remove_files(queue)])
    return queue.control.decide(facts)


def step(queue: Queue, replica_options: Options | None = None) -> ScaleProgress | None:
    """Take a change of the count as far as it can go now. Returns what it waits for; None if nothing is left to do.

    Raises
    ------
    QueueNotReadyError, QueueFencedError, ReplicaError
        If the queue was deleted meanwhile, or a replica has taken over.
    """
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue)
    scaling = queue.state.scaling
    if scaling is not None and not scaling.drained:
        progress = decide_drained(queue, replica_options)
        if progress is not None:
            return progress
    waiting = open_generation(queue)
    if waiting is not None:
        return waiting
    update_groups(queue)
    progress = remove_drained(queue)
    if progress is not None:
        return progress
    close_parent(queue)
    remove_files(queue)
    measured = queue.state
    if measured.scaling is not None and measured.scaling.opened:
        behind = [group for group in groups(queue) if group.state.members and not _has_rebalanced(group, measured)]
        if behind:
            return ScaleProgress("the rebalance of " + ", ".join(group.name for group in behind), len(behind))
        queue.control.decide(lambda state: decide.end_scaling(state, measured))
    return None


def _has_rebalanced(group: Group, to: QueueState) -> bool:
    """Whether the group knows the queue's partitions in that state, and is Ready."""
    known = group.state.queues.get(to.queue_id)
    return group.state.status is Status.READY and (known is None or not in_group(to).replaces(known))
