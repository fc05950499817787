"""A batch of a sink: what of it was made durable, and what the partitions record of it (Q5).

Four rules let any number of processes write a batch at once, even if each dies at any point:

- Manifests are read first, and the tables' records after them. So the records contain what a manifest says of the tables.
- A manifest is put only if none of its number exists. A process that finds another one goes on with that one.
- A batch's manifests are removed only once a later batch is in, which begins only when this batch is in as a whole. So the last one stays,
  and a process that puts a manifest and then lists them learns whether other processes are further.
- No process writes under generations of the map that have ended. So what the tables record under them, and with it the next manifest, is
  the same for every process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from spark_partq.core.errors import CommitFailedError, CorruptTableError, SinkAheadError, StoreUnavailableError
from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile, last_that_holds
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files import FileInfo, FileMissing
from spark_partq.storage.files.port import TEMPORARY
from spark_partq.storage.queue.clock import ComparedClock
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.handle import Queue, check_usable, last_batch, recorded_in
from spark_partq.storage.queue.manifests import Manifests, has_valid_positions, is_of_primary, is_void
from spark_partq.storage.queue.partition_table import PartitionTable


class Batch:
    """One batch of one sink. Used by one thread.

    Parameters
    ----------
    tables : function
        Every table that the queue ever had, refreshed.
    clock : ComparedClock, optional
        That of the producer that puts the batch's manifests.
    """

    def __init__(
        self,
        queue: Queue,
        record: BatchRecord,
        tables: Callable[[], Sequence[PartitionTable]],
        clock: ComparedClock | None = None,
    ) -> None:
        self.record = record
        self._queue, self._tables, self._clock = queue, tables, clock
        self._manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
        self.is_in = False  # the whole batch is in, and has no manifest any more
        self.begun: Manifest | None = None  # the last that is not void but does not hold, if nothing is in
        self._put_ns = 0  # when the manifest that this process put got its name, by the store
        self._next = 0  # the number of its next manifest
        self._earlier: list[ManifestName] = []  # of batches that are in

    def find(self) -> Manifest | None:
        """The manifest with which to go on. None if there is none: `is_in` tells whether the batch is in.

        Raises
        ------
        SinkAheadError
            If the sink is further, another query wrote this batch, or the batch had other messages.
        CorruptTableError, NewerStoreError
        """
        while True:
            names = self._names()
            try:
                manifests = [self._manifests.read(name) for name in names]
            except FileMissing:
                continue  # other processes have gone on
            for manifest in manifests:
                self._check_is_the_same(manifest)
            if manifests:
                self._queue.control.refresh()
            recorded = self.recorded()
            known = [m for m in manifests if not is_void(self._queue, m, names[m.name], recorded)]
            if len(known) < len(manifests) and self.recorded(sure=True) != recorded:
                continue  # files were committed meanwhile, and may have been removed since
            found = last_that_holds(known, self._queue.state.generations, recorded)
            if found is not None or not recorded:
                self.begun = known[-1] if known and found is None else None
                return found
            if names.keys() == self._names().keys():  # else the batch was begun after the first listing
                break
        if names:
            raise CorruptTableError(
                f"partitions of queue {self._queue.name!r} hold a part of batch {self.record.batch_id} of sink {self.record.sink_id!r} that "
                f"{self._manifests.path(max(names))} does not explain: it was edited. Restore it from a backup",
                queue=self._queue.name,
                sink_id=self.record.sink_id,
                batch_id=self.record.batch_id,
            )
        self.is_in = True
        return None

    def find_in_time(self) -> Manifest | None:
        """As `find`, of a batch that this process has made durable, and of which it does not know whether that was in time. None if it is in.

        Raises
        ------
        CommitFailedError
            If it was not: maintenance may have deleted the files.
        """
        found = self.find()
        if found is None and not self.is_in:
            raise CommitFailedError(
                f"the files of batch {self.record.batch_id} of sink {self.record.sink_id!r} are so old that maintenance may have deleted them: this "
                f"machine stood still, or its clock did. Nothing of the batch is in queue {self._queue.name!r}, and nothing is lost: the query writes "
                "it when it is started again",
                queue=self._queue.name,
                sink_id=self.record.sink_id,
                batch_id=self.record.batch_id,
            )
        return found

    def earlier(self) -> Manifest | None:
        """The manifest of the batch before, with the positions to go on from. None if it does not exist any more, or never did, or its
        positions are not valid.

        A pass that slept may have put the manifest after a promotion. If the batch is then not in as a whole, no process finishes it, and all
        positions are 0: its messages come again, and those that are in are there twice.

        Raises
        ------
        SinkAheadError
        FileMissing
            If the sink has gone on.
        """
        self._names()
        if not self._earlier:
            return None
        before = BatchRecord(self.record.sink_id, self._earlier[-1].batch_id)
        manifests = [self._manifests.read(name) for name in self._earlier if name.batch_id == before.batch_id]
        tables = self._tables()
        if last_batch(self._queue, tables, before.sink_id) > before.batch_id:  # a process that slept has put it
            return None
        recorded = recorded_in(self._queue, tables, before)
        found = last_that_holds(manifests, self._queue.state.generations, recorded)
        if found is None or not has_valid_positions(self._queue, found):
            return None
        if found.is_complete(recorded, self._queue.control.last_discarded(before.sink_id)):
            return found
        if not is_of_primary(self._queue, found.name):  # a table that had recorded the batch was put back
            return None
        return replace(found, positions=dict.fromkeys(found.positions, 0))

    def put(self, batch: Manifest) -> tuple[Manifest, bool]:
        """Make the batch durable, unless another process has. Returns the manifest with which to go on, and whether it is this one.

        Parameters
        ----------
        batch : Manifest
            The batch. Its name, and the query's id, are set here.

        Raises
        ------
        SinkAheadError, CorruptTableError, NewerStoreError
            As `find`.
        CommitFailedError
            If the queue is gone.
        """
        while True:
            name = ManifestName(self.record.sink_id, self.record.batch_id, self._next)
            record = self.record
            manifest = replace(batch, name=name, query_id=record.query_id, offsets_digest=record.offsets_digest)
            try:
                was_put = self._manifests.put(manifest)
            except FileMissing:
                raise self._no_queue() from None
            names = self._names()
            if was_put and max(names, default=None) == manifest.name:
                self._put_ns = names[manifest.name].named_ns
                return manifest, True
            found = self.find()
            if found is not None:
                return (manifest, True) if found == manifest else (found, False)
            if self.is_in or not names:
                raise self._no_queue()

    def may_be_late(self, age: FileAge) -> bool:
        """Whether the manifest that this process has just put may be void: by its own clock, or because this clock stood still.

        A late manifest was put at least a quarter of the grace later than this clock says.
        """
        if self._clock is None:
            return age.is_over(self._queue.store.runtime)
        self._clock.written(self._put_ns, age.grace_ms / 8)
        return self._clock.is_over(age)

    def recorded(self, sure: bool = False) -> dict[int, set[int]]:
        """For each generation of the map, the partitions that hold a part of the batch.

        Parameters
        ----------
        sure : bool
            Also if this process stood still for so long that logs were cleaned up behind what it had read.

        Raises
        ------
        SinkAheadError
        """
        tables, record = self._tables(), self.record
        if sure:
            with self._queue.explained():
                for table in tables:
                    table.refresh(sure=True)
        last = max((table.recorded(record.app) for table in tables), default=-1)
        if last > record.batch_id:
            raise self._ahead(last)
        return recorded_in(self._queue, tables, record)

    def was_forgotten(self, manifest: Manifest) -> bool:
        """Whether a manifest that was found is gone by now. It is removed once the whole batch is in, before any table forgets its part.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError
            If the manifest is gone with its queue.
        """
        if self._queue.store.files.info(self._manifests.path(manifest.name)) is not None:
            return False
        self._queue.control.refresh(sure=True)
        check_usable(self._queue.control)
        return True

    def check_files(self, files: Sequence[NewFile], generation: int) -> None:
        """Make sure that files still exist to be committed, if another process has written them, or this process long ago.

        Raises
        ------
        CommitFailedError, QueueNotFoundError, QueueNotReadyError
        """
        with self._queue.explained():
            for file in files:
                self._check_file(file, generation)

    def _check_file(self, file: NewFile, generation: int) -> None:
        queue, table = self._queue, self._queue.table(file.partition)
        if queue.store.files.info(f"{table.folder}/{file.path}") is not None:
            return
        table.refresh()
        if not table.has(self.record, generation):  # else its part was committed, and read, meanwhile
            if (found := self.find()) is None or found.generation != generation:
                raise CommitFailedError(
                    f"another process went on with batch {self.record.batch_id} of sink {self.record.sink_id!r} to queue {queue.name!r} while this one "
                    "stood still. Nothing is lost: start the query again, and it goes on",
                    queue=queue.name,
                    sink_id=self.record.sink_id,
                    batch_id=self.record.batch_id,
                )
            raise CommitFailedError(
                f"batch {self.record.batch_id} of sink {self.record.sink_id!r} was begun, and {table.folder}/{file.path} of "
                f"{queue.store.uri}, which is not in the queue yet, is missing. Restore it from a backup, then start the query again",
                queue=queue.name,
                sink_id=self.record.sink_id,
                batch_id=self.record.batch_id,
                path=f"{table.folder}/{file.path}",
            )

    def compare(self, clock: ComparedClock) -> None:
        """Compare this machine's clock with the store's clock: a file is written for this, and deleted."""
        runtime, files = self._queue.store.runtime, self._queue.store.files
        path, began_s = f"{self._manifests.folder}/.{runtime.new_uuid().hex}{TEMPORARY}", runtime.monotonic_s()
        try:
            files.put(path, b"")
        except FileMissing:
            raise self._no_queue() from None
        clock.compare([path], began_s, runtime.monotonic_s())
        files.delete(path)

    def _check_is_the_same(self, manifest: Manifest) -> None:
        record = self.record
        if manifest.query_id != record.query_id:
            raise self._ahead(record.batch_id, "another query")
        # Spark repeats a micro-batch as its checkpoint has planned it. An older checkpoint plans other messages under the same number.
        if len({manifest.offsets_digest, record.offsets_digest} - {None}) > 1:
            raise self._ahead(record.batch_id, "other messages")

    def _names(self) -> dict[ManifestName, FileInfo]:
        """The batch's manifests, in order; raises if there is one of a later batch."""
        names = self._manifests.of_sink(self.record.sink_id)
        if names and (last := max(names).batch_id) > self.record.batch_id:
            raise self._ahead(last)
        self._earlier = [name for name in names if name.batch_id < self.record.batch_id]
        own = {name: info for name, info in names.items() if name.batch_id == self.record.batch_id}
        self._next = max(own).number + 1 if own else 0
        return own

    def forget_earlier(self) -> None:
        """Remove the manifests of earlier batches, once this one is in. If this process may not delete them, maintenance does."""
        with contextlib.suppress(StoreUnavailableError):
            self._manifests.delete(self._earlier)

    def _no_queue(self) -> CommitFailedError:
        """The error if the folder of manifests is gone. The usual reason is that the queue is being deleted; then the refresh raises another error."""
        self._queue.control.refresh(sure=True)
        return CommitFailedError(
            f"the folder of manifests {self._manifests.folder} in {self._queue.store.uri} is gone, or other programs empty it; nothing of this "
            "batch was written. Check that the queue is still there: spark-partq doctor",
            queue=self._queue.name,
        )

    def _ahead(self, last: int, who: str = "an older position") -> SinkAheadError:
        record = self.record
        return SinkAheadError(
            f"sink {record.sink_id!r} has already written batch {last} to queue {self._queue.name!r}, and batch {record.batch_id} of "
            f"{who} came now; it would be skipped. Continue with the sink's own checkpoint. If that is lost, or was put back, choose a new one and another "
            "sink_id, and let the source begin behind the messages that the queue has: what the source gives again is there twice",
            sink_id=record.sink_id,
            batch_id=record.batch_id,
            recorded=last,
        )
