"""The newest messages of a queue, for people: no group, nothing is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import PartqError
from spark_partq.storage.arrow import arrow_schema, rows_of
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.key_values import key_value
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Slice, slices


@dataclass(frozen=True)
class Message:
    """A message; `enqueued_us` is microseconds since 1970."""

    partition: int
    offset: int
    enqueued_us: int
    values: dict[str, Any]


class Tail:
    """Reads a queue from its end. Used by one thread.

    Parameters
    ----------
    key : dict
        Columns of the key with their values as text: only messages with this key are shown.

    Raises
    ------
    InvalidArgumentError
        If a column is not in the key, or a value does not have the column's type.
    """

    def __init__(self, queue: Queue, key: Mapping[str, str]) -> None:
        self._queue = queue
        wanted = {name: key_value(queue.state, name, text) for name, text in key.items()}
        self._matches: Callable[[pa.RecordBatch], Any] | None = None  # all messages are shown
        if wanted:
            # It loads PyArrow's functions, which few commands need.
            from spark_partq.storage.queue.matching import having

            self._matches = having({field["name"]: field["type"] for field in queue.state.schema["fields"]}, wanted)
        self._seen: dict[int, int] = {}  # by partition, the offset of the next message to show

    def last(self, count: int) -> list[Message]:
        """The newest messages, at most `count`, ordered by partition and offset."""
        found: list[Message] = []
        self._queue.refresh()
        for table in self._queue.partitions:
            self._seen[table.partition] = table.next_offset
            found += self._last_of(table, count)
        newest = sorted(found, key=lambda m: (m.enqueued_us, m.partition, m.offset))[-count:] if count else []
        return sorted(newest, key=lambda m: (m.partition, m.offset))

    def more(self) -> Iterator[Message]:
        """The messages that have come since the last call, ordered by partition and offset.

        Raises
        ------
        PartqError
            The error of the first partition whose files could not be read, after the messages of the other partitions. The next call
            goes on where this one stopped.
        """
        self._queue.control.refresh()
        self._queue.refresh()
        self._queue.control.refresh()  # the state has every column that a file has
        errors: list[PartqError] = []
        for number in sorted({*self._seen, *self._queue.state.partition_numbers}):
            try:
                yield from self._more_of(number)
            except PartqError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _more_of(self, number: int) -> Iterator[Message]:
        table = self._queue.table(number)
        if number not in self._queue.state.partition_numbers:  # it was removed, maybe with messages that came before
            table.refresh()
        first = max(self._seen.get(number, 0), table.first_offset)
        end = max(first, table.next_offset)
        for piece in slices(self._queue.state, number, table.index, first, end):
            for message in self._read(piece):
                self._seen[number] = message.offset + 1
                yield message
        self._seen[number] = end

    def _last_of(self, table: PartitionTable, count: int) -> list[Message]:
        """The last messages of a partition, read from its last file backwards until there are enough."""
        found: list[Message] = []
        end = table.next_offset
        while len(found) < count and end > table.first_offset:
            base = int(table.index.base[int(np.searchsorted(table.index.base, end, side="left")) - 1])
            first = base if self._matches else max(base, end - (count - len(found)))
            for piece in slices(self._queue.state, table.partition, table.index, first, end):
                found = [*self._read(piece), *found]
            end = first
        return found[-count:]

    def _read(self, piece: Slice) -> Iterator[Message]:
        schema = self._queue.state.schema
        for row, batch, times in read_timed(self._queue.store, piece, arrow_schema(schema)):
            shown = np.ones(batch.num_rows, np.bool_) if self._matches is None else self._matches(batch)
            found = rows_of(batch.filter(pa.array(shown)), schema)
            for n, values in zip(np.flatnonzero(shown), found, strict=True):
                yield Message(piece.partition, piece.base_offset + row + int(n), int(times[n]), values)
