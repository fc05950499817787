"""A group's control table on disk: every decision as a row, and the state that follows from them.

The rows are the group's history and are never deleted. So that neither a refresh nor a commit costs more as the history grows, a
committer merges the small files of the last commits now and then, and adds a snapshot of the state, from which a reader begins.
Merging changes no row of the history, and is a compare-and-set like everything else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from spark_partq.core import format
from spark_partq.core.errors import CorruptTableError, PartqError
from spark_partq.core.group import snapshot
from spark_partq.core.group.advice import ANOTHER_GROUP
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.state import GroupState
from spark_partq.core.stored import MALFORMED, body_of, reason
from spark_partq.storage.log import Conflict, DeltaLog, Remove, vacuum
from spark_partq.storage.rows import Row, RowFiles, in_order, rows_of, table_in_order, to_its_files
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
    ("lineage_epoch", "long"),
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
# So many files of facts are merged into one of the history, which bounds what a start reads; and so many of these into an archive.
MERGE_AFTER, ARCHIVE_AFTER = 16, 64
# More facts than this are not merged into one file.
MOST_FACTS = 5_000_000
# So many facts of a file become rows at once.
_FEW = 10_000

_NAMED = re.compile(
    rf"\d{{20}}-({FACTS}|{HISTORY}|{ARCHIVE}|{SNAPSHOT}(?=-\d))(?:-(\d{{1,19}}))?-[0-9a-f]{{32}}\.parquet"
)

_log = logging.getLogger("spark_partq")
_FACT_FIELDS = [f.name for f in dataclasses.fields(GroupFact)]


class ControlTable:
    """One process's view of a group's control table. Not safe for use by several threads at once.

    Attributes
    ----------
    state : GroupState
        As of the last refresh.
    """

    def __init__(self, store: Store, group: str) -> None:
        folder = f"{group_folder(group)}/control"
        about = f"the control table of group {group!r}"
        self._what = f"{about} in {store.uri}"
        self._disk = RowFiles(store, folder, about, COLUMNS, MOST_FACTS)
        self._store, self._log, self._group = store, DeltaLog(store, folder, about), group
        self._paths: set[str] = set()
        self._version = -1  # of which `state` is
        self.state = GroupState()

    def exists(self) -> bool:
        return self._log.exists()

    def refresh(self) -> bool:
        """Read what is new in the table; True if others have changed it.

        Raises
        ------
        CorruptTableError
            If facts are missing or cannot follow one another.
        NewerStoreError
            If only a newer program may read it.
        """
        self._log.refresh()
        return to_its_files(self._log, lambda: self._follow({}))

    def commit(self, facts: Sequence[GroupFact]) -> None:
        """Commit the facts as the version after that of the last refresh, and apply them to `state`; creates the table if need be.

        Raises
        ------
        Conflict
            If another process was first. Refresh and decide again.
        """
        if self._log.version != self._version:
            raise Conflict  # the refresh was interrupted
        self.check_writable()
        at = self._store.now()
        rows: list[Row] = [{"seq": seq, **vars(fact), "at": at} for seq, fact in enumerate(facts, self.state.seq)]
        add, written = self._disk.write(rows, self._log.version + 1, FACTS)
        if self._log.version < 0:
            self._log.create(self._disk.spec, [add])
        else:
            self._log.commit([add])
        self._follow({add.path: written})
        if sum(kind_of(path) == FACTS for path in self._paths) > MERGE_AFTER:
            try:
                self._merge()
            except PartqError as error:  # the facts are committed; the next committer merges
                _log.warning("%s was not merged: %s", self._what, error)

    def check_writable(self) -> None:
        """Refuse a group, as of the last refresh, that only a newer program may write: that holds for all its tables.

        Raises
        ------
        NewerStoreError
        """
        format.check_writable(self.state.format, self._what)

    def history(self) -> pa.Table:
        """Every fact ever, in order, with `seq` and `at`; reads the whole table."""
        self.refresh()
        files = [self._disk.read_table(path, self._version) for path in self._paths if kind_of(path) != SNAPSHOT]
        return table_in_order(pa.concat_tables([self._disk.arrow.empty_table(), *files]), self._what, self._version)

    def recent(self, count: int) -> list[Row]:
        """The last `count` facts as of the last refresh, in order."""
        return recent_facts(self._paths, self._disk, count, self._what, self._version)

    def vacuum(self, grace_ms: int) -> None:
        """Delete files that are not live, because they were merged or lost a race, and are older than `grace_ms`."""
        vacuum(self._log, grace_ms)

    def _follow(self, written: Mapping[str, list[Row]]) -> bool:
        """Bring `state` to the log's version; facts that were written here need not be read."""
        if self._log.version == self._version:
            return False
        # All or nothing: an error, or a signal that ends the process, may come between any two steps; a decision on a state older
        # than the handle's version would then be committed as if it were made on the newest.
        try:
            changes = self._log.take_changes()
            paths = set(self._log.snapshot.files)
            fresh = paths if self._version < 0 or changes.reloaded else {add.path for add in changes.added} & paths
            state = self.state.copy()
            newest = max((path for path in paths if kind_of(path) == SNAPSHOT), default=None)
            if newest is not None and _seq(newest) > state.seq:
                state = self._snapshot(newest)
            for path in sorted(path for path in fresh if kind_of(path) == FACTS):
                for rows in [written[path]] if path in written else self._facts(path):
                    self._replay(state, rows)
            foreign = sorted(path for path in paths if not kind_of(path))
            if foreign:  # and no fact says that a newer program may name files so
                raise CorruptTableError(
                    f"{self._table} has the file {foreign[0]}, whose name this program does not know: another program "
                    "committed it. Restore the table from a backup",
                    path=foreign[0],
                    version=self._log.version,
                )
        except BaseException:
            self._version = -1
            raise
        self._paths, self.state, self._version = paths, state, self._log.version
        if any(queue.durable for queue in state.queues.values()):
            self._store.force_writes()
        return True

    def _facts(self, path: str) -> Iterable[list[Row]]:
        """The facts of a file; those of a large one some at a time."""
        few = (self._log.snapshot.files[path].rows or 0) <= _FEW
        at = self._log.version
        return [self._disk.read(path, at, _FEW)] if few else self._disk.read_parts(path, at)

    def _snapshot(self, path: str) -> GroupState:
        try:
            (row,) = self._disk.read(path, self._log.version, 1)
            body = body_of(row["body"])
            format.check_readable(format.parse(body["format"]), self._what)
            state = snapshot.from_json(body)
            if state.seq != _seq(path):
                raise ValueError(f"it stands for {state.seq} facts")
            return state
        except MALFORMED as error:
            raise CorruptTableError(
                f"{self._table} has the snapshot {path}, which cannot be read ({reason(error)}): it was edited. Restore the table "
                "from a backup",
                path=path,
                version=self._log.version,
            ) from error

    def _replay(self, state: GroupState, rows: Sequence[Row]) -> None:
        version = self._log.version
        for row in in_order(rows, self._what, version):
            if row["seq"] < state.seq:
                continue  # it is in the snapshot
            if row["seq"] > state.seq:
                raise CorruptTableError(
                    f"{self._table} has fact {row['seq']} where {state.seq} should be: facts are missing. Restore the table "
                    f"from a backup, or {ANOTHER_GROUP}",
                    group=self._group,
                    version=version,
                    seq=state.seq,
                )
            try:
                state.replay(GroupFact(**{name: row[name] for name in _FACT_FIELDS}))
            except CorruptTableError as error:  # which knows of no store
                raise CorruptTableError(
                    f"{self._table} is damaged: {error.message}", group=self._group, version=version, seq=state.seq
                ) from error

    @property
    def _table(self) -> str:
        """The version that is being read, for errors."""
        return f"{self._what}, version {self._log.version},"

    def _merge(self) -> None:
        """Add a snapshot of the state and merge files; if another process commits first, the next committer merges."""
        before = self._log.version
        row: Row = {
            "seq": self.state.seq,
            "kind": "Snapshot",
            "body": json.dumps(snapshot.to_json(self.state)),
            "at": self._store.now(),
        }
        adds = [self._disk.write([row], before + 1, f"{SNAPSHOT}-{self.state.seq}", data_change=False)[0]]
        replaced = [path for path in self._paths if kind_of(path) == SNAPSHOT]
        at, live = self._store.now_ms(), self._log.snapshot.files
        for small, merged, after in ((FACTS, HISTORY, MERGE_AFTER), (HISTORY, ARCHIVE, ARCHIVE_AFTER)):
            files = sorted(path for path in self._paths if kind_of(path) == small)
            if len(files) < after or sum(live[path].rows or 0 for path in files) > MOST_FACTS:
                continue
            add = self._disk.merge(files, before + 1, merged)
            if add is not None:
                adds.append(add)
                replaced += files
        removes = [Remove(path, at, live[path].size, {}, data_change=False) for path in replaced]
        with contextlib.suppress(Conflict):
            self._log.commit(adds, removes, operation="OPTIMIZE")
            self._follow({})


def recent_facts(paths: Iterable[str], disk: RowFiles, count: int, what: str, version: int) -> list[Row]:
    """The last `count` facts of those in the files of a version, in order. Reads no more files than that needs, however long the history is."""
    parts: list[pa.Table] = []
    # A file is named by the version that brought it in, and holds what was committed up to then.
    for path in sorted((path for path in paths if kind_of(path) != SNAPSHOT), reverse=True):
        if count <= sum(part.num_rows for part in parts):
            break
        parts.append(disk.read_table(path, version))
    facts = table_in_order(pa.concat_tables(parts or [disk.arrow.empty_table()]), what, version)
    return rows_of(facts.slice(max(0, facts.num_rows - count)))


def kind_of(path: str) -> str:
    """Whether a file of a control table holds facts (also merged ones) or a snapshot; nothing if this package has not named it."""
    named = _NAMED.fullmatch(path)
    return "" if named is None else named[1]


def _seq(path: str) -> int:
    named = _NAMED.fullmatch(path)
    return -1 if named is None else int(named[2] or 0)
