"""The batches that sinks have begun: which of their files are still to be committed, and which manifests nobody needs any more (Q5, Q8)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.queue.manifest import Manifest, ManifestName
from spark_partq.core.queue.records import KEPT_MS, BatchRecord, last_written_ms, silent_sinks
from spark_partq.core.queue.sink_ids import STUCK_SINK, keeps_positions
from spark_partq.storage.files import FileInfo, FileMissing
from spark_partq.storage.queue.handle import Queue, check_usable, last_batch, recorded_in
from spark_partq.storage.queue.manifests import Manifests, has_valid_positions, last_to_go_on_with
from spark_partq.storage.queue.partition_table import PartitionTable

_log = logging.getLogger("spark_partq")


class BegunBatches:
    """The manifests of a queue, as they are now. They are read before the partitions' logs.

    This order matters. If a manifest is gone, its batch is in, and the logs, which are read later, say so. A file that is too young to be
    deleted at `as_of_ms` gets its manifest in time for another run to see it; a file that is old enough has had its manifest before.

    Attributes
    ----------
    as_of_ms : int
        A moment, by the store's clock, before the manifests were read.
    readable : bool
        Whether all manifests could be read. If not, it is unknown which files are still to be committed.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
        try:
            self.as_of_ms = queue.store.clock_ms(self._manifests.folder)
        except FileMissing:
            queue.control.refresh(sure=True)
            check_usable(queue.control)  # raises if the queue was deleted; else the folder is lost
            self._manifests.make_folder()
            self.as_of_ms = queue.store.clock_ms(self._manifests.folder)
        self._names: dict[ManifestName, FileInfo] = self._manifests.names(self.as_of_ms)
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
        """The files of a table that are still to be committed, as of its last refresh."""
        return self._left_in(table, None)

    def _left_in(self, table: PartitionTable, sink_id: str | None) -> set[str]:
        return {
            file.path
            for manifest in self._begun
            if sink_id in (None, manifest.name.sink_id)
            and not table.has(BatchRecord(*manifest.name[:2]), manifest.generation)
            for file in manifest.files
            if file.partition == table.partition
        }

    def leave_out_placed_again(self) -> None:
        """Keep no files of a manifest if a later manifest of its batch holds and has begun to be placed: the later one will go on to hold.

        Nothing is committed any more under the earlier manifest's map, which is sealed.
        """
        batches: dict[tuple[str, int], list[Manifest]] = {}
        for manifest in self._begun:
            batches.setdefault(manifest.name[:2], []).append(manifest)
        several = {batch: found for batch, found in batches.items() if len(found) > 1}
        if not several:
            return
        tables = self._queue.every_table()
        for batch, found in several.items():
            recorded = recorded_in(self._queue, tables, BatchRecord(*batch))
            holding = last_to_go_on_with(self._queue, found, self._names, recorded)
            if holding is not None and recorded.get(holding.generation):
                over = [manifest for manifest in found if manifest.generation < holding.generation]
                self._begun = [manifest for manifest in self._begun if manifest not in over]

    def forget(self) -> None:
        """Remove the manifests of batches before the last batch of their sink that is in, and those whose positions are not valid.

        Then remove all that is left of sinks that were silent for long.

        The last manifest says which query wrote a batch, and what of the batch is to be finished. So it is removed before any table forgets its
        part, and not while a part is missing. A sink that keeps positions of a group is never forgotten, nor is the copy of stuck messages.
        """
        sinks, tables = {name.sink_id for name in self._names}, self._queue.partitions
        # The manifest of a later batch may be void. Then the manifest of the last batch that a table records still counts.
        last = {sink_id: last_batch(self._queue, tables, sink_id) for sink_id in sinks}
        invalid = {manifest.name for manifest in self._begun if not has_valid_positions(self._queue, manifest)}
        self._manifests.delete([n for n in self._names if n.batch_id < last[n.sink_id] or n in invalid])
        if not self._silent_sinks(self._queue.partitions):
            return
        tables = self._queue.every_table()
        over = self._silent_sinks(tables)
        self._manifests.delete([name for name in self._names if name.sink_id in over])
        now_ms = self._now_ms(tables)
        self._queue.store.map(lambda table: table.forget(over, now_ms), tables)

    def _now_ms(self, tables: Sequence[PartitionTable]) -> int:
        """The time, but not later than the queue's last write: so a clock that is wrong does not make a sink silent by itself."""
        return min(self.as_of_ms, max((last_written_ms(table.transactions) for table in tables), default=0))

    def _silent_sinks(self, tables: Sequence[PartitionTable]) -> set[str]:
        """Sinks that have not written for long, by their manifests and records, and of whose last batch nothing is missing.

        As of the last refresh of the tables. A sink that comes back finishes what is missing, and may have found the manifest already.
        """
        young = {n.sink_id for n, i in self._names.items() if self.as_of_ms - i.modified_ns // 1_000_000 <= KEPT_MS}
        known, now_ms = {name.sink_id for name in self._names}, self._now_ms(tables)
        for table in tables:
            for sink_id, is_silent in silent_sinks(table.transactions, now_ms).items():
                known.add(sink_id)
                if not is_silent:
                    young.add(sink_id)
        return {
            sink_id
            for sink_id in known - young
            if not (keeps_positions(sink_id) or sink_id == STUCK_SINK)
            and self._queue.control.last_discarded(sink_id) < 0
            and not self._lacks_files(sink_id, tables)
        }

    def _lacks_files(self, sink_id: str, tables: Sequence[PartitionTable]) -> bool:
        return not self.readable or any(self._left_in(table, sink_id) for table in tables)
