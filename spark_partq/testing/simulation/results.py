"""A table of a user into which applications write what became of their messages: of each message once, whatever happens to them.

It is a Delta table in a store of its own. What is written of a micro-batch are the ids of its messages, in the statistics of a file that
nobody reads.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.delivery.positions import positions_of
from spark_partq.core.ids import PartitionId
from spark_partq.core.payload.schema import payload_schema
from spark_partq.storage.log import Add, DeltaLog, TableSpec
from spark_partq.storage.log.entries import decode
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.store import Store

URI, FOLDER = "sim://results", "results"

Ids = list[list[str]]  # of messages, each with the id of its queue
Rows = Mapping[int, Sequence[tuple[int, str]]]  # of each partition offsets and ids, in order


def create(store: Store) -> None:
    DeltaLog(store, FOLDER, "the table of results").create(TableSpec(payload_schema("id string")))


class ResultsTable:
    """One process's handle on the table; `storage.procedures.deliver_once.Target`. A file is a list of ids."""

    what = "the table of results"

    def __init__(self, store: Store, group: str) -> None:
        self._store, self._group = store, group
        self._log = DeltaLog(store, FOLDER, self.what)

    def refresh(self) -> None:
        self._log.refresh()

    def recorded(self, app: str) -> int | None:
        found = self._log.recorded(app)
        return None if found < 0 else found

    def are_fit(self, files: Sequence[Ids]) -> bool:
        return True

    def commit(self, files: Sequence[Ids], transactions: Mapping[str, int]) -> None:
        adds = [
            Add(
                f"{self._store.runtime.new_uuid().hex}.parquet",
                1,
                {},
                json.dumps({"numRecords": len(ids), "group": self._group, "ids": ids}),
                self._store.now_ms(),
            )
            for ids in files
        ]
        self._log.commit(adds, transactions=transactions)

    def discard(self, files: Sequence[Ids]) -> None:
        """Nothing was written."""

    def deliver(self, planned: StreamOffset, rows: Rows) -> None:
        """Write what came of a micro-batch."""
        batch = {(position.queue_id, number): position for (_, number), position in positions_of(planned).items()}

        def write(left: Mapping[PartitionId, int]) -> Written[Ids]:
            kept = {place: [row for row in rows.get(place[1], ()) if row[0] >= first] for place, first in left.items()}
            found = {place: of_place for place, of_place in kept.items() if of_place}
            ids = [[queue_id, id_] for (queue_id, _), of_place in found.items() for _, id_ in of_place]
            return Written([ids] if ids else [], {place: of_place[-1][0] + 1 for place, of_place in found.items()})

        deliver_once(self, self._store.runtime, self._group, None, batch, write)


@dataclass
class Results:
    """What is in the table, by group: of each message the id of its queue, and its own.

    A producer whose queue is deleted and created again may append a message to both.
    """

    written: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def of(self, group: str) -> set[str]:
        return {id_ for _, id_ in self.written.get(group, ())}

    def changed(self, path: str, data: bytes, copied: Collection[str]) -> str:
        """A file has appeared in the table's store; what is wrong, or nothing.

        Parameters
        ----------
        copied : collection of str
            Ids of messages that were stuck in the parent: their copies are other messages (S6).
        """
        if not path.endswith(".json"):
            return ""
        for add in decode(data).adds:
            stats = json.loads(add.stats or "{}")
            known = self.written.setdefault(stats["group"], set())
            twice = [id_ for queue_id, id_ in stats["ids"] if (queue_id, id_) in known and id_ not in copied]
            if twice:
                return f"RESULT TWICE: group {stats['group']} has written {', '.join(twice[:3])} before"
            known.update((queue_id, id_) for queue_id, id_ in stats["ids"])
        return ""
