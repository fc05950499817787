"""A group's control table on disk: every decision as a row, and the state that follows from them.

The rows are never lost: they are the group's history. So that neither a look nor a commit costs more as the history grows, the
little files of the last commits are merged now and then, beside a snapshot of the state at which a reader may begin. Merging
changes no row of the history, and is a compare-and-set like everything else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group import GroupFact, GroupState
from spark_partq.storage.delta import SHORT_LOG, CasTable, Conflict, removed
from spark_partq.storage.rows import Row, RowFiles, now
from spark_partq.storage.store import Store, group_folder

COLUMNS = (
    ("seq", "long"),  # 0, 1, 2… over the life of the group: the order of its history
    ("kind", "string"),
    ("queue", "string"),
    ("queue_id", "string"),
    ("partition", "integer"),
    ("offset", "long"),
    ("delivered", "long"),
    ("epoch_before", "long"),
    ("epoch", "long"),
    ("base_epoch", "long"),
    ("flow", "string"),
    ("to_flow", "string"),
    ("forced", "boolean"),
    ("instance", "string"),
    ("incarnation", "string"),
    ("host", "string"),
    ("status", "string"),
    ("flows", "integer"),
    ("body", "string"),
    ("cause", "string"),
    ("by", "string"),
    ("at", "timestamp"),
)
# Kinds of files, as their names say. A snapshot's name also carries the number of facts that it stands for.
FACTS, HISTORY, ARCHIVE, SNAPSHOT = "facts", "history", "archive", "snapshot"
# So many files of one kind are merged into one of the next.
MERGE_AFTER = 64

_FACT_FIELDS = [f.name for f in dataclasses.fields(GroupFact)]


class ControlTable:
    """One process's view of a group's control table. Not safe for use by several threads at once.

    Attributes
    ----------
    state : GroupState
        As of the last look.
    """

    def __init__(self, store: Store, group: str) -> None:
        folder = f"{group_folder(group)}/control"
        self._what = f"the control table of group {group!r}"
        self._disk = RowFiles(store, folder, self._what, COLUMNS)
        self._table = CasTable(store, folder, self._what)
        self._files: list[str] = []
        self._replayed: set[str] = set()
        self._version = -1  # of which `state` is
        self.state = GroupState()

    def exists(self) -> bool:
        return self._table.exists()

    def refresh(self) -> bool:
        """Look at the table; True if it has changed.

        Raises
        ------
        CorruptTableError
            If facts are missing or cannot follow one another.
        """
        self._table.refresh()
        version = self._table.version
        if version == self._version:
            return False
        # All or nothing: an error, or a signal that ends the process, may come between any two steps, and a decision on a state
        # that is older than the handle would pass for one on the newest.
        files, state = self._table.paths(), self.state.copy()
        snapshot = max((path for path in files if kind_of(path) == SNAPSHOT), default=None)
        if snapshot is not None and _seq(snapshot) > state.seq:
            (row,) = self._disk.read(snapshot)
            state = GroupState.from_json(json.loads(row["body"]))
        tail = [path for path in files if kind_of(path) == FACTS]
        for path in tail:
            if path not in self._replayed:
                self._replay(state, self._disk.read(path))
        self._files, self._replayed, self.state, self._version = files, set(tail), state, version
        return True

    def commit(self, facts: Sequence[GroupFact]) -> None:
        """Commit the facts on top of the last look; makes the table if it is not there.

        Raises
        ------
        Conflict
            If somebody else was first. Look again and decide again.
        """
        if self._table.version != self._version:
            raise Conflict  # the look was interrupted
        at = now()
        rows: list[Row] = [
            {"seq": seq, **dataclasses.asdict(fact), "at": at} for seq, fact in enumerate(facts, self.state.seq)
        ]
        if self._table.version < 0:
            self._disk.make_folder()
            self._table.create(self._disk.created, [self._disk.write(rows, 0, FACTS)], SHORT_LOG)
        else:
            self._table.commit(self._disk.created, [self._disk.write(rows, self._table.version + 1, FACTS)])
        if len([path for path in self._files if kind_of(path) == FACTS]) >= MERGE_AFTER:
            self._merge()

    def history(self) -> list[Row]:
        """Every fact ever, in order, with `seq` and `at`; reads the whole table."""
        self.refresh()
        rows = [row for path in self._files if kind_of(path) != SNAPSHOT for row in self._disk.read(path)]
        return sorted(rows, key=lambda row: int(row["seq"]))

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that were merged, or lost a race, more than `grace_ms` ago."""
        self.refresh()
        self._table.vacuum(grace_ms)

    def _replay(self, state: GroupState, rows: Sequence[Row]) -> None:
        for row in sorted(rows, key=lambda row: int(row["seq"])):
            if row["seq"] < state.seq:
                continue  # the snapshot knows it
            if row["seq"] > state.seq:
                raise CorruptTableError(
                    f"{self._what} has fact {row['seq']} where {state.seq} should be: facts are missing. Restore the table "
                    "from a backup or from an earlier version, or delete the group",
                    seq=state.seq,
                )
            state.replay(GroupFact(**{name: row[name] for name in _FACT_FIELDS}))

    def _merge(self) -> None:
        """Put a snapshot beside the facts and merge their files; whoever loses the race leaves it to the next."""
        self.refresh()
        version = self._table.version + 1
        row: Row = {"seq": self.state.seq, "kind": "Snapshot", "body": json.dumps(self.state.to_json()), "at": now()}
        adds = [self._disk.write([row], version, f"{SNAPSHOT}-{self.state.seq}", data_change=False)]
        gone = [path for path in self._files if kind_of(path) == SNAPSHOT]
        for small, merged in ((FACTS, HISTORY), (HISTORY, ARCHIVE)):
            files = [path for path in self._files if kind_of(path) == small]
            if len(files) >= MERGE_AFTER:
                rows = [row for path in files for row in self._disk.read(path)]
                adds.append(self._disk.write(rows, version, merged, data_change=False))
                gone += files
        try:
            self._table.commit(self._disk.created, adds, [removed(path, data_change=False) for path in gone])
        except Conflict:
            return
        self.refresh()


def kind_of(path: str) -> str:
    """Whether a file of a control table holds facts (also merged ones) or a snapshot."""
    return path.split("-")[1]


def _seq(path: str) -> int:
    return int(path.split("-")[2])
