"""A second queue, into which applications write what became of their messages: of each message once, whatever happens to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.delivery.positions import positions_of
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import decode
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.simulation.results import Rows
from spark_partq.testing.simulation.stored import rows_of

URI, QUEUE = "sim://relayed", "out"

_LOG = re.compile(r"(queues/out/partitions/partition=-?\d+)/_delta_log/\d{20}\.json")


def create(store: Store) -> None:
    create_queue(store, QUEUE, "reader string, queue string, key string, at bigint, id string", "key", 2)


class RelayedQueue:
    """One process's handle on the queue."""

    def __init__(self, store: Store, group: str) -> None:
        self._store, self._group = store, group
        self._queue = open_queue(store, QUEUE)
        self._target = PositionsQueue(self._queue, positions_sink(group, None))

    def deliver(self, planned: StreamOffset, rows: Rows) -> None:
        """Write what came of a micro-batch."""
        batch = {(position.queue_id, number): position for (_, number), position in positions_of(planned).items()}

        def write(left: Mapping[PartitionId, int]) -> Written[Prepared]:
            kept = {place: [row for row in rows.get(place[1], ()) if row[0] >= first] for place, first in left.items()}
            found = {place: of_place for place, of_place in kept.items() if of_place}
            table: dict[str, list[Any]] = {
                "queue": [queue_id for (queue_id, _), of_place in found.items() for _ in of_place],
                "key": [
                    f"{batch[p].incarnation}/{p[1]}/{at % 3}" for p, of_place in found.items() for at, _ in of_place
                ],
                "at": [at for of_place in found.values() for at, _ in of_place],
                "id": [id_ for of_place in found.values() for _, id_ in of_place],
            }
            prepared = self._target.prepare(lambda: self._files(table), lambda: len(table["id"]))
            return Written([prepared], {place: of_place[-1][0] + 1 for place, of_place in found.items()})

        self._target.begin()
        deliver_once(self._target, self._store.runtime, self._group, None, batch, write)

    def _files(self, table: dict[str, list[Any]]) -> list[NewFile]:
        state, count = self._queue.state, len(table["id"])
        rows = pa.RecordBatch.from_pydict({"reader": [self._group] * count, **table}, arrow_schema(state.schema))
        return write_rows(self._queue, [(0, rows)] if count else [])


@dataclass
class Relayed:
    """What is in the queue, by group.

    Attributes
    ----------
    written : dict
        As in `Results`. `batch`: the last one's number.
    last : dict
        Of a key, which each lie in one partition that the group reads, the last message's offset there.
    """

    written: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    batch: dict[str, int] = field(default_factory=dict)
    last: dict[tuple[str, str], int] = field(default_factory=dict)

    def of(self, group: str) -> set[str]:
        return {id_ for _, id_ in self.written.get(group, ())}

    def changed(self, files: Files, path: str, data: bytes, copied: Collection[str]) -> str:
        """A file has appeared in the queue's store; what is wrong, or nothing.

        Parameters
        ----------
        copied : collection of str
            Ids of messages that were stuck in the parent: their copies are other messages (S6).
        """
        match = _LOG.fullmatch(path)
        if match is None:
            return ""
        entry = decode(data)
        for add in (add for add in entry.adds if not add.tags):  # with tags it was rewritten
            for row in rows_of(files, f"{match[1]}/{add.path}"):
                reader, message = row["reader"], (row["queue"], row["id"])
                known = self.written.setdefault(reader, set())
                if message in known and row["id"] not in copied:
                    return f"RELAYED TWICE: group {reader} has written {row['id']} before"
                known.add(message)
                batch = entry.transactions[f"partq:sink/{positions_sink(reader, None)}"].version
                if batch < self.batch.get(reader, 0):
                    return f"RELAYED LATE: group {reader} goes on with batch {batch} after it has begun a later one"
                self.batch[reader] = batch
                if row["at"] <= self.last.get((reader, row["key"]), -1):
                    return (
                        f"RELAYED OUT OF ORDER: group {reader} has written later messages of its key than {row['id']}"
                    )
                self.last[reader, row["key"]] = row["at"]
        return ""
