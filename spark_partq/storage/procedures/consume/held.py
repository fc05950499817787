"""Messages of keys that a group holds back (`core.group.held_keys`): where they are among the messages that a planner is about to plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from spark_partq.core.ids import PartitionId
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.place import identities
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices

# Before a plan at most this many messages of a partition are looked at; the planned range ends there. Their keys are read under the
# planner's lock.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Run:
    """What is known of a partition from `start` on: no message below `first` has one of these keys, and all messages of ``[first, end)`` have one.

    Attributes
    ----------
    first, end : int
        Equal while no such message is found; all messages below were looked at.
    """

    keys: frozenset[int]
    start: int
    first: int
    end: int


class HeldMessages:
    """Finds messages of held keys, and looks at no message twice while the same keys are held. Used by one thread."""

    def __init__(self) -> None:
        self._known: dict[PartitionId, Run] = {}

    def run(self, queue: Queue, table: PartitionTable, keys: frozenset[int], start: int, end: int) -> Run:
        """The first run of messages of these keys in ``[start, end)``, as far as these messages were looked at.

        Raises
        ------
        CorruptTableError
            If a file cannot be read.
        """
        place = queue.state.queue_id, table.partition
        known = self._known.get(place)
        if known is None or known.keys != keys or not known.start <= start <= known.first:
            known = Run(keys, start, start, start)
        if known.first == known.end < end:
            known = _look_on(queue, table, known, min(end, start + MOST_ROWS))
        self._known[place] = known
        return known


def _look_on(queue: Queue, table: PartitionTable, known: Run, end: int) -> Run:
    first = None
    for offset, hash_ in hashes(queue, table, known.first, end):
        if hash_ in known.keys:
            first = offset if first is None else first
        elif first is not None:
            return replace(known, first=first, end=offset)
    upto = max(end, known.end)
    return replace(known, first=upto if first is None else first, end=upto)


def hashes(queue: Queue, table: PartitionTable, start: int, end: int) -> Iterator[tuple[int, int | None]]:
    """The offset of each message in ``[start, end)`` and the 64-bit hash that stands for its key; None if it has no key.

    Raises
    ------
    CorruptTableError
        If a file cannot be read.
    """
    state = queue.state
    fields = [field for field in state.schema["fields"] if field["name"] in state.key]
    schema = arrow_schema({"type": "struct", "fields": fields})
    for part in slices(queue.state, table.partition, table.index, start, end):
        for row, batch in read_slice(queue.store, part, schema):
            yield from enumerate(identities(state, batch, [None] * batch.num_rows), part.base_offset + row)
