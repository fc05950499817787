"""A queue's control table on disk: every decision about the queue as a row, and the state that follows from them."""

from __future__ import annotations

import datetime as dt
import getpass
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from spark_partq.core.errors import CorruptTableError, QueueNotFoundError, QueueNotReadyError, StoreUnavailableError
from spark_partq.core.format import check_writable
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.records import expired_records
from spark_partq.core.queue.state import QueueState, after, replay
from spark_partq.core.stored import MALFORMED, RESTORE_NEWEST, body_of, reason
from spark_partq.storage.log import LogFolder, retrying
from spark_partq.storage.rows import Row, RowTable, in_order
from spark_partq.storage.store import Store, partition_folder, partition_numbers, queue_folder

COLUMNS = (("seq", "long"), ("kind", "string"), ("body", "string"), ("by", "string"), ("at", "timestamp"))
# So many files are merged into one: whoever opens a queue that was toggled for years reads one file.
MERGE_AFTER = 64
# Facts of one queue: one every half hour, for ten years.
MOST_FACTS = 200_000
# So often a table is read that is deleted and created again meanwhile.
_READINGS = 3
DISCARDED = "partq:discarded"
REMOVED = "partq:removed"


class QueueControl:
    """One process's view of a queue's control table, as of its last refresh. Not safe for use by several threads at once."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self._what = f"the control table of queue {name!r} in {store.uri}"
        self._rows = self._table()
        self._state: QueueState | None = None
        self._queue_id = ""  # of the queue that was opened; empty before the first refresh

    def exists(self) -> bool:
        return self._rows.exists()

    @property
    def state(self) -> QueueState:
        """As of the last refresh; the first use refreshes."""
        if self._state is None:
            self.refresh()
        if self._state is None:
            raise CorruptTableError(
                f"the control table of queue {self.name!r} in {self.store.uri} is empty", queue=self.name
            )
        return self._state

    def refresh(self, sure: bool = False) -> bool:
        """Read what is new in the table; True if the queue has changed.

        Parameters
        ----------
        sure : bool
            Notice at once if the queue was created again; else that may take half a minute on an object store.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError
            If it was deleted, also if it was created again since; or is half deleted.
        CorruptTableError
            If its facts cannot follow one another.
        NewerStoreError
            If only a newer program may read it.
        """
        try:
            changed = self._rows.refresh(sure)
        except CorruptTableError:
            self._begin_again()
            changed = True
        self._take_in()
        return changed

    def reopen(self) -> None:
        """Read the table without relying on what was read before; if that fails, the state is still that of the last refresh."""
        before = self._rows, self._state
        self._rows, self._state = self._table(), None
        try:
            self.refresh()
        except BaseException:
            self._rows, self._state = before
            raise

    def _begin_again(self) -> None:
        """Tell a deletion from damage; a table that was created again while it was read for the first time is read again."""
        for attempt in range(_READINGS):
            rows = self._table()
            if not rows.exists():
                raise QueueNotFoundError(
                    f"queue {self.name!r} in {self.store.uri} was deleted", queue=self.name, store=self.store.uri
                ) from None
            try:
                rows.refresh()
                break
            except CorruptTableError:
                if not self._has_partitions():  # a deletion removes the control table last
                    raise QueueNotReadyError(
                        f"queue {self.name!r} in {self.store.uri} is half deleted; delete it again to finish that",
                        queue=self.name,
                        status="Deleting",
                    ) from None
                if attempt == _READINGS - 1:
                    raise
        if not self._queue_id:
            self._rows = rows
        elif self._replayed(None, rows.rows()).queue_id != self._queue_id:
            raise self.created_again() from None
        else:
            raise CorruptTableError(
                f"{self._what} is not the one that was read before, though it is of the same queue: an older state was put back. "
                f"{RESTORE_NEWEST}",
                queue=self.name,
            )

    def _has_partitions(self) -> bool:
        """Whether a table of a partition can be read; what a writer left who did not know of the deletion is none."""
        folders = [partition_folder(self.name, number) for number in partition_numbers(self.store, self.name)]
        return any(LogFolder(self.store, folder).has_beginning() for folder in folders)

    def created_again(self) -> QueueNotFoundError:
        """Tells who knows a queue of this name that was there before."""
        return QueueNotFoundError(
            f"queue {self.name!r} was deleted and created again since it was opened. Start the program again; a query that reads the queue then needs a "
            "new checkpointLocation, and one that writes to it goes on with its own",
            queue=self.name,
        )

    def _table(self) -> RowTable:
        return RowTable(
            self.store,
            f"{queue_folder(self.name)}/control",
            f"the control table of queue {self.name!r}",
            COLUMNS,
            MOST_FACTS,
            expired_records,
        )

    def create(self, facts: Sequence[QueueFact]) -> None:
        """Make the table; `Conflict` if it is there by now."""
        self._rows.create([_row(fact, seq, self.store.now()) for seq, fact in enumerate(facts)])

    def check_writable(self) -> None:
        """Refuse a queue, as of the last refresh, that only a newer program may write: that holds for all its tables.

        Raises
        ------
        NewerStoreError
        """
        check_writable(self.state.format, self._what)

    def commit(self, facts: Sequence[QueueFact]) -> None:
        """Commit facts on top of the last refresh, or `Conflict`.

        Raises
        ------
        ValueError
            If they cannot follow.
        """
        self.check_writable()
        state = self.state
        for fact in facts:  # refused before anything is written
            state = after(state, fact)
        before = self._rows.rows()
        rows = [_row(fact, seq, self.store.now()) for seq, fact in enumerate(facts, len(before))]
        if len(self._rows.files) >= MERGE_AFTER:
            self._rows.append([*before, *rows], replace=True)
        else:
            self._rows.append(rows)
        self._take_in()

    def decide(self, facts: Callable[[QueueState], Sequence[QueueFact]]) -> QueueState:
        """Commit what follows from the newest state, which is read again when a race was lost; the state after that."""

        def attempt() -> QueueState:
            self.refresh()
            decided = facts(self.state)
            if decided:
                self.commit(decided)
            return self.state

        return retrying(self.store.runtime, attempt, f"a decision about queue {self.name!r}")

    # ---- what is removed of the partitions (Q8)
    def removed_end(self, partition: int) -> int:
        """The messages of the partition below this offset are removed, or are about to be; as of the last refresh."""
        return self._rows.recorded(f"{REMOVED}/{partition}", 0)

    def record_removal(self, measure: Callable[[QueueState], Mapping[int, int]]) -> Mapping[int, int]:
        """Commit up to where messages are removed, before they are, and return it.

        Groups attach in the same table: one that attached before counts in what is measured, one that attaches later starts behind.

        Parameters
        ----------
        measure : function
            From the newest state to the offset of each partition below which nothing is wanted any more; called again when a race
            was lost.
        """

        def attempt() -> Mapping[int, int]:
            self.refresh()
            ends = measure(self.state)
            higher = {f"{REMOVED}/{n}": end for n, end in ends.items() if end > self.removed_end(n)}
            if higher:
                self.check_writable()
                self._rows.record(higher)
            return ends

        return retrying(self.store.runtime, attempt, f"what is removed of queue {self.name!r}")

    # ---- what was discarded while ingress was disabled (S3)
    @property
    def discarded(self) -> int:
        """Messages, as of the last refresh."""
        return self._rows.recorded(DISCARDED, 0)

    def discard(self, messages: int, batch: tuple[str, int] | None, check: Callable[[], object] = lambda: None) -> None:
        """Count messages as discarded; those of a batch (sink, number) once, however often it comes.

        Parameters
        ----------
        check : function
            Raises if the queue, on whose newest state they are counted, takes nothing any more.
        """

        def attempt() -> None:
            self.refresh()
            check()
            transactions = {DISCARDED: self.discarded + messages}
            if batch is not None:
                app = f"{DISCARDED}/{batch[0]}"
                if self._rows.recorded(app) >= batch[1]:
                    return
                transactions[app] = batch[1]
            self.check_writable()
            self._rows.record(transactions)

        retrying(self.store.runtime, attempt, f"the count of discarded messages of queue {self.name!r}")

    def last_discarded(self, sink_id: str) -> int:
        """The last batch of a sink that is in that count, as of the last refresh; -1 if there is none."""
        return self._rows.recorded(f"{DISCARDED}/{sink_id}")

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that are not live, because they were merged or lost a race, and are older than `grace_ms`."""
        self._rows.vacuum(grace_ms)

    def history(self) -> list[Row]:
        """Every fact ever, in order, with `by` and `at`."""
        self.refresh()
        return self._rows.rows()

    def _take_in(self) -> None:
        """Bring the state to the rows as of the last refresh."""
        state, self._state = self._state, None  # an error leaves none, so that the next refresh begins with all rows
        fresh = self._rows.take_fresh()
        found = self._replayed(*((None, self._rows.rows()) if state is None or fresh is None else (state, fresh)))
        if self._queue_id not in ("", found.queue_id):
            raise self.created_again()
        self._state, self._queue_id = found, found.queue_id
        if found.settings.durable:
            self.store.force_writes()

    def _replayed(self, state: QueueState | None, rows: Sequence[Row]) -> QueueState:
        table = f"{self._what}, version {self._rows.version},"
        for row in in_order(rows, self._what, self._rows.version):
            try:
                state = replay(self.name, [QueueFact(row["kind"], body_of(row["body"]))], state)
            except MALFORMED as error:
                raise CorruptTableError(
                    f"{table} holds a fact that cannot be (number {row['seq']}, {row['kind']}: {reason(error)}): it was edited. Restore it "
                    "from a backup",
                    queue=self.name,
                    version=self._rows.version,
                    seq=row["seq"],
                ) from error
        if state is None:
            raise CorruptTableError(f"{table} is empty. Restore it from a backup", queue=self.name)
        return state


def open_control(store: Store, name: str) -> QueueControl:
    """The control table of a queue, refreshed.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError
    """
    store.check_exists()
    control = QueueControl(store, name)
    if not control.exists():
        known = ", ".join(list_queues(store)) or "none"
        raise QueueNotFoundError(
            f"there is no queue {name!r} in {store.uri}; its queues: {known}", queue=name, store=store.uri
        )
    control.refresh()
    return control


def list_queues(store: Store) -> list[str]:
    """Names of the queues in the store, sorted; also of those that cannot be looked at, which may be queues.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
        If there is no store, or its queues cannot be listed.
    """
    store.check_exists()
    return [name for name in store.named("queues") if _may_be_there(QueueControl(store, name))]


def _may_be_there(queue: QueueControl) -> bool:
    try:
        return queue.exists()
    except StoreUnavailableError:  # who opens it is told so
        return True


@cache
def user_and_host() -> str:
    """User and host, for people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user often has a number and no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _row(fact: QueueFact, seq: int, at: dt.datetime) -> Row:
    return {"seq": seq, "kind": fact.kind, "body": json.dumps(fact.body), "by": user_and_host(), "at": at}
