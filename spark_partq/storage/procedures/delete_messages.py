"""Delete the messages of one key, for example because the person whose data they are asks for it.

The files of these messages are written again without them, and the other messages keep their offsets. Readers read to its end what they have
begun, as the old files stay for `vacuum_grace_ms`. Then maintenance deletes the old files, and with them the last trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import CommitFailedError, CorruptTableError, QueueNotFoundError
from spark_partq.core.queue import deletion
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.finish_begun import finish_begun
from spark_partq.storage.procedures.primary import check_primary, unfence
from spark_partq.storage.procedures.rewrites import MAX_REWRITES
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.file_age import FileAge, FilesTooOld
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.handle import Queue, check_usable, open_queue
from spark_partq.storage.queue.key_values import key_values
from spark_partq.storage.queue.matching import having
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import Fenced, PartitionTable
from spark_partq.storage.queue.rewriting import Rows, rewrite, was_replaced
from spark_partq.storage.queue.slices import Slice, whole_files

Wanted = Mapping[str, Any]

# Another pass finds messages that are copied meanwhile, from queue to queue or from partition to partition. A producer that goes on writing
# the key does not keep this call busy for more than this number of passes.
_PASSES = 5


def delete_messages(queue: Queue, key: Mapping[str, object]) -> int:
    """Delete all messages of a key from the queue, and those from its dead-message queue that came from this queue; return how many.

    First, batches that sinks have begun are finished, as otherwise their files would come in later. The call may be killed and repeated.

    Parameters
    ----------
    key : dict
        A value, or None for null, of each column of the key.

    Raises
    ------
    InvalidArgumentError
        If these are not the key's columns, or a value does not have its column's type; nothing is changed.
    QueueFencedError, ReplicaError, QueueNotFoundError, ClockSkewError, CommitFailedError, CorruptTableError
        CorruptTableError also if the manifest of a batch that was begun is damaged.
    """
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue, opening=True)
    wanted = key_values(queue.state, key)
    searches = [_Search(queue, wanted)]
    dead_letters = queue.state.settings.dead_letter_queue
    if dead_letters is not None:
        with suppress(QueueNotFoundError):  # then there are no dead messages
            dead = open_queue(queue.store, dead_letters)
            check_primary(dead, opening=True)
            searches.append(_Search(dead, {**wanted, "origin_queue": queue.name}))
    # The rewrite records a time, by this machine's clock, for the former file; by that time maintenance deletes it.
    checked_ms(queue.store, queue.name, queue.state.settings.max_clock_skew_ms)
    for _ in range(_PASSES):
        if not sum([search.go_on() for search in searches]):
            break
    return sum(search.end() for search in searches)


class _Search:
    """A queue, how far it was searched, and what was found and deleted."""

    def __init__(self, queue: Queue, wanted: Wanted) -> None:
        self._queue, self._wanted = queue, wanted
        self._ends: dict[int, int] = {}  # by partition
        self._deleted = 0

    def go_on(self) -> int:
        """Search the messages that have come since the last call, and delete those of the key. Returns how many were deleted."""
        self._queue.control.refresh()
        finish_begun(self._queue)
        found = 0
        for number in self._queue.state.all_partitions:
            table, start = self._queue.table(number), self._ends.get(number, 0)
            deleted, self._ends[number] = _delete_from(self._queue, table, start, self._wanted)
            found += deleted
        self._deleted += found
        return found

    def end(self) -> int:
        """Record how many messages were deleted in all, and return that number."""
        self._queue.control.decide(lambda state: deletion.note_deletion(state, self._deleted))
        return self._deleted


def _delete_from(queue: Queue, table: PartitionTable, start: int, wanted: Wanted) -> tuple[int, int]:
    """Delete from a partition. Returns how many messages, and up to which offset the partition was searched."""
    deleted = 0
    while True:
        with queue.explained():
            table.refresh()
            queue.control.refresh()  # the state has every column that a file has
            end = table.next_offset
            for part in whole_files(queue.state, table.partition, table.index, max(start, table.first_offset), end):
                try:
                    count = sum(int(match.sum()) for *_, match in _matched(queue, part, wanted, keys_only=True))
                    if count and not _rewrite(queue, table, part, wanted):
                        break  # another process has, or the file is removed: search again
                except CorruptTableError:
                    if not was_replaced(table, [part]):
                        raise
                    break
                deleted += count
                start = part.base_offset
            else:
                return deleted, end


def _allow_deletion(queue: Queue) -> None:
    """Decide that the queue may have deletions. If it was deleted meanwhile, or its replica takes over, nothing is decided, and this raises."""
    queue.control.decide(deletion.allow_deletion)
    check_usable(queue.control)
    check_primary(queue)


def _rewrite(queue: Queue, table: PartitionTable, part: Slice, wanted: Wanted) -> bool:
    """Write a file again without the messages that match. Returns False if the partition no longer has the file."""
    began_s = queue.store.runtime.monotonic_s()
    _allow_deletion(queue)
    for _ in range(MAX_REWRITES + 1):
        part = replace(part, may_lack=queue.state.added)  # a column may have been added since the search
        age = FileAge(began_s, queue.state.settings.vacuum_grace_ms)
        try:
            return rewrite(queue, table, [part], _left(queue, part, wanted), age)
        except FilesTooOld:
            began_s = queue.store.runtime.monotonic_s()
            queue.control.refresh()  # the grace may have changed
        except Fenced:
            queue.control.refresh()
            check_primary(queue)
            unfence(queue, [table.partition])
    grace_ms = queue.state.settings.vacuum_grace_ms
    raise CommitFailedError(
        f"writing a file of partition {table.partition} of queue {queue.name!r} again took more than half of vacuum_grace_ms={grace_ms}, "
        f"{MAX_REWRITES + 1} times; not all messages are deleted. Run this again when the store is less busy, or set a longer vacuum_grace_ms",
        queue=queue.name,
        partition=table.partition,
    )


def _left(queue: Queue, part: Slice, wanted: Wanted) -> Rows:
    """The messages of a file that do not match."""
    for row, batch, times_us, match in _matched(queue, part, wanted):
        left = np.flatnonzero(~match)
        if len(left):
            yield part.base_offset + row + left, batch.filter(pa.array(~match)), times_us[left]


def _matched(
    queue: Queue, part: Slice, wanted: Wanted, *, keys_only: bool = False
) -> Iterator[tuple[int, pa.RecordBatch, Ints, Any]]:
    """Batches of a file's rows: the number of the first row, the rows, their times, and which of them match."""
    fields = [f for f in queue.state.schema["fields"] if f["name"] in wanted or not keys_only]
    schema = arrow_schema({"type": "struct", "fields": fields})
    types = {f["name"]: f["type"] for f in fields}
    matches = having(types, wanted)
    for row, batch, times_us in read_timed(queue.store, part, schema):
        yield row, batch, times_us, matches(batch)
