"""How long each message of a partition lives, where a column of the messages says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.consume.held import MOST_ROWS
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_slice, slices
from spark_partq.storage.queue.partition_table import PartitionTable

# Longer than anything lasts, and in microseconds, added to a time of today, within 64 bits.
_FOR_EVER_MS = 1 << 52


class Expired(NamedTuple):
    """The messages ``[first, end)`` are too old, and none before them is; equal while none is found, as far as that was looked at."""

    first: int
    end: int


@dataclass(frozen=True)
class _Known:
    """The moments at which the messages from `start` on expire, in microseconds since 1970, by these settings."""

    settings: QueueSettings
    start: int
    expires_us: Ints

    @property
    def end(self) -> int:
        return self.start + len(self.expires_us)


class Lifetimes:
    """Finds what is too old among what is planned next, and reads no message twice. Used by one thread."""

    def __init__(self) -> None:
        self._known: dict[PartitionId, _Known] = {}

    def expired(self, queue: Queue, table: PartitionTable, start: int, end: int, now_us: int) -> Expired:
        """The first messages of ``[start, end)`` that are too old, among the `MOST_ROWS` that are looked at.

        Raises
        ------
        CorruptTableError
            If a file cannot be read.
        """
        place, settings = (queue.state.queue_id, table.partition), queue.state.settings
        known = self._known.get(place)
        if known is None or known.settings != settings or not known.start <= start <= known.end:
            known = _Known(settings, start, np.empty(0, np.int64))
        upto = max(known.end, min(end, start + MOST_ROWS))
        more = _expires_us(queue, table, known.end, upto)
        known = _Known(settings, start, np.concatenate([known.expires_us[start - known.start :], more]))
        self._known[place] = known
        too_old = known.expires_us[: end - start] < now_us
        if not too_old.any():
            return Expired(min(end, known.end), min(end, known.end))
        first = int(too_old.argmax())
        alive = ~too_old[first:]
        return Expired(start + first, start + first + (int(alive.argmax()) if alive.any() else len(alive)))


def _expires_us(queue: Queue, table: PartitionTable, start: int, end: int) -> Ints:
    settings = queue.state.settings
    fields = [field for field in queue.state.schema["fields"] if field["name"] == settings.message_ttl_column]
    schema = arrow_schema({"type": "struct", "fields": fields})
    found = [np.empty(0, np.int64)]
    for part in slices(queue.name, table.partition, table.index, start, end):
        for _, batch in read_slice(queue.store, part, schema):
            own = pc.fill_null(batch.column(0).cast(pa.int64()), _FOR_EVER_MS).to_numpy(zero_copy_only=False)
            ttl_ms = np.clip(own, 0, _FOR_EVER_MS if settings.message_ttl_ms is None else settings.message_ttl_ms)
            found.append(part.enqueued_us + 1000 * ttl_ms)
    return np.concatenate(found)
