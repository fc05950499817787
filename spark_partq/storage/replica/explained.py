"""How far the copies of partitions may go on, so that the replica's control table explains their seals and fences (S7)."""

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
    """The part of a queue's state that decides how far the copies of partitions may go on."""
    return *state.may_be_marked, state.generation


def go_on(target: Store, partitions: Read, state: QueueState, is_last: bool = True) -> int:
    """Move the copies of partitions on as far as that state of the queue explains; return how many commits that were.

    The parent comes last, so that messages that left it are in the other partitions already. If its messages are stuck in a state that is not
    yet the last one that was read, the parent waits, as a later state may explain where they went (S6).
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
    """The first steps of a partition, up to the last state whose seal and fence the copied control table explains.

    A seal of a change that began after the control table was read waits for the next pass. So do a fence, and steps after the seal of the map
    in force.

    Parameters
    ----------
    sealed : int
        The last generation under which the copy is sealed, if it counts.
    """
    if sealed >= state.generation:
        return
    held: list[Step] = []
    marks = dict.fromkeys((SEALED, FENCED, UNFENCED), -1)  # the copy's own marks were explained when copied
    for step in steps:
        if max(map(generation_of, step.recorded), default=-1) > state.generation:
            return  # after the seal: in a jump, or if an earlier pass has copied the seal
        marks = {app: step.recorded.get(app, mark) for app, mark in marks.items()}
        held.append(step)
        if state.explains(marks[SEALED], is_fenced(marks[FENCED], marks[UNFENCED])):
            yield from held
            held.clear()
        if marks[SEALED] >= state.generation:
            return
