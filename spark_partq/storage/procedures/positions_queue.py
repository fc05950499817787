"""A queue into which a group's results go, with the group's positions in the manifest of each batch.

The manifest makes messages and positions durable at once. The batches of the sink follow each other by number, whichever consumer writes
them. Each manifest has all positions, and says which earlier batches they count. Before a consumer writes the next batch, it finishes the last
one, even if that one's writer died. So there is no message without its position and no position without its messages, and messages of one
partition are written in the order of their offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from spark_partq.core.errors import CorruptTableError, SinkAheadError
from spark_partq.core.queue.manifest import ManifestName, NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import next_batch
from spark_partq.storage.files import FileMissing
from spark_partq.storage.log import Conflict
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.rewrites import check_rewrites
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.manifests import Manifests, has_valid_positions, is_of_primary


class PositionsQueue:
    """`deliver_once.Target`. Used by one thread.

    Parameters
    ----------
    sink_id : str
        An id of `core.queue.sink_ids`, of a sink that keeps positions.
    heed_ingress : bool
        Whether the sink writes nothing while ingress is disabled.
    """

    def __init__(self, queue: Queue, sink_id: str, heed_ingress: bool = True) -> None:
        self.what = f"queue {queue.name!r}"
        self.queue, self._producer = queue, Producer(queue)
        self._manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
        self._sink_id, self._heed_ingress = sink_id, heed_ingress
        self._last = -1  # the number of the last batch that is in
        self._positions: Mapping[str, int] = {}
        self._stale = 0  # how often files were too old

    def begin(self) -> None:
        """Called before each micro-batch."""
        self._stale = 0

    def refresh(self) -> None:
        """Find the last batch of the sink, and finish it.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
            If the queue does not exist any more, or its replica took over.
        CorruptTableError
            If the manifest that has the positions is gone.
        """
        self._producer.refresh()
        while (name := self._last_name()) is not None and name.batch_id != self._last:
            try:
                manifest = self._producer.finish(BatchRecord(self._sink_id, name.batch_id))
            except SinkAheadError:  # another consumer has gone on
                if self._last_name() == name:
                    raise self._lost() from None
                continue
            if manifest is not None:
                self._last, self._positions = name.batch_id, manifest.positions
            elif self._last_name() == name:
                with contextlib.suppress(FileMissing, SinkAheadError):  # another consumer has gone on
                    return self._go_on_from_before(name)
        if name is None and (self._last >= 0 or self._lacks_manifest()):
            self._producer.refresh()  # raises if the queue was deleted meanwhile
            raise self._lost()

    def _go_on_from_before(self, void: ManifestName) -> None:
        """Nothing of the last batch is in, and its files are gone: the next commit writes the batch again."""
        record = BatchRecord(self._sink_id, void.batch_id)
        earlier = Batch(self.queue, record, self.queue.every_table).earlier()
        if earlier is not None:
            self._last, self._positions = earlier.name.batch_id, earlier.positions
        elif (
            self._last >= 0
            or void.batch_id > next_batch(-1, len(self.queue.state.former))  # there was a batch before
            or self._producer.was_begun(BatchRecord(self._sink_id, 0))
        ):
            raise self._lost()

    def recorded(self, app: str) -> int | None:
        return self._positions.get(app)

    @property
    def positions(self) -> Mapping[str, int]:
        """All positions, as of the last refresh."""
        return self._positions

    def prepare(self, files: Callable[[], Sequence[NewFile]], messages: Callable[[], int] | None) -> Prepared:
        """Write the files of the rows, or count the rows if the queue now discards messages; with None it must not discard these.

        Raises
        ------
        IngressDisabledError, ClockSkewError
        """
        return self._producer.prepare(files, messages, self._heed_ingress)

    def are_fit(self, files: Sequence[Prepared]) -> bool:
        """Whether prepared files may still be committed: maintenance deletes files that nothing names, and ingress may have changed.

        Raises
        ------
        CommitFailedError
            If writing was too slow several times.
        """
        stale = [prepared for prepared in files if self._producer.is_stale(prepared)]
        if stale:
            self._stale += 1
            check_rewrites(self.queue, self._stale, stale[0].age)
        return not stale and (not self._heed_ingress or all(map(self._producer.is_as_ingress_is, files)))

    def commit(self, files: Sequence[Prepared], transactions: Mapping[str, int]) -> None:
        """Append the next batch, with its positions.

        Raises
        ------
        Conflict
            If another consumer was faster.
        """
        (prepared,) = files
        positions = {**self._positions, **transactions}
        batch_id = next_batch(self._last, len(self.queue.state.former))
        try:
            is_own = self._producer.add(BatchRecord(self._sink_id, batch_id), prepared, positions)
        except SinkAheadError:
            raise Conflict from None
        if not is_own:
            raise Conflict
        self._last, self._positions = batch_id, positions

    def discard(self, files: Sequence[Prepared]) -> None:
        """Do nothing: maintenance deletes the files."""

    def _last_name(self) -> ManifestName | None:
        return _last_name(self.queue, self._manifests, self._sink_id)

    def _lost(self) -> CorruptTableError:
        return CorruptTableError(
            f"the last manifest of sink {self._sink_id!r} in {self._manifests.folder} of {self.queue.store.uri} is missing: this manifest says which "
            "messages are in the queue. Restore it from a backup",
            queue=self.queue.name,
            sink_id=self._sink_id,
        )

    def _lacks_manifest(self) -> bool:
        was_begun = self._producer.was_begun(BatchRecord(self._sink_id, 0))
        return was_begun and self._last_name() is None  # else another consumer has begun just now


def read_positions(queue: Queue, sink_id: str) -> Mapping[str, int]:
    """The positions of a sink as they are now, even if its last batch is not finished yet."""
    manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
    while (name := _last_name(queue, manifests, sink_id)) is not None:
        batch = Batch(queue, BatchRecord(sink_id, name.batch_id), queue.every_table)
        with contextlib.suppress(FileMissing, SinkAheadError):  # the sink has gone on
            found = batch.find() or batch.begun or batch.earlier()
            if not batch.is_in:
                return {} if found is None else found.positions
    return {}


def _last_name(queue: Queue, manifests: Manifests, sink_id: str) -> ManifestName | None:
    """The last manifest of a sink; None if it has none with valid positions."""
    while (name := max(manifests.of_sink(sink_id), default=None)) is not None:
        if not is_of_primary(queue, name):
            return name
        with contextlib.suppress(FileMissing):  # the sink has gone on
            return name if has_valid_positions(queue, manifests.read(name)) else None
    return None
