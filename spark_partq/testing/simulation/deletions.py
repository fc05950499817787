"""Messages of a key are deleted: of a file that is written again nothing else is gone."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core.format import DELETED_MESSAGES
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.queue.file_index import OFFSETS
from spark_partq.testing.simulation.stored import Message, StoredQueue, ids_at


class Deletions:
    """Which keys somebody has begun to delete, and which messages are gone by that, from whatever store."""

    def __init__(self) -> None:
        self.keys: set[str | None] = set()
        self.gone: set[str] = set()

    def rewritten(
        self,
        queue: StoredQueue,
        number: int,
        files: Files,
        folder: str,
        entry: Entry,
        sent: Mapping[str, Message],
        is_copy: bool,
    ) -> tuple[set[str], str]:
        """A file of a partition came in the place of another one; the messages that are gone by that, and what is wrong."""
        if not is_copy and (queue.state is None or DELETED_MESSAGES not in queue.state.format.features):
            return set(), f"REWRITTEN: partition {number}, and older programs may still read it"
        (add,), (remove,), log = entry.adds, entry.removes, queue.partitions[number]
        if log.fenced or remove.path not in log.files:
            return (
                set(),
                f"REWRITTEN: {remove.path} of partition {number}, which is {'fenced' if log.fenced else 'not there'}",
            )
        low, high = log.files.pop(remove.path)
        log.files[add.path] = low, high
        left = {low + row: id_ for row, id_ in ids_at(files, f"{folder}/{add.path}").items()}
        gone = {n: log.ids[n] for n in range(low, high) if n not in left and n not in log.deleted}
        misplaced = [id_ for n, id_ in left.items() if n not in range(low, high) or log.ids[n] != id_]
        others = [id_ for id_ in gone.values() if sent[id_].key not in self.keys]
        came_back = [id_ for n, id_ in left.items() if n in log.deleted]
        log.deleted.update(gone)
        self.gone.update(gone.values())
        queue.places = {i: at for i, at in queue.places.items() if i not in gone.values() or at[0] != number}
        told = (add.partition_values["base_offset"], (add.tags or {}).get(OFFSETS))
        if misplaced or others or came_back or told != (str(low), str(high - low)):
            problem = f"REWRITTEN: [{low}, {high}) of partition {number} as {told} lacks {others}, has {came_back} again, and misplaces {misplaced}"
            return set(), problem
        return set(gone.values()), ""
