"""A group's ack table on disk: acknowledgements and heartbeats, small and short-lived."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group.acks import AckRow, Acks, compacted, heartbeat
from spark_partq.core.group.reading import ack_row
from spark_partq.core.ids import PartitionId
from spark_partq.storage.log import retrying
from spark_partq.storage.rows import Row, RowTable
from spark_partq.storage.store import Store, acks_folder

COLUMNS = (
    ("incarnation", "string"),
    ("beat", "long"),
    ("queue_id", "string"),
    ("partition", "integer"),
    ("epoch", "long"),
    ("offset", "long"),
    ("delivered", "long"),
    ("start", "long"),
    ("attempt", "long"),
    ("at", "timestamp"),
)
# After so many commits the rows are rewritten, without those that cannot count any more.
COMPACT_AFTER = 16
# More rows than this the table never has: a few of each partition are left, and those of the last commits. A row takes some 800 bytes of memory.
MOST_ROWS = 200_000


class AckTable:
    """One process's view of a group's ack table. Not safe for use by several threads at once.

    Attributes
    ----------
    deletions : int
        How often the group has been deleted, as its control table says.
    acks : Acks
        As of the last refresh.
    """

    def __init__(self, store: Store, group: str, deletions: int) -> None:
        self._store, self._group = store, group
        self._what, self._of = f"an acknowledgement of group {group!r}", f"the acknowledgements of group {group!r}"
        self.folder = acks_folder(group, deletions)
        self._table = RowTable(store, self.folder, self._of, COLUMNS, MOST_ROWS)
        self.acks = Acks()
        self._whole = True  # `acks` are those of all rows

    def exists(self) -> bool:
        return self._table.exists()

    def refresh(self) -> bool:
        """Read what is new in the table; True if it has changed."""
        changed = self._table.refresh()
        self._apply_rows()
        return changed

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that are not live, because they were compacted or lost a race, and are older than `grace_ms`."""
        if self.exists():
            self._table.vacuum(grace_ms)

    def append(
        self,
        rows: Sequence[AckRow],
        live: Collection[str] = (),
        gone: Collection[str] = (),
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Commit rows, whatever others commit meanwhile.

        Parameters
        ----------
        live : collection of str
            Incarnations of the group's members, whose last heartbeats a compaction keeps.
        gone : collection of str
            Ids of queues that the group reads no longer, of which a compaction keeps nothing.
        before : function
            Called with each attempt, when `acks` are what lies in front of the rows.
        """
        at = self._store.now()

        def attempt() -> None:
            is_new = not self._table.files and not self.exists()
            if not is_new:
                self.refresh()
            before()
            if is_new:
                self._table.create(_plain(rows, at))
            elif len(self._table.files) >= COMPACT_AFTER or self._table.count() + len(rows) > MOST_ROWS:
                every = [*map(self._row, self._table.rows()), *rows]
                heard = {**self.heard_at(), **{row.incarnation: at for row in rows if row.beat}}
                self._table.append(_plain(compacted(every, live, gone), at, heard), replace=True)
            else:
                self._table.append(_plain(rows, at))

        retrying(self._store.runtime, attempt, self._what)
        self._apply_rows()

    def forget(self, partitions: Collection[PartitionId], before: Callable[[], None]) -> None:
        """Leave only the heartbeats of rows about partitions: what else they tell was done with messages that are not there.

        `before` is called with each attempt, when the table was read; what it raises ends that.
        """

        def left(row: AckRow) -> AckRow:
            return heartbeat(row.incarnation, row.beat) if row.partition_id in partitions else row

        def attempt() -> None:
            self.refresh()
            before()
            rows = [left(self._row(row)) for row in self._table.rows()]
            self._table.append(_plain(rows, self._store.now(), self.heard_at()), replace=True)

        if self.exists():
            retrying(self._store.runtime, attempt, self._what)
            self._apply_rows()

    def heard_at(self) -> dict[str, dt.datetime]:
        """When each incarnation wrote its last heartbeat, by the clock of its machine, as of the last refresh."""
        heard: dict[str, tuple[int, dt.datetime]] = {}
        for row in self._table.rows():
            if row["beat"] and row["at"] is not None:
                last = row["beat"], row["at"]
                heard[row["incarnation"]] = max(last, heard.get(row["incarnation"], last))
        return {incarnation: at for incarnation, (_, at) in heard.items()}

    def _apply_rows(self) -> None:
        whole, self._whole = self._whole, False  # if a signal interrupts this, the next call reads all rows
        fresh = self._table.take_fresh()
        if fresh is None or not whole:
            self.acks = Acks.of(map(self._row, self._table.rows()))
        else:
            for row in fresh:
                self.acks.add(self._row(row))
        self._whole = True

    def _row(self, row: Row) -> AckRow:
        try:
            return ack_row(row)
        except ValueError as error:
            self._whole = False
            raise CorruptTableError(
                f"{self._of} in {self._store.uri}, version {self._table.version}, hold a row that cannot be ({error}): the table was "
                "edited. Restore it from a backup: messages that are then not acknowledged are delivered again",
                group=self._group,
                version=self._table.version,
            ) from error


def _plain(
    rows: Sequence[AckRow], at: dt.datetime, heard: Mapping[str, dt.datetime] = MappingProxyType({})
) -> list[Row]:
    """The rows as they are written at that time; what is copied keeps the time at which its incarnation was heard."""
    return [{**vars(row), "at": heard.get(row.incarnation, at)} for row in rows]
