"""Queues of one name that follow each other in a store: which entries and which messages are of the one that is there."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.log import Add
from spark_partq.storage.log.entries import TABLE, Entry
from spark_partq.testing.simulation.stored import Message, enqueued_ms


class Lives:
    """What an oracle knows of the tables and the producers of each.

    Attributes
    ----------
    opened : dict
        By the id of a queue, the producers that have opened it.
    """

    def __init__(self) -> None:
        self.opened: dict[str, set[str]] = {}
        self._tables: dict[tuple[str, str], str] = {}  # store and folder -> the id of the table there
        self._newest: dict[tuple[str, str], int] = {}  # ... -> the version of its last entry

    def is_stray(self, uri: str, folder: str, version: int, entry: Entry, live: bool) -> bool:
        """Whether an entry that appears is none of the table that is there: it is another table's, or comes so late that the log had been
        cleaned up. A copy's entries may come late."""
        place = uri, folder
        if entry.metadata is not None and version == 0 and entry.metadata.id != self._tables.get(place):
            self._tables[place], self._newest[place] = entry.metadata.id, -1
        told, newest = (entry.info or {}).get(TABLE), self._newest.get(place, -1)
        if told != self._tables.setdefault(place, str(told)) or (live and version <= newest):
            return True
        self._newest[place] = max(version, newest)
        return False

    def folder_deleted(self, uri: str, folder: str) -> None:
        """No table is there, until a version 0 is put."""
        for place, table in list(self._tables):
            if place == uri and f"{table}/".startswith(f"{folder}/"):
                self._tables[place, table] = ""

    def put_back(self, uri: str) -> None:
        """The tables of a store are what they were."""
        self._newest = {place: newest for place, newest in self._newest.items() if place[0] != uri}

    def open(self, queue_id: str, producers: set[str]) -> None:
        """These producers write into that queue."""
        self.opened.setdefault(queue_id, set()).update(producers)

    def wrong_with(self, add: Add, messages: Sequence[Message], queue: QueueState | None, now_ns: int) -> str:
        """What must not be in a file that is committed; or nothing.

        Parameters
        ----------
        queue : QueueState or None
            The one that is used; None where messages come from others than producers.
        """
        ahead_ms = enqueued_ms(add) - now_ns // 1_000_000
        if ahead_ms > QueueSettings.parse({}).max_clock_skew_ms:
            return f"CLOCK: {messages[0].id} is dated {ahead_ms} ms from now"
        if queue is not None:
            for message in messages:
                if message.producer not in self.opened.get(queue.queue_id, ()):
                    return f"STALE: {message.id} comes from a producer that has opened another queue"
        return ""
