"""Checks the batches that sinks have begun: finds damaged manifests, and batches that no process finishes (Q5)."""

from __future__ import annotations

import contextlib

from spark_partq.core.errors import CorruptTableError, NewerStoreError, PartqError
from spark_partq.core.queue.manifest import Manifest, ManifestName, last_that_holds
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import STUCK_SINK, redriven_from
from spark_partq.storage.files import FileMissing
from spark_partq.storage.inspect.doctor.check import Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.queue.handle import Queue, recorded_in
from spark_partq.storage.queue.manifests import Manifests, has_valid_positions

# A producer that finishes its batch needs less time than this; one that waits for the next map gives up sooner.
_PATIENCE_MS = 3_600_000


class ManifestCheck(Check):
    """The last batch of each sink of a queue."""

    def __init__(self, queue: Queue, found: Diagnosis) -> None:
        super().__init__(queue.store, f"queue {queue.name}", found)
        self._queue = queue
        self._manifests = Manifests(queue.store, queue.name, queue.state.queue_id)

    def check(self, is_fenced: bool) -> None:
        """Nobody finishes a batch in a queue that is fenced."""
        names = self._manifests.names()
        last = {name.sink_id: name.batch_id for name in names}  # they are sorted
        for sink_id, batch_id in last.items():
            numbers = [name for name in names if name[:2] == (sink_id, batch_id)]
            age_ms = self.store.now_ms() - names[numbers[-1]].modified_ns // 1_000_000
            manifests = [manifest for name in numbers if (manifest := self._read(name)) is not None]
            if not is_fenced and len(manifests) == len(numbers) and age_ms > _PATIENCE_MS:
                with contextlib.suppress(CorruptTableError, NewerStoreError):  # of a partition: its check reports it
                    self._check_finished(manifests)

    def _read(self, name: ManifestName) -> Manifest | None:
        try:
            with contextlib.suppress(FileMissing):  # its sink has gone on
                return self._manifests.read(name)
        except PartqError as error:
            self.unreadable(error, f"restore {self._manifests.path(name)} from a backup")
        return None

    def _check_finished(self, manifests: list[Manifest]) -> None:
        """Check that all files that the batch's last manifest names are in their partitions."""
        queue, name = self._queue, manifests[0].name
        record = BatchRecord(name.sink_id, name.batch_id)
        tables = queue.every_table()  # after the manifests
        queue.control.refresh()
        recorded = recorded_in(queue, tables, record)
        manifest = last_that_holds(manifests, queue.state.generations, recorded)
        if manifest is None or not has_valid_positions(queue, manifest):
            return  # nobody finishes it
        if manifest.is_complete(recorded, queue.control.last_discarded(name.sink_id)):
            return
        if manifest.discarded is not None:
            self._unfinished(name, f"its {manifest.discarded} messages, which are discarded, are not counted")
        else:
            left = sum(file.rows for file in manifest.left(recorded))
            self._unfinished(name, f"{left} of its messages are not in the queue")

    def _unfinished(self, name: ManifestName, what: str) -> None:
        if name.sink_id == STUCK_SINK:
            finishes = f"run spark-partq copy-stuck {self._queue.name} again"
        elif (dead_letters := redriven_from(name.sink_id)) is not None:
            finishes = f"run spark-partq dead-letter redrive {dead_letters} again"
        else:
            finishes = "start the query of this sink again"
        self.warn(
            f"batch {name.batch_id} of sink {name.sink_id} was begun over an hour ago, and {what}",
            f"{finishes}: it finishes the batch",
        )
