"""How long each message of a partition lives, if a column of the messages says so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_partq.core.ids import PartitionId
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.consume.held import MOST_ROWS
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices

# Longer than any message lives; in microseconds, added to a time of today, it still fits into 64 bits.
_FOR_EVER_MS = 1 << 52


@dataclass(frozen=True)
class _Known:
    """The moments when the messages from `start` on expire by these settings, in microseconds since 1970."""

    rule: tuple[str | None, int | None]
    start: int
    expires_us: Ints

    @property
    def end(self) -> int:
        return self.start + len(self.expires_us)


class Lifetimes:
    """Finds messages that are too old among those that are planned next, and reads no message twice. Used by one thread.

    It remembers 8 bytes for each of at most `MOST_ROWS` messages of a partition.
    """

    def __init__(self) -> None:
        self._known: dict[PartitionId, _Known] = {}

    def forget_others(self, partitions: Collection[PartitionId]) -> None:
        """Forget what is known of all partitions except these."""
        self._known = {p: known for p, known in self._known.items() if p in partitions}

    def first_old(self, queue: Queue, table: PartitionTable, start: int, end: int, now_us: int) -> int:
        """The first message of ``[start, end)`` that is too old. If there is none, the end of the search, which covers at most `MOST_ROWS` messages.

        Raises
        ------
        CorruptTableError
            If a file cannot be read.
        """
        upto = min(end, start + MOST_ROWS)
        old = self._look(queue, table, start, upto).expires_us[: upto - start] < now_us
        return start + int(old.argmax()) if old.any() else upto

    def old_end(self, queue: Queue, table: PartitionTable, start: int, end: int, now_us: int) -> int:
        """The end of the messages from `start` on that are too old, among at most `MOST_ROWS`; `start` if the first one is not too old.

        Raises
        ------
        CorruptTableError
            If a file cannot be read.
        """
        upto, index, at = min(end, start + MOST_ROWS), table.index, start
        for i in index.overlapping(start, upto):  # one file at a time: mostly the first message is young
            at = min(upto, int(index.end[i]))
            young = self._look(queue, table, start, at).expires_us[: at - start] >= now_us
            if young.any():
                return start + int(young.argmax())
        return at

    def _look(self, queue: Queue, table: PartitionTable, start: int, end: int) -> _Known:
        settings, place = queue.state.settings, (queue.state.queue_id, table.partition)
        rule = settings.message_ttl_column, settings.message_ttl_ms
        known = self._known.get(place)
        if known is None or known.rule != rule or not known.start <= start <= known.end:
            known = _Known(rule, start, np.empty(0, np.int64))
        known = _Known(rule, start, known.expires_us[start - known.start :])
        if known.end < end:
            more = _expires_us(queue, table, known.end, end)
            known = _Known(rule, start, np.concatenate([known.expires_us, more]))
        self._known[place] = known
        return known


def _expires_us(queue: Queue, table: PartitionTable, start: int, end: int) -> Ints:
    settings = queue.state.settings
    fields = [field for field in queue.state.schema["fields"] if field["name"] == settings.message_ttl_column]
    schema = arrow_schema({"type": "struct", "fields": fields})
    found = [np.empty(0, np.int64)]
    for part in slices(queue.state, table.partition, table.index, start, end):
        moments = np.full(part.last_row - part.first_row, np.iinfo(np.int64).max)  # a deleted message never expires
        for row, batch, enqueued_us in read_timed(queue.store, part, schema):
            own = batch.column(0).cast(pa.int64()).fill_null(_FOR_EVER_MS).to_numpy(zero_copy_only=False)
            ttl_ms = np.minimum(own, _FOR_EVER_MS if settings.message_ttl_ms is None else settings.message_ttl_ms)
            at = row - part.first_row
            moments[at : at + len(own)] = np.where(own > 0, enqueued_us + 1000 * np.maximum(ttl_ms, 0), 0)
        found.append(moments)
    return np.concatenate(found)
