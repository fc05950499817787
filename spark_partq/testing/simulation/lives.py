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

    def is_stray(self, uri: str, folder: str, version: int, entry: Entry) -> bool:
        """Whether an entry that appears is none of the table that is there."""
        if entry.metadata is not None and version == 0:
            self._tables[uri, folder] = entry.metadata.id
        told = (entry.info or {}).get(TABLE)
        return told != self._tables.setdefault((uri, folder), str(told))

    def folder_deleted(self, uri: str, folder: str) -> None:
        """No table is there, until a version 0 is put."""
        for place, table in list(self._tables):
            if place == uri and f"{table}/".startswith(f"{folder}/"):
                self._tables[place, table] = ""

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
