"""Place batches that sinks had made durable but not placed when they died.

So a caller sees all messages that the queue will ever get of these batches.
"""

from __future__ import annotations

from contextlib import suppress

from spark_partq.core.errors import SinkAheadError
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import keeps_positions
from spark_partq.storage.files import FileMissing
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.manifests import Manifests, has_valid_positions


def finish_begun(queue: Queue) -> None:
    """Finish the last batch of each sink, as the sink does when it starts again. The batches before it are in.

    If a batch's manifest is void, or does not hold, the batch is left to its sink, which writes it again from its source. Only a sink that
    keeps positions has no other source than the files: its batch is placed from the files.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
    ScalingInProgressError, CommitFailedError, ClockSkewError, CorruptTableError, NewerStoreError
        As `Producer.write`. Batches of other sinks may be finished already.
    """
    producer = Producer(queue)
    producer.refresh()
    manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
    last = {name.sink_id: name for name in manifests.names()}
    for sink_id, name in last.items():
        with suppress(FileMissing, SinkAheadError):  # the sink has gone on
            begun = manifests.read(name)
            if not has_valid_positions(queue, begun):
                continue
            record = BatchRecord(sink_id, name.batch_id, begun.query_id, begun.offsets_digest)
            producer.finish(record, by_another=not keeps_positions(sink_id))
