"""A column that the queue gets while it is used: what a message has there stays with it, wherever it goes."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.queue.state import QueueState
from spark_partq.storage.files import Files
from spark_partq.testing.simulation.stored import column_of

COLUMN = "note"


def note_of(id_: str) -> str:
    """What a producer writes there."""
    return f"note {id_}"


def wrong_note(id_: str, note: str | None) -> str:
    """What is wrong with what was read there, or nothing; a producer may not have known the column."""
    return "" if note in (None, note_of(id_)) else f"NOTE: {id_} has {note!r}"


class Notes:
    """Which messages of each store have one, since they came there."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str], bool] = {}

    def wrong_with(self, uri: str, queue: QueueState | None, files: Files, path: str, ids: Sequence[str]) -> str:
        """A file of messages has come into the queue; what is wrong with it, or nothing."""
        if queue is None or COLUMN not in queue.added:
            return ""
        try:
            notes: Sequence[str | None] = column_of(files, path, COLUMN)
        except KeyError:  # the file lacks the column
            notes = [None] * len(ids)
        for id_, note in zip(ids, notes, strict=True):
            if problem := wrong_note(id_, note):
                return problem
            if self._noted.setdefault((uri, id_), note is not None) and note is None:
                return f"NOTE LOST: {id_} in {path}"
        return ""

    def forget(self, uri: str) -> None:
        """The queue was deleted there."""
        self._noted = {place: noted for place, noted in self._noted.items() if place[0] != uri}
