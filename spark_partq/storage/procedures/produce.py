"""A writer's side of the protocol: exactly once, through changes of the partition map (Q5, S5) and of ingress (S3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile, in_under
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import STUCK_SINK
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.await_map import await_map, await_unfenced
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.ingress import ingress_disabled
from spark_partq.storage.procedures.missing_stuck import write_missing
from spark_partq.storage.procedures.place import place_again, place_unnamed_again
from spark_partq.storage.procedures.prepared import Prepared, Result, by_partition
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.rewrites import check_rewrites
from spark_partq.storage.queue.clock import ComparedClock
from spark_partq.storage.queue.file_age import FileAge, FilesTooOld
from spark_partq.storage.queue.handle import Queue, check_usable, last_batches
from spark_partq.storage.queue.partition_table import Fenced, PartitionTable, Sealed

# A manifest that exists only in memory.
_NO_MANIFEST = Manifest(ManifestName("", 0, 0), None, 0, 0)

_log = logging.getLogger("spark_partq")


class Producer:
    """Writes batches into one queue. Used by one thread."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked_replicas = False
        self._clock = ComparedClock(queue.store, queue.name, lambda: queue.state.settings.max_clock_skew_ms)
        self._removed_at = -1  # revision of the queue at which its removed tables were last refreshed

    def refresh(self) -> None:
        """Read what is new in the queue, before anything is written.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
            If the queue was deleted, even if it was created again since; if its replica took over; or if it is a replica.
        """
        control = self._queue.control
        control.refresh(sure=True)
        check_usable(control)
        check_primary(self._queue, opening=not self._asked_replicas)
        self._asked_replicas = True

    def write(
        self,
        record: BatchRecord | None,
        files: Callable[[], Sequence[NewFile]],
        messages: Callable[[], int],
        heed_ingress: bool = True,
    ) -> int:
        """Append a batch, after `refresh`, and return how many messages this call added.

        Once the files are written and the batch is durable, the batch consists of these files: whichever process writes it again, and
        whatever `files` would write then.

        Parameters
        ----------
        record : BatchRecord, optional
            Which batch it is. None: every call adds the rows.
        files : function
            Writes files of the rows, placed by the map in force. Not called if the batch is durable; else perhaps several times.
        messages : function
            Counts the rows.

        Raises
        ------
        SinkAheadError
            If the sink is further, or another query writes with this sink's id. The sink may also get further during this call, if another
            process of the sink goes on with the batch. Then the part that this call added is in the queue, and is not counted.
        IngressDisabledError
            Before anything is written.
        ScalingInProgressError
            If the next partition map does not come into force.
        CommitFailedError
            If writing takes so long, several times, that maintenance may delete the files; or if files of the batch are missing.
        ClockSkewError
            If this machine's clock, which dates the messages, differs too much from the store's clock.
        """
        batch = None if record is None else self._batch(record)
        found = batch.find() if batch is not None else None
        if batch is not None and batch.is_in:
            return 0
        if found is not None:
            return self._finish(Prepared(found), batch)
        placed = self._begin(batch, files, messages, heed_ingress)
        return 0 if placed is None else self._finish(placed, batch)

    def write_missing(self, record: BatchRecord, files: Callable[[], Sequence[NewFile]]) -> int:
        """Append what is missing of a batch though the sink is further; `files` finds it by the tables alone. Returns how many messages were added."""
        added, rewrites = 0, 0
        while (placed := self._durable(None, lambda: self._fresh(files, heed_ingress=False), {})) is not None:
            results = self._commit(placed, record, None, ())
            added += sum(result.rows for result in results)
            if all(result.is_in for result in results):
                break
            self._await_unfenced(results)
            if any(result.sealed for result in results):
                await_map(self._queue, placed.manifest.generation)
            elif any(result.too_old for result in results):
                rewrites += 1
                check_rewrites(self._queue, rewrites, placed.age)
        return added

    # ---- in steps, for a sink that keeps positions of a group
    def prepare(
        self, files: Callable[[], Sequence[NewFile]], messages: Callable[[], int] | None, heed_ingress: bool = True
    ) -> Prepared:
        """Write the files of a batch, or count the messages if the queue discards them. `add` then makes the batch durable.

        Parameters
        ----------
        messages : function, optional
            None: the messages may not be discarded.

        Raises
        ------
        IngressDisabledError, ClockSkewError
        """
        placed = self._durable(None, lambda: self._fresh(files, heed_ingress), {})
        return placed or Prepared(self._discarded(messages))

    def is_stale(self, prepared: Prepared) -> bool:
        """Whether maintenance may delete the files before they are durable. Then they must be written again."""
        age = prepared.age
        return age is not None and self._clock.is_over(age)

    def is_as_ingress_is(self, prepared: Prepared) -> bool:
        """Whether ingress still is as it was for this batch (stored or discarded), as of the last refresh."""
        return self._queue.state.ingress == (prepared.manifest.discarded is None)

    def add(self, record: BatchRecord, prepared: Prepared, positions: Mapping[str, int]) -> bool:
        """Append prepared files as a batch with these positions. Returns False if another batch of that record exists, or the manifest is void.

        As of the last refresh, the batch before is in.

        Raises
        ------
        SinkAheadError
            If the sink is further.
        ScalingInProgressError, CommitFailedError, ClockSkewError
            As `write`.
        """
        batch = self._batch(record)
        tables = map(self._queue.table, self._queue.state.all_partitions)
        follows = last_batches(tables, record.sink_id)
        manifest, is_own = batch.put(replace(prepared.manifest, positions=positions, follows=follows))
        in_time = prepared.age is None or not batch.may_be_late(prepared.age)
        if is_own and not in_time:
            is_own = (found := batch.find()) is not None and found.name == manifest.name
        if is_own:
            self._finish(Prepared(manifest, prepared.age.of_named() if prepared.age and in_time else None), batch)
        return is_own

    def finish(self, record: BatchRecord, by_another: bool = False) -> Manifest | None:
        """Place a batch that is durable, and return it. None if the batch is in and forgotten, was never begun, or has a void manifest.

        Parameters
        ----------
        by_another : bool
            Do not place the batch if its manifest does not hold, as its sink writes it again.
        Raises
        ------
        SinkAheadError, ScalingInProgressError, CommitFailedError, ClockSkewError
            As `add`.
        """
        batch = self._batch(record)
        found = batch.find()
        if found is None and batch.begun is not None and not by_another:
            found = self._begin_again(batch, batch.begun)
        if found is not None:
            self._finish(Prepared(found), batch)
        return found

    def _begin_again(self, batch: Batch, begun: Manifest) -> Manifest:
        """Place a batch by the map in force. Nothing of the batch is in, and the map of its manifest was lost with the primary."""
        if begun.discarded is None:
            return self._copy(begun, batch, {}, begun.files).manifest
        state = self._queue.state
        known = replace(begun, generation=state.generation, partition_count=state.partition_count, placed={})
        return batch.put(known)[0]

    def was_begun(self, record: BatchRecord) -> bool:
        """Whether a table records a batch of the sink, even if there is no manifest."""
        last = self._queue.control.last_discarded(record.sink_id)
        return max([last, *(table.recorded(record.app) for table in self._tables())]) >= 0

    def _batch(self, record: BatchRecord) -> Batch:
        return Batch(self._queue, record, self._tables, self._clock)

    # ---- making it durable
    def _begin(
        self,
        batch: Batch | None,
        files: Callable[[], Sequence[NewFile]],
        messages: Callable[[], int],
        heed_ingress: bool,
    ) -> Prepared | None:
        """Write the batch and make it durable. None if it is discarded and has no identity."""
        placed = self._durable(batch, lambda: self._fresh(files, heed_ingress), {})
        if placed is not None:
            return placed
        discarded = self._discarded(messages)
        if batch is None:
            self._discard(discarded.discarded or 0, None)
            return None
        # The decision is durable, as files are. A process that writes the batch again, once ingress is enabled, neither stores nor counts it.
        return Prepared(batch.put(discarded)[0])

    def _fresh(self, files: Callable[[], Sequence[NewFile]], heed_ingress: bool) -> Sequence[NewFile] | None:
        """Write files; None if the queue takes no messages."""
        queue = self._queue
        with queue.explained():
            fresh = files() if queue.state.ingress or not heed_ingress else None
        queue.control.refresh(sure=True)  # that may have taken long
        check_usable(queue.control)
        return fresh if queue.state.ingress or not heed_ingress else None

    def _discarded(self, messages: Callable[[], int] | None) -> Manifest:
        """The manifest of a batch that is discarded, as ingress is disabled (S3)."""
        queue = self._queue
        rejects = queue.state.settings.reject_to_sender == "including_when_shutdown"
        # Messages must be in a dead-message queue if the group's history says so.
        if messages is None or rejects or queue.state.holds_dead_messages:
            raise ingress_disabled(queue.name)
        state = queue.state
        return Manifest(_NO_MANIFEST.name, None, state.generation, state.partition_count, discarded=messages())

    def _durable(
        self,
        batch: Batch | None,
        write: Callable[[], Sequence[NewFile] | None],
        placed: Mapping[int, tuple[int, ...]],
        before: Manifest = _NO_MANIFEST,  # of the batch
    ) -> Prepared | None:
        """Write files and put the batch's next manifest, which names them, unless another process has put one. None if no files were written.

        Maintenance may delete files that nothing names at some age. Files near that age are written again instead. `write` refreshes the
        queue at its end, as the queue's grace may have been lowered meanwhile.
        """
        queue, runtime = self._queue, self._queue.store.runtime
        rewrites = 0
        while True:
            began_s, halts = runtime.monotonic_s(), self._clock.halts
            state = queue.state  # the files are placed by its map
            files = write()
            if files is None:
                return None
            if files and self._clock.is_due():
                paths = [f"{queue.table(file.partition).folder}/{file.path}" for file in files]
                self._clock.compare(paths, began_s, runtime.monotonic_s())
            grace_ms = self._grace_ms(state)
            age = FileAge(began_s, grace_ms, halts)
            made = replace(before, generation=state.generation, partition_count=state.partition_count)
            made = replace(made, files=tuple(files), placed=placed, late_after_ms=grace_ms * 3 // 4)
            if batch is None:
                return Prepared(made, age)
            if not age.is_over(runtime):
                manifest, is_own = batch.put(made)
                if not is_own or not batch.may_be_late(age):
                    return Prepared(manifest, age.of_named() if is_own else None)
                if (found := batch.find()) is not None:
                    return Prepared(found)
            rewrites += 1
            check_rewrites(self._queue, rewrites, age)

    def _grace_ms(self, began: QueueState) -> int:
        """How long files are kept that were begun in that state: maintenance heeds the grace of that state, or of the last refresh."""
        return min(began.settings.vacuum_grace_ms, self._queue.state.settings.vacuum_grace_ms)

    # ---- placing it
    def _finish(self, placed: Prepared, batch: Batch | None) -> int:
        """Commit a durable batch to each partition that lacks its part. Returns how many messages this call added."""
        added, rewrites = 0, 0
        done: set[int] = set()  # partitions that hold their part
        while True:
            manifest = placed.manifest
            if manifest.discarded is not None and batch is not None:
                self._discard(manifest.discarded, batch.record)
                batch.forget_earlier()
                return added
            if batch is not None and not placed.is_own:
                if self._clock.is_due():  # files that were found were written earlier
                    batch.compare(self._clock)
                recorded = batch.recorded()
                done = set(recorded.get(manifest.generation, ()))
                batch.check_files(manifest.left(recorded), manifest.generation)
            record, others = None if batch is None else batch.record, None if placed.is_own else batch
            results = self._commit(placed, record, others, done)
            added += sum(result.rows for result in results)
            done |= {result.partition for result in results if result.is_in}
            if all(result.is_in for result in results):
                if batch is not None:
                    batch.forget_earlier()
                return added
            self._await_unfenced(results)
            if any(result.sealed for result in results):
                placed = self._place_again(placed, batch, done)
                done = set()
            elif batch is not None and any(result.too_old for result in results):
                found = batch.find_in_time()
                if found is None:
                    return added  # another process has placed it
                placed = Prepared(found)
            elif any(result.too_old for result in results):
                rewrites += 1
                check_rewrites(self._queue, rewrites, placed.age)
                placed = self._copy(placed.manifest, batch, {}, placed.manifest.left({manifest.generation: done}))
                done = set()

    def _await_unfenced(self, results: Sequence[Result]) -> None:
        if fenced := [result.partition for result in results if result.fenced]:
            await_unfenced(self._queue, fenced)

    def _commit(
        self, placed: Prepared, record: BatchRecord | None, found: Batch | None, done: Collection[int]
    ) -> list[Result]:
        """Commit the files of each partition, except those in `done`. `found`: the batch, if another process has put the manifest."""
        manifest = placed.manifest
        was_forgotten = None if found is None else partial(found.was_forgotten, manifest)

        def commit(part: list[NewFile]) -> Result:
            number = part[0].partition
            try:
                first = self._queue.table(number).append(
                    part, record, manifest.generation, placed.age, self._clock.time_us, was_forgotten
                )
            except FilesTooOld:
                return Result(number, too_old=True)
            except Fenced:
                return Result(number, fenced=True)
            except Sealed:
                return Result(number, sealed=True)
            return Result(number, 0 if first is None else sum(file.rows for file in part), is_in=True)

        with self._queue.explained():
            return self._queue.store.map(commit, by_partition(f for f in manifest.files if f.partition not in done))

    def _place_again(self, placed: Prepared, batch: Batch | None, done: set[int]) -> Prepared:
        """The map has changed: place the files that are not in again, by the map that is in force now."""
        manifest = placed.manifest
        await_map(self._queue, manifest.generation)
        recorded: Mapping[int, Collection[int]] = {manifest.generation: done}
        if batch is not None:
            recorded = batch.recorded()  # of generations that have ended: the same for every process of the sink
        return self._copy(manifest, batch, in_under(recorded, self._queue.state.generation), manifest.left(recorded))

    def _copy(
        self,
        manifest: Manifest,
        batch: Batch | None,
        in_earlier: Mapping[int, tuple[int, ...]],
        left: Sequence[NewFile],
    ) -> Prepared:
        if batch is not None:
            batch.check_files(left, manifest.generation)

        def write() -> Sequence[NewFile]:
            if batch is not None and batch.record.sink_id == STUCK_SINK:
                files = write_missing(self._queue, batch.record)  # by its offset, even a message without a key
            else:
                files = (place_unnamed_again if batch is None else place_again)(self._queue, left)
            self._queue.control.refresh(sure=True)
            return files

        placed = self._durable(batch, write, in_earlier, manifest)
        if placed is None:
            raise RuntimeError("files are placed again whether the queue takes messages or not")
        return placed

    def _discard(self, count: int, record: BatchRecord | None) -> None:
        """Count a batch as discarded, once if it has an identity (S3)."""
        queue = self._queue
        batch = None if record is None else (record.sink_id, record.batch_id)
        queue.control.discard(count, batch, lambda: check_primary(queue))  # if a replica took over, nobody sees it
        _log.warning("ingress of queue %s is disabled: %s messages were discarded", queue.name, count)

    def _tables(self) -> list[PartitionTable]:
        """Every table that the queue ever had, refreshed. Tables of removed partitions do not change any more."""
        queue = self._queue
        queue.refresh()
        tables = [queue.table(number) for number in queue.state.all_partitions]
        if self._removed_at != queue.state.revision:
            removed = [table for table in tables if table.partition not in queue.state.partition_numbers]
            with queue.explained():
                queue.store.map(lambda table: table.refresh(), removed)
            self._removed_at = queue.state.revision
        return tables
