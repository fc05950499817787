"""A promotion lets each sink that keeps positions go on at positions whose messages the replica has (S7, H4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.restated import restated
from spark_partq.core.queue.sink_ids import keeps_positions, next_batch
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store


def restate_positions(
    store: Store, state: QueueState, tables: Sequence[PartitionTable], goes_on: Callable[[], None]
) -> None:
    """Put a manifest for each sink whose last one counts messages that the replica lacks. Called after the tables are closed, before the
    queue is opened.

    Parameters
    ----------
    state : QueueState
        Before the promotion has ended.
    tables : sequence of PartitionTable
        Every table that the queue ever had.
    goes_on : function
        Raises if the promotion was cancelled, or has ended.
    """
    manifests = Manifests(store, state.name, state.queue_id)
    # Below all numbers of the promoted queue, and above those of its primary.
    batch_id = next_batch(-1, len(state.former) + 1) - 1
    by_number = {table.partition: table for table in tables}
    for sink_id in dict.fromkeys(name.sink_id for name in manifests.names()):
        if keeps_positions(sink_id):
            with suppress(CorruptTableError):  # the sink itself tells of a damaged manifest, when it goes on
                _restate(manifests, state, by_number, goes_on, ManifestName(sink_id, batch_id, 0))


def _restate(
    manifests: Manifests,
    state: QueueState,
    tables: Mapping[int, PartitionTable],
    goes_on: Callable[[], None],
    name: ManifestName,
) -> None:
    app = BatchRecord(name.sink_id, 0).app
    last = {number: batch for number, table in tables.items() if (batch := table.recorded(app)) >= 0}

    def is_left(manifest: Manifest, file: NewFile) -> bool:
        record, table = BatchRecord(name.sink_id, manifest.name.batch_id), tables.get(file.partition)
        is_in = table is not None and table.has(record, manifest.generation)
        return not is_in and last.get(file.partition, -1) <= record.batch_id and manifests.has_file(file)

    # Tables that are closed stay as they are. So another promotion that has put this manifest, and died or was cancelled, has put the same.
    copied = [manifests.read(other) for other in manifests.of_sink(name.sink_id) if other.batch_id < name.batch_id]
    if not copied:
        return  # the promotion has ended, and the sink has gone on
    of_batch = {m.name.batch_id: m for m in sorted(copied, key=lambda m: (_has_map(state, m), m.name))}
    made = restated([of_batch[batch] for batch in sorted(of_batch)], last, is_left, name)
    if made is not None:
        goes_on()
        manifests.put(made)


def _has_map(state: QueueState, manifest: Manifest) -> bool:
    """Whether the copy knows the map by which the files were placed."""
    g = manifest.generation
    return g < len(state.generations) and state.generations[g].partition_count == manifest.partition_count
