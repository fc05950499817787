"""A writer's side of the protocol: exactly once, through changes of the partition map (Q5, S5) and of ingress (S3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.errors import CommitFailedError, IngressDisabledError, SinkAheadError
from spark_partq.storage.procedures.await_map import await_map, await_unfenced
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.clock import ComparedClock
from spark_partq.storage.queue.handle import Queue, check_usable
from spark_partq.storage.queue.partition_table import (
    AnotherQuery,
    BatchRecord,
    Fenced,
    FilesTooOld,
    NewFile,
    PartitionTable,
    Sealed,
)

Written = Mapping[int, Collection[int]]  # generation of the map -> the partitions that hold a batch under it

# So often files that became too old before they were committed are written again.
MAX_REWRITES = 3

_log = logging.getLogger("spark_partq")


class Producer:
    """Writes batches into one queue. Used by one thread."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked_replicas = False
        self._clock = ComparedClock(queue.store, queue.name, queue.state.settings.max_clock_skew_ms)
        self._removed_at = -1  # revision of the queue as of which its removed tables were refreshed

    def refresh(self) -> None:
        """Read what is new of the queue, before anything is written.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
            If it was deleted, also if it was made anew since, its replica took over, or it is one.
        """
        control = self._queue.control
        control.refresh(sure=True)
        check_usable(control)
        check_primary(self._queue, opening=not self._asked_replicas)
        self._asked_replicas = True

    def write(
        self,
        record: BatchRecord | None,
        files: Callable[[Written], Sequence[NewFile]],
        messages: Callable[[Written], int],
        heed_ingress: bool = True,
    ) -> int:
        """Append a batch, after `refresh`, and return how many messages were added.

        Parameters
        ----------
        record : BatchRecord, optional
            Which batch it is; None adds the rows at every call.
        files : function
            Writes files of the rows that the partitions given do not hold, placed by the map in force.
        messages : function
            Counts those rows.

        Raises
        ------
        SinkAheadError, IngressDisabledError
            Before anything is written; SinkAheadError also at the commit, if another query with this sink's id writes at the same time.
        ScalingInProgressError
            If the next partition map does not come into force.
        CommitFailedError
            If writing takes so long, again and again, that maintenance may delete the files.
        ClockSkewError
            If this machine's clock, which dates the messages, is not about the store's.
        """
        queue = self._queue
        written = self._written_before(record) if record else {}
        grace_s = queue.state.settings.vacuum_grace_ms / 1000
        begun, added = not heed_ingress or bool(written), 0  # what has begun is ended: a batch is in as a whole
        rewrites = 0
        while True:
            started = queue.store.runtime.monotonic_s()
            generation = queue.state.generation
            if queue.state.ingress or begun:
                with queue.explained():
                    fresh = files(written)
                self._compare_clocks(fresh, started)
                queue.control.refresh(sure=True)  # that may have taken long
            if not queue.state.ingress and not begun:
                self._reject(record, messages, written)
                return added
            # Files near the age at which maintenance may delete them are written again instead.
            results = self._commit(fresh, record, generation, started + grace_s / 2)
            begun = begun or any(r.is_in for r in results)
            added += sum(r.rows for r in results)
            written.setdefault(generation, set()).update(r.partition for r in results if r.is_in)
            if all(r.is_in for r in results):
                return added
            fenced = [r.partition for r in results if r.fenced]
            if fenced:
                await_unfenced(queue, fenced)
            if any(r.sealed for r in results):
                self._await_map(generation)
                if record:  # another process of this sink may have written some
                    written = self._recorded(record)
            if any(r.too_old for r in results):
                rewrites += 1
                self._check_rewrites(rewrites, queue.store.runtime.monotonic_s() - started)

    def _commit(
        self, files: Sequence[NewFile], record: BatchRecord | None, generation: int, deadline: float
    ) -> list[_Result]:
        """Commit each partition's files, unless the map has changed or the deadline has passed."""

        def commit(part: list[NewFile]) -> _Result:
            number = part[0].partition
            try:
                first = self._queue.table(number).append(part, record, generation, deadline, self._clock.time_us)
            except FilesTooOld:
                return _Result(number, too_old=True)
            except Fenced:
                return _Result(number, fenced=True)
            except Sealed:
                return _Result(number, sealed=True)
            except AnotherQuery as error:
                raise self._ahead(error.record, self._queue.table(number)) from None
            return _Result(number, 0 if first is None else sum(f.rows for f in part), is_in=True)

        with self._queue.explained():
            return self._queue.store.map(commit, _by_partition(files))

    def _compare_clocks(self, files: Sequence[NewFile], began_s: float) -> None:
        """Now and then ask the store when it was that a file was written, which is one request."""
        if files and self._clock.is_due():
            path = f"{self._queue.table(files[-1].partition).folder}/{files[-1].path}"
            self._clock.compare(path, began_s, self._queue.store.runtime.monotonic_s())

    def _reject(self, record: BatchRecord | None, messages: Callable[[Written], int], written: Written) -> None:
        """Ingress is disabled: refuse the batch, or discard and count it, as the queue's setting says (S3)."""
        queue = self._queue
        if queue.state.settings.reject_to_sender == "including_when_shutdown":
            raise IngressDisabledError(
                f"queue {queue.name!r} takes no messages now (its ingress is disabled); nothing of this batch was written. Start "
                "the query again once ingress is enabled: the batch is then written",
                queue=queue.name,
            )
        count = messages(written)
        queue.control.discard(count, (record.sink_id, record.batch_id) if record else None)
        _log.warning("ingress of queue %s is disabled: %s messages were discarded", queue.name, count)

    def _await_map(self, generation: int) -> None:
        await_map(self._queue, generation)

    def _check_rewrites(self, rewrites: int, took_s: float) -> None:
        """Files became too old before they were committed: they are written again, but not again and again."""
        queue = self._queue
        grace_s = queue.state.settings.vacuum_grace_ms / 1000
        what = (
            f"writing a batch to queue {queue.name!r} took {took_s:.0f} s, and files that no log names may be deleted after "
            f"vacuum_grace_ms={queue.state.settings.vacuum_grace_ms}, so they must be committed within half of that, {grace_s / 2:.0f} s"
        )
        if rewrites > MAX_REWRITES:
            raise CommitFailedError(
                f"{what}; they were written {rewrites} times. Nothing of the batch is lost: the query writes it when it is started again. "
                "Make the batches smaller, or use a queue with a longer vacuum_grace_ms",
                queue=queue.name,
                vacuum_grace_ms=queue.state.settings.vacuum_grace_ms,
                took_s=round(took_s),
            )
        _log.warning("%s; the files are written again (%s of %s times)", what, rewrites, MAX_REWRITES)

    # ---- what is in
    def _written_before(self, record: BatchRecord) -> dict[int, set[int]]:
        """By generation, the partitions that hold this batch: it is a replay.

        Raises
        ------
        SinkAheadError
            If the batch would be skipped although nobody can tell that it was written.
        """
        replay = False
        for table in self._tables():
            last = table.recorded(record.app)
            if last > record.batch_id:
                raise self._ahead(record, table)
            replay = replay or last == record.batch_id
        return self._recorded(record) if replay else {}

    def _ahead(self, record: BatchRecord, table: PartitionTable) -> SinkAheadError:
        last, other = table.recorded(record.app), table.has_another_query(record)
        return SinkAheadError(
            f"sink {record.sink_id!r} has already written batch {last} to queue {self._queue.name!r}, and batch {record.batch_id} of "
            f"{'another query' if other else 'an older position'} came now; it would be skipped. Continue with the sink's own "
            "checkpoint, or choose another sink_id for a new one",
            sink_id=record.sink_id,
            batch_id=record.batch_id,
            recorded=last,
            partition=table.partition,
        )

    def _recorded(self, record: BatchRecord) -> dict[int, set[int]]:
        """What the tables record of a batch under every generation so far: under an earlier one nobody writes any more.

        Raises
        ------
        SinkAheadError
            If another query wrote it.
        """
        tables = self._tables()
        for table in tables:
            if table.has_another_query(record):
                raise self._ahead(record, table)
        found = {
            g: {t.partition for t in tables if t.recorded(record.under(g)) >= record.batch_id}
            for g in range(self._queue.state.generation + 1)
        }
        return {g: partitions for g, partitions in found.items() if partitions}

    def _tables(self) -> list[PartitionTable]:
        """Every table that the queue ever had, refreshed. Those that were removed change no more."""
        queue = self._queue
        queue.refresh()
        tables = [queue.table(number) for number in queue.state.all_partitions]
        if self._removed_at != queue.state.revision:
            removed = [table for table in tables if table.partition not in queue.state.partition_numbers]
            with queue.explained():
                queue.store.map(lambda table: table.refresh(), removed)
            self._removed_at = queue.state.revision
        return tables


@dataclass(frozen=True)
class _Result:
    """What became of one partition's files."""

    partition: int
    rows: int = 0
    is_in: bool = False
    sealed: bool = False
    fenced: bool = False
    too_old: bool = False


def _by_partition(files: Iterable[NewFile]) -> list[list[NewFile]]:
    parts: dict[int, list[NewFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return [parts[p] for p in sorted(parts)]
