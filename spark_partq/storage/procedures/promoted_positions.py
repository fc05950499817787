"""A promotion lets each sink that keeps positions go on at positions whose messages the replica has (S7, H4)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.queue.manifest import Manifest, ManifestName
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.restated import restated
from spark_partq.core.queue.sink_ids import keeps_positions, restated_batch
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.handle import Queue, last_batches
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import PartitionTable


def restate_positions(queue: Queue, tables: Sequence[PartitionTable], goes_on: Callable[[], None]) -> None:
    """Put a manifest for each sink that keeps positions. Called after the tables are closed, before the queue is opened.

    The tables stay as they are. So another promotion that died, or was cancelled, has put the same manifests.

    Parameters
    ----------
    queue : Queue
        As it was at its primary.
    tables : sequence of PartitionTable
        Every table that the queue ever had.
    goes_on : function
        Raises if the promotion was cancelled, or has ended.
    """
    manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
    by_number = {table.partition: table for table in tables}

    def has_part(name: ManifestName, partition: int, generation: int) -> bool:
        record = BatchRecord(name.sink_id, name.batch_id)
        return partition in by_number and by_number[partition].has(record, generation)

    batch_id = restated_batch(len(queue.state.former) + 1)  # so a manifest that a pass puts late comes before it
    for sink_id in dict.fromkeys(name.sink_id for name in manifests.names()):
        if not keeps_positions(sink_id):
            continue
        copied = sorted(_copied(manifests, sink_id, batch_id), key=lambda m: _rank(queue, m))
        if not copied:
            continue
        last, discarded = last_batches(tables, sink_id), queue.control.last_discarded(sink_id)
        made = restated(copied, last, has_part, manifests.has_file, discarded, ManifestName(sink_id, batch_id, 0))
        goes_on()
        manifests.put(made)


def _copied(manifests: Manifests, sink_id: str, below: int) -> Iterator[Manifest]:
    """The sink's manifests in the copy that can be read."""
    for name in manifests.of_sink(sink_id):
        if name.batch_id < below:
            with contextlib.suppress(CorruptTableError, FileMissing):  # a pass that slept removes it
                yield manifests.read(name)


def _rank(queue: Queue, manifest: Manifest) -> tuple[int, bool, int]:
    """By batch; of one batch those by a map that the copy knows last, by number."""
    return manifest.name.batch_id, manifest.has_map(queue.state.generations), manifest.name.number
