"""How far the partitions of a replica may go on, as its control table explains it (S7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_partq.core.queue.partition_map import PARENT, is_fenced
from spark_partq.core.queue.records import generation_of
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.queue.partition_table import FENCED, SEALED, UNFENCED
from spark_partq.storage.replica.step import Step
from spark_partq.storage.replica.table import log_of
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store, partition_folder

Read = Sequence[tuple[TableCopy, list[Step]]]  # partitions, each with what a pass has read of it


def explains(state: QueueState) -> tuple[int, bool, int]:
    """What decides how far partitions may go on."""
    return *state.may_be_marked, state.generation


def go_on(target: Store, partitions: Read, state: QueueState, is_last: bool = True) -> int:
    """Let the copies of partitions go on as far as that state of the queue explains; return how many commits that were.

    The parent comes last: messages that left it are where they went. While its messages are stuck by a state on the way to the one that
    was read, it waits, as where they went may be explained later (S6).
    """
    folder = partition_folder(state.name, PARENT)
    others = [pair for pair in partitions if pair[0].folder != folder]
    commits = sum(target.map(lambda pair: pair[0].apply(explained(pair[1], state)), others))
    for parent, steps in [pair for pair in partitions if pair[0].folder == folder]:
        if is_last:
            commits += parent.apply(explained(steps, state))
        elif not state.stuck or _becomes_exclusive(state):
            sealed = log_of(target, state.name, PARENT).recorded(SEALED, -1) if parent.version >= 0 else -1
            commits += parent.apply(explained(steps, state, sealed))
    return commits


def _becomes_exclusive(state: QueueState) -> bool:
    return state.scaling is not None and state.scaling.partition_count == 0


def explained(steps: Iterable[Step], state: QueueState, sealed: int = -1) -> Iterator[Step]:
    """As many of a partition's steps as end where the copied control table says why the partition is sealed or fenced, or is not.

    A seal that belongs to a change which began after the control table was read waits for the next pass; so do a fence, and what comes behind
    the seal of the map in force.

    Parameters
    ----------
    sealed : int
        The last generation under which the copy is sealed, if that counts.
    """
    if sealed >= state.generation:
        return
    held: list[Step] = []
    marks = dict.fromkeys((SEALED, FENCED, UNFENCED), -1)  # what the copy says already was explained when it was copied
    for step in steps:
        if max(map(generation_of, step.recorded), default=-1) > state.generation:
            return  # behind the seal, in a jump or where an earlier pass has copied that
        marks = {app: step.recorded.get(app, mark) for app, mark in marks.items()}
        held.append(step)
        if state.explains(marks[SEALED], is_fenced(marks[FENCED], marks[UNFENCED])):
            yield from held
            held.clear()
        if marks[SEALED] >= state.generation:
            return
