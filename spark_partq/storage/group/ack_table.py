"""A group's ack table on disk: acknowledgements and heartbeats, small and short-lived."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from spark_partq.core.group.acks import AckRow, Acks, compacted
from spark_partq.storage.log import retrying
from spark_partq.storage.rows import Row, RowTable
from spark_partq.storage.store import Store, group_folder

COLUMNS = (
    ("incarnation", "string"),
    ("beat", "long"),
    ("queue_id", "string"),
    ("partition", "integer"),
    ("epoch", "long"),
    ("offset", "long"),
    ("delivered", "long"),
    ("at", "timestamp"),
)
# After so many commits the rows are rewritten, without those that cannot count any more.
COMPACT_AFTER = 16

_FIELDS = [f.name for f in dataclasses.fields(AckRow)]


class AckTable:
    """One process's view of a group's ack table. Not safe for use by several threads at once.

    Attributes
    ----------
    acks : Acks
        As of the last refresh.
    """

    def __init__(self, store: Store, group: str) -> None:
        self._store, self._what = store, f"an acknowledgement of group {group!r}"
        self._table = RowTable(
            store, f"{group_folder(group)}/acks", f"the acknowledgements of group {group!r}", COLUMNS
        )
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

    def append(self, rows: Sequence[AckRow], live: Collection[str] = ()) -> None:
        """Commit rows, whatever others commit meanwhile.

        Parameters
        ----------
        live : collection of str
            Incarnations of the group's members, whose last heartbeats a compaction keeps.
        """
        at = self._store.now()

        def attempt() -> None:
            if not self._table.files and not self.exists():
                self._table.create(_plain(rows, at))
            else:
                self.refresh()
                if len(self._table.files) >= COMPACT_AFTER:
                    every = [*map(_row, self._table.rows()), *rows]
                    self._table.append(_plain(compacted(every, live), at), replace=True)
                else:
                    self._table.append(_plain(rows, at))

        retrying(self._store.runtime, attempt, self._what)
        self._apply_rows()

    def _apply_rows(self) -> None:
        whole, self._whole = self._whole, False  # if a signal interrupts this, the next call reads all rows
        fresh = self._table.take_fresh()
        if fresh is None or not whole:
            self.acks = Acks.of(map(_row, self._table.rows()))
        else:
            for row in fresh:
                self.acks.add(_row(row))
        self._whole = True


def _row(row: Row) -> AckRow:
    return AckRow(**{name: row[name] for name in _FIELDS})


def _plain(rows: Sequence[AckRow], at: object) -> list[Row]:
    return [{**vars(row), "at": at} for row in rows]
