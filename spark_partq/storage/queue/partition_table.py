"""The table of one partition: an ordered log of messages (Q1, Q4, Q5).

Each data file carries two partition values, ``base_offset`` and ``_enqueued_at``, and a column ``_row`` that counts 0, 1, 2…;
the offset of a message is ``base_offset + _row`` for any Delta reader. What must outlive the files, which retention
removes, is kept as application transactions of the log and changes in the same commit:

    partq:next               the next offset
    partq:clock              the last `_enqueued_at`, microseconds
    partq:sink/<id>/<map>    the last batch of a sink that is in, under a generation of the partition map
    partq:sink/<id>          the same, under whatever generation
    partq:sealed             the last generation under which the table was sealed
    partq:cut/<map>          the next offset at that moment
    partq:fenced             the number of the fact with which the queue's replica began to take over
    partq:unfenced           the fences up to this number are taken back
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.payload.schema import Struct
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import is_fenced, may_append
from spark_partq.core.queue.records import FORGOTTEN, BatchRecord, Record, expired_records, may_be_forgotten
from spark_partq.storage.log import Add, DeltaLog, FileChanges, Remove, TableSpec, make, retrying, take_back, vacuum
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.file_index import (
    FileIndex,
    GrowingIndex,
    Ints,
    IrregularFiles,
    in_place_of,
    partition_values,
)
from spark_partq.storage.queue.table_spec import as_asked, table_schema, table_settings
from spark_partq.storage.runtime import derived_id
from spark_partq.storage.store import Store, partition_folder

# Spark's monotonically_increasing_id: the number of the input partition above, the row's number below
SOURCE_SHIFT = 33

NEXT = "partq:next"
CLOCK = "partq:clock"
SEALED = "partq:sealed"
FENCED, UNFENCED = "partq:fenced", "partq:unfenced"
_NO_CHANGES = FileChanges()
Wanted = tuple[int, Struct]  # the grace in milliseconds, and the payload
_MOST_REMOVES = 100_000  # of one commit, whose entry has some 250 bytes of each


class Sealed(Exception):
    """The partition map under which rows were placed is not in force any more, or is about to end."""


class Fenced(Exception):
    """The queue's replica takes over: the table takes neither rows nor seals."""


class PartitionTable:
    """Reads and appends to one partition. Not safe for use by several threads at once.

    Parameters
    ----------
    queue_id : str
        Refuse the table of another queue, which has been created again under the name; empty takes any.
    """

    def __init__(self, store: Store, queue: str, partition: int, payload: Struct, queue_id: str = "") -> None:
        self.queue, self.partition = queue, partition
        self.folder = partition_folder(queue, partition)
        self.store = store
        self._id = derived_id(f"{queue_id}/{partition}") if queue_id else ""
        what = f"partition {partition} of queue {queue!r}"
        self._log = DeltaLog(store, self.folder, what, expired=expired_records, table_id=self._id)
        self._schema = table_schema(payload)
        self._files: GrowingIndex | None = None
        self._index: FileIndex | None = None  # of `_files`
        self.segment_times: dict[str, tuple[Ints, Ints]] = {}  # by file, as `starting.times_in` read them

    def exists(self) -> bool:
        return self._log.exists()

    def create(self, vacuum_grace_ms: int = 86_400_000, check: Callable[[], object] = lambda: None) -> bool:
        """Make the table, and return whether it was not there. What is removed from it is remembered until its file may be deleted.

        Parameters
        ----------
        check : function
            Raises if the queue was deleted. Asked before an empty table of another queue is removed.
        """
        spec = TableSpec(self._schema, ("base_offset", "_enqueued_at"), table_settings(vacuum_grace_ms))
        return make(self._log, self._id, spec, check)

    def take_back(self) -> None:
        """Remove the table, which was just made, as its queue was deleted."""
        take_back(self._log.log, self._id)

    def follow(self, known: Wanted, newest: Callable[[], Wanted]) -> None:
        """Remember what is removed from now on for as long as the grace asks for, and let every Delta reader see columns that were added.

        Parameters
        ----------
        known : tuple
            The grace in milliseconds, and the payload, as the caller knows them.
        newest : function
            Asked for them if the table has others: a process that stood still may know what was asked for before.
        """

        def attempt() -> None:
            self.refresh()
            now = self._log.snapshot.metadata
            if as_asked(now, *known) != now and (asked := as_asked(now, *newest())) != now:
                self._log.commit(operation="SET TBLPROPERTIES", metadata=asked)

        retrying(self.store.runtime, attempt, self._log.what)

    def refresh(self, sure: bool = False) -> bool:
        """As `DeltaLog.refresh`."""
        return self._log.refresh(sure)

    def may_have_changed(self) -> bool:
        """False only if `refresh` would find nothing; asks the file system about one file at most."""
        return self._log.may_have_changed()

    @property
    def next_offset(self) -> int:
        """The offset that the next message will get, as of the last refresh."""
        return self.recorded(NEXT, 0)

    @property
    def first_offset(self) -> int:
        """The offset of the first message that is still there; `next_offset` if there is none."""
        index = self.index
        return int(index.base[0]) if len(index) else self.next_offset

    @property
    def index(self) -> FileIndex:
        """The live files, checked to be dense.

        Raises
        ------
        CorruptTableError
            If a file was committed by something else than this protocol.
        """
        try:
            changes = self._log.take_changes()
            if self._index is not None and self._files is not None and changes == _NO_CHANGES:
                self._files.check_end(self.next_offset)
                return self._index
            rewritten = any(add.tags for add in changes.added)  # a file in the midst, which is seldom
            if self._files is None or changes.reloaded or rewritten:
                changed = GrowingIndex(changes.added if changes.reloaded else self._log.snapshot.files.values())
            else:
                changed = self._files
                changed.apply(changes.added, changes.removed)
            changed.check_end(self.next_offset)
        except BaseException as error:
            self._files = self._index = None  # begins again with all files
            if isinstance(error, IrregularFiles):
                raise self._corrupt(str(error)) from None
            raise
        self._files, self._index = changed, changed.view()
        return self._index

    def recorded(self, app: str, default: int = -1) -> int:
        return self._log.recorded(app, default)

    @property
    def transactions(self) -> Mapping[str, Record]:
        """What it records, by app id."""
        return self._log.snapshot.transactions

    @property
    def sealed(self) -> int:
        """The last generation of the map under which it was sealed; -1 if there is none."""
        return self.recorded(SEALED)

    @property
    def cuts(self) -> set[int]:
        """The offsets at which it was sealed."""
        return {txn.version for app, txn in self.transactions.items() if app.startswith("partq:cut/")}

    @property
    def fenced(self) -> bool:
        """Whether the queue's replica takes over, or has (S7)."""
        return is_fenced(self.recorded(FENCED), self.recorded(UNFENCED))

    @property
    def committed_ms(self) -> int:
        """When the last commit came, milliseconds since 1970 by the store's clock; 0 if its entry is gone. Asks the store."""
        info = self._log.log.of_version(self._log.version)
        return 0 if info is None else info.modified_ns // 1_000_000

    def has(self, record: BatchRecord, generation: int) -> bool:
        """Whether its part of a batch is in, placed by that generation of the map."""
        return self.recorded(record.under(generation)) >= record.batch_id

    def append(
        self,
        files: Sequence[NewFile],
        record: BatchRecord | None,
        generation: int = 0,
        age: FileAge | None = None,
        time_us: Callable[[], int] | None = None,
        was_forgotten: Callable[[], bool] | None = None,
    ) -> int | None:
        """Commit files as the next messages and return the first one's offset; None if they are in, or were.

        Parameters
        ----------
        generation : int
            Of the partition map that placed the rows.
        age : FileAge, optional
            When they were begun. None: a manifest names them that was put in time.
        time_us : function, optional
            Microseconds since 1970, for `_enqueued_at`; this machine's clock by default.
        was_forgotten : function, optional
            Asked if there is no record: whether the files were in, and that was forgotten.

        Raises
        ------
        FilesTooOld
        Sealed
            If another generation of the map is in force, or about to be.
        Fenced
            If the queue's replica takes over.
        CommitFailedError
            If the store refuses.
        """

        def attempt() -> int | None:
            self.refresh()
            # Every table was sealed for this map: this process stood still while the log was cleaned up.
            if self.sealed < generation - 1:
                self.refresh(sure=True)
            # Before the offset is read: another thread may let this handle go on at any moment.
            onto = self._log.version
            if (record and self.has(record, generation)) or (was_forgotten is not None and was_forgotten()):
                return None
            if not may_append(self.sealed, self.fenced, generation):
                raise Fenced if self.fenced else Sealed
            if age is not None:
                age.check(self._log, [file.path for file in files])
            base = start = self.next_offset
            now_us = time_us() if time_us is not None else self.store.runtime.time_ns() // 1_000
            clock_us = max(self.recorded(CLOCK, 0), now_us)
            adds = []
            for file in files:
                values = partition_values(base, clock_us)
                adds.append(Add(file.path, file.size_bytes, values, file.stats, self.store.now_ms()))
                base += file.rows
            recorded = record.transactions(generation) if record else {}
            raised = {app: max(batch, self.recorded(app)) for app, batch in recorded.items()}
            self._log.commit(adds, transactions={NEXT: base, CLOCK: clock_us, **raised}, onto=onto)
            return start

        return retrying(self.store.runtime, attempt, self._log.what)

    def seal(self, generation: int) -> int:
        """Let no more rows in that this generation of the map placed, and return the offset at which they end (S5).

        Raises
        ------
        Fenced
            If the queue's replica takes over: who goes on there would not know of the seal.
        """

        def attempt() -> int:
            self.refresh()
            if self.fenced:
                raise Fenced
            cut = f"partq:cut/{generation}"
            if self.sealed < generation:
                self._log.commit(transactions={SEALED: generation, cut: self.next_offset}, operation="SEAL")
            return self.recorded(cut)

        return retrying(self.store.runtime, attempt, self._log.what)

    def fence(self, number: int) -> None:
        """Let no more rows in at all, as the queue's replica takes over (S7). A fence that was taken back before it came is left out.

        Parameters
        ----------
        number : int
            Of the fact in the queue's control table that says so.
        """

        def attempt() -> None:
            self.refresh()
            if max(self.recorded(FENCED), self.recorded(UNFENCED)) < number:
                self._log.commit(transactions={FENCED: number}, operation="FENCE")

        retrying(self.store.runtime, attempt, self._log.what)

    def unfence(self, number: int) -> None:
        """Take fences back, up to this number, also those that have not come yet."""

        def attempt() -> None:
            self.refresh()
            if self.recorded(UNFENCED) < number:
                self._log.commit(transactions={UNFENCED: number}, operation="FENCE")

        retrying(self.store.runtime, attempt, self._log.what)

    def forget(self, sink_ids: Collection[str], now_ms: int) -> None:
        """Record no batch any more of those of the sinks that are still silent (Q5)."""

        def attempt() -> None:
            self.refresh()
            apps = may_be_forgotten(self.transactions, now_ms, sink_ids)
            if apps:
                self._log.commit(transactions=dict.fromkeys(sorted(apps), FORGOTTEN), operation="FORGET SINKS")

        retrying(self.store.runtime, attempt, self._log.what)

    def remove(self, until: Callable[[FileIndex], int]) -> int:
        """Take the first `until(index)` files out of the log and return how many messages they held."""
        messages = 0
        while True:
            removed, more = self._remove(until)
            messages += removed
            if not more:
                return messages

    def _remove(self, until: Callable[[FileIndex], int]) -> tuple[int, bool]:
        """The same of as many files as a commit may name, and whether there are more."""

        def attempt() -> tuple[int, bool]:
            self.refresh()
            index = self.index
            wanted = until(index)
            count = min(wanted, _MOST_REMOVES)
            if count == 0:
                return 0, False
            at, live = self.store.now_ms(), self._log.snapshot.files
            adds = [live[index.path(i)] for i in range(count)]
            removes = [Remove(add.path, at, add.size, add.partition_values) for add in adds]
            self._log.commit(removes=removes, operation="DELETE")
            return int(index.left[:count].sum()), count < wanted

        return retrying(self.store.runtime, attempt, self._log.what)

    def replace(self, paths: Sequence[str], file: NewFile, age: FileAge, generation: int | None = None) -> bool:
        """Put a file in the place of others that follow each other; False if one of these is not live any more.

        The messages that are left keep their offsets and times.

        Parameters
        ----------
        age : FileAge
            When the new file was begun.
        generation : int, optional
            Not if the table is sealed under this generation of the map.

        Raises
        ------
        FilesTooOld
        Fenced
            If the queue's replica takes over: it would not learn of this.
        """

        def attempt() -> bool:
            self.refresh()
            if self.fenced:
                raise Fenced
            age.check(self._log, [file.path])
            live = self._log.snapshot.files
            if not all(path in live for path in paths) or (generation is not None and self.sealed >= generation):
                return False
            add, removes = in_place_of([live[path] for path in paths], file, self.store.now_ms())
            self._log.commit([add], removes, operation="DELETE" if add.data_change else "OPTIMIZE")
            return True

        return retrying(self.store.runtime, attempt, self._log.what)

    def vacuum(self, grace_ms: int, kept: Collection[str] = (), as_of_ms: int | None = None) -> int:
        """Delete files that no log has named for `grace_ms` (whole hours, rounded up), but not those that are `kept`; return how many.

        Parameters
        ----------
        as_of_ms : int, optional
            By the store's clock the moment as of which they must be so old; now, if it is not given.
        """
        return vacuum(self._log, grace_ms, kept, as_of_ms)

    def checkpoint(self) -> None:
        """Write a checkpoint and drop log files that have outlived their retention."""
        self._log.checkpoint()

    def _corrupt(self, why: str) -> CorruptTableError:
        return CorruptTableError(
            f"partition {self.partition} of queue {self.queue!r} is damaged: {why}. Only this package may write to "
            f"{self._log.uri}; undo the foreign commit",
            queue=self.queue,
            partition=self.partition,
        )
