"""The batches that sinks have begun: which of their files are still to be committed, and which manifests nobody needs any more (Q5, Q8)."""

from __future__ import annotations

import contextlib
import logging

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.queue.manifest import Manifest, ManifestName
from spark_partq.core.queue.records import KEPT_MS
from spark_partq.core.queue.sink_ids import keeps_positions
from spark_partq.storage.files import FileInfo, FileMissing
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import BatchRecord, PartitionTable

_log = logging.getLogger("spark_partq")


class BegunBatches:
    """The manifests of a queue, as they are now. Made before the partitions' logs are read.

    In this order: a manifest that is gone by now was gone because its batch is in, which the logs say later. And a file that is too young to
    be deleted at `as_of_ms` has its manifest in time for another run to see it; one that is old enough had its own before.

    Attributes
    ----------
    as_of_ms : int
        The moment, by the store's clock, before the manifests were read.
    readable : bool
        Whether all could be read. If not, nobody knows which files are still to be committed.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
        self._manifests.make_folder()
        self.as_of_ms = queue.store.clock_ms(self._manifests.folder)
        self._names: dict[ManifestName, FileInfo] = self._manifests.names()
        self._begun: list[Manifest] = []
        self.readable = True
        for name in self._names:
            try:
                with contextlib.suppress(FileMissing):
                    self._begun.append(self._manifests.read(name))
            except CorruptTableError as error:
                self.readable = False
                _log.warning("no files of queue %s are deleted: %s", queue.name, error)

    def files_left(self, table: PartitionTable) -> set[str]:
        """Of a table, as of its last refresh, the files that are still to be committed."""
        return {
            file.path
            for manifest in self._begun
            if not table.has(BatchRecord(*manifest.name[:2]), manifest.generation)
            and not self._is_placed_again(manifest)
            for file in manifest.files
            if file.partition == table.partition
        }

    def _is_placed_again(self, manifest: Manifest) -> bool:
        """Whether the batch has files by a later map in force: under the former map, which is sealed, nothing is committed any more."""
        return any(
            other.name[:2] == manifest.name[:2]
            and manifest.generation < other.generation <= self._queue.state.generation
            for other in self._begun
        )

    def forget(self) -> None:
        """Remove the manifests of batches that are not the last of their sink, and those of sinks that have been silent for long.

        As long as a table records a sink its last manifest stays: it says which query wrote that batch, and what of it is to be finished.
        That of a sink that keeps positions of a group stays for good.
        """
        last = {name.sink_id: name.batch_id for name in self._names}  # they are sorted
        old = [name for name, info in self._names.items() if self.as_of_ms - info.modified_ns // 1_000_000 > KEPT_MS]
        tables = [self._queue.table(number) for number in self._queue.state.all_partitions] if old else []
        self._queue.store.map(lambda table: table.refresh(), tables)

        def is_silent(sink_id: str) -> bool:
            if keeps_positions(sink_id):
                return False
            records = [table.recorded(BatchRecord(sink_id, 0).app) for table in tables]
            return max([self._queue.control.last_discarded(sink_id), *records]) < 0

        earlier = [name for name in self._names if name.batch_id < last[name.sink_id]]
        self._manifests.delete([*earlier, *(name for name in old if is_silent(name.sink_id))])
