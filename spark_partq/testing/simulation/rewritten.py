"""Files that are written again, without the messages of a key or several as one: nothing else is gone, and every message keeps its place."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from spark_partq.core.format import DELETED_MESSAGES, SEGMENTS
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import Add, Entry
from spark_partq.storage.queue.file_index import offsets_of, times_of
from spark_partq.testing.simulation.stored import Message, StoredPartition, StoredQueue, ids_at, times_at


class Rewritten:
    """Which keys somebody has begun to delete, and which messages are gone by that, from whatever store.

    Attributes
    ----------
    merged : int
        How many files were put together.
    """

    def __init__(self) -> None:
        self.keys: set[str | None] = set()
        self.gone: set[str] = set()
        self.merged = 0

    def changed(
        self,
        queue: StoredQueue,
        number: int,
        files: Files,
        folder: str,
        entry: Entry,
        sent: Mapping[str, Message],
        is_copy: bool,
    ) -> tuple[set[str], str]:
        """A file of a partition came in the place of others; the messages that are gone by that, and what is wrong."""
        (add,), log, merges = entry.adds, queue.partitions[number], len(entry.removes) > 1
        if problem := _too_early(queue, number, log, merges, is_copy):
            return set(), problem
        if log.fenced or any(remove.path not in log.files for remove in entry.removes):
            paths = ", ".join(remove.path for remove in entry.removes)
            return (
                set(),
                f"REWRITTEN: {paths} of partition {number}, which is {'fenced' if log.fenced else 'not there'}",
            )
        runs = sorted(log.files.pop(remove.path) for remove in entry.removes)
        if any(before[1] != after[0] for before, after in itertools.pairwise(runs)):
            return set(), f"REWRITTEN: {runs} of partition {number} do not follow each other"
        low, high = runs[0][0], runs[-1][1]
        log.files[add.path] = low, high
        left = {low + row: id_ for row, id_ in ids_at(files, f"{folder}/{add.path}").items()}
        gone = {n: log.ids[n] for n in range(low, high) if n not in left and n not in log.deleted}
        misplaced = [id_ for n, id_ in left.items() if n not in range(low, high) or log.ids[n] != id_]
        others = [id_ for id_ in gone.values() if merges or sent[id_].key not in self.keys]
        came_back = [id_ for n, id_ in left.items() if n in log.deleted]
        log.deleted.update(gone)
        self.gone.update(gone.values())
        self.merged += len(runs) - 1
        queue.places = {i: at for i, at in queue.places.items() if i not in gone.values() or at[0] != number}
        times_ms = {low + row: at for row, at in times_at(files, f"{folder}/{add.path}").items()}
        problem = _wrong_entry(add, low, high, log, times_ms)
        if misplaced or others or came_back or problem:
            problem = f"REWRITTEN: [{low}, {high}) of partition {number} lacks {others}, has {came_back} again, and misplaces {misplaced} {problem}"
        return set() if problem else set(gone.values()), problem


def _too_early(queue: StoredQueue, number: int, log: StoredPartition, merges: bool, is_copy: bool) -> str:
    """Whether this must not be done now, or not yet; a copy has to follow."""
    needed = SEGMENTS if merges else DELETED_MESSAGES
    if is_copy:
        return ""
    if queue.state is None or needed not in queue.state.format.features:
        return f"REWRITTEN: partition {number}, and older programs may still read it"
    if merges and log.sealed >= queue.state.generation:
        return f"REWRITTEN: files of partition {number} are put together while it is sealed"
    return ""


def _wrong_entry(add: Add, low: int, high: int, log: StoredPartition, times_ms: Mapping[int, int]) -> str:
    """What the entry of the new file, or its column of times, says of its messages that is not so."""
    said = add.partition_values["base_offset"], low + offsets_of(add)
    if said != (str(low), high):
        return f"and says that it is {said}"
    wrong = {n: at for n, at in times_ms.items() if log.enqueued_ms.get(n, at) != at}
    last_us, since_us = times_of(add)
    outside = times_ms and not since_us // 1_000 <= min(times_ms.values()) <= max(times_ms.values()) <= last_us // 1_000
    return f"and has the times {wrong}, from {since_us} to {last_us}" if wrong or outside else ""
