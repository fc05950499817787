"""What becomes of a group's messages goes into another queue, without Spark: micro-batches that are lists of numbers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from spark_partq.core.delivery.positions import Position
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.core.stored import MOST
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.store import Store
from tests.scaled import Message, stored, write_files

SOURCE = "source"  # the queue that is read
Ranges = Mapping[int, tuple[int, int]]  # of each of its partitions the offsets of a micro-batch


def rows_of(ranges: Ranges) -> list[Message]:
    """Of each message one row: three keys of each partition, and a number that says partition and offset."""
    return [(f"k{p}-{i % 3}", 1000 * p + i) for p, (start, end) in ranges.items() for i in range(start, end)]


class Relay:
    """A consumer of the group that writes into queue `q`.

    Parameters
    ----------
    meanwhile : function, optional
        Happens each time when files are written and not durable.
    """

    def __init__(
        self,
        store: Store | str,
        group: str = "g",
        sink_id: str | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.queue = open_queue(Store.at(store), "q")
        self.target = PositionsQueue(self.queue, positions_sink(group, sink_id))
        self.written: list[Ranges] = []  # what was written, each time
        self._group, self._sink_id, self._meanwhile = group, sink_id, meanwhile

    def deliver(self, ranges: Ranges) -> bool:
        """A micro-batch; whether something of it was missing."""
        planned = {(SOURCE, p): Position(*ends, 1, SOURCE, ((SOURCE, MOST),)) for p, ends in ranges.items()}

        def write(left: Mapping[PartitionId, int]) -> Written[Prepared]:
            missing = {p: (first, ranges[p][1]) for (_, p), first in left.items()}
            self.written.append(missing)
            rows = rows_of(missing)
            prepared = self.target.prepare(lambda: write_files(self.queue, rows), lambda: len(rows))
            self._meanwhile()
            return Written([prepared], {place: ranges[place[1]][1] for place in left})

        self.target.begin()
        return deliver_once(self.target, self.queue.store.runtime, self._group, self._sink_id, planned, write)


def take_over(store: str, there: str) -> None:
    """The primary is lost, and its replica is promoted."""
    os.rename(store, f"{store}-away")
    promote(Store(there), "q")


def manifests(store: Store | str) -> Manifests:
    queue = open_queue(Store.at(store), "q")
    return Manifests(queue.store, "q", queue.state.queue_id)


def put_void_batch(store: Store | str, batch_id: int, position: int) -> None:
    """The one sink's next batch, of which nothing is in and whose file is gone."""
    found = manifests(store)
    last = found.read(max(found.names()))
    gone = NewFile(0, "gone.parquet", 1, 1, '{"numRecords": 1}', 0)
    positions = dict.fromkeys(last.positions, position)
    assert found.put(replace(last, name=last.name._replace(batch_id=batch_id), files=(gone,), positions=positions))


def told(store: Store | str) -> dict[str, int]:
    """The positions that the last manifest of the one sink has."""
    found = manifests(store)
    return dict(found.read(max(found.names())).positions)


def arrived(store: Store | str, in_order: bool = True) -> list[int]:
    """Everything that is in, after it was seen that of one partition and key messages lie in the order of their offsets."""
    found: list[int] = []
    for rows in stored(store).values():
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, value in rows:
            by_key[key].append(value)
        assert not in_order or all(values == sorted(values) for values in by_key.values()), rows
        found += [value for _, value in rows]
    return sorted(found)
