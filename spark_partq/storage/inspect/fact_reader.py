"""A group's history in parts: the facts that match a filter, the newest first, however long the history is.

The files of a control table never change, and the numbers of its facts have no gaps. So the row counts in the log say which file holds
which fact, and to read a part of the history costs only the files that it lies in.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group.advice import ANOTHER_GROUP
from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.control import SNAPSHOT, kind_of
from spark_partq.storage.inspect.group_history import control_files, control_log
from spark_partq.storage.rows import Row, table_in_order
from spark_partq.storage.store import Store

# How many bytes of read files are kept.
_MOST_BYTES = 32 << 20
# A search looks at no more facts than this at a time; the page says how far it came.
MOST_SEARCHED = 100_000
_TEXTS = ("kind", "queue", "flow", "to_flow", "instance", "incarnation", "host", "status", "body", "cause", "by")


@dataclass(frozen=True)
class FactFilter:
    """Which facts are wanted. A field that is empty or None does not restrict them.

    Attributes
    ----------
    member : str
        An instance: facts about it, and about partitions that its flows own, give up or get.
    text : str
        A text that occurs in one of the fact's texts; the case of letters does not matter.
    """

    kinds: tuple[str, ...] = ()
    queue: str | None = None
    partition: int | None = None
    member: str = ""
    text: str = ""

    def select(self, facts: pa.Table) -> pa.Table:
        """The facts that match, in their order."""
        masks = []
        if self.kinds:
            masks.append(pc.is_in(facts["kind"], value_set=pa.array(self.kinds, pa.string())))
        if self.queue is not None:
            masks.append(pc.equal(facts["queue"], self.queue))
        if self.partition is not None:
            masks.append(pc.equal(facts["partition"], self.partition))
        if self.member:
            flows = [pc.starts_with(facts[name], f"{self.member}/") for name in ("flow", "to_flow")]
            masks.append(_any([pc.equal(facts["instance"], self.member), *flows]))
        if self.text:
            masks.append(_any([pc.match_substring(facts[name], self.text, ignore_case=True) for name in _TEXTS]))
        if not masks:
            return facts
        return facts.filter(functools.reduce(pc.and_, [pc.fill_null(mask, False) for mask in masks]))


@dataclass(frozen=True)
class FactPage:
    """Some facts, the newest first.

    Attributes
    ----------
    older : int or None
        Facts before this number were not searched; None if there are none.
    end : int
        The number that the next fact of the group will get.
    """

    facts: list[Row]
    older: int | None
    end: int


@dataclass(frozen=True)
class _File:
    path: str
    first: int
    end: int


class FactReader:
    """Reads the history of one group. Used by one thread at a time."""

    def __init__(self, store: Store, group: str) -> None:
        self._what = f"the control table of group {group!r} in {store.uri}"
        self._log, self._disk = control_log(store, group), control_files(store, group)
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._files: list[_File] = []
        self._version = -1

    @property
    def end(self) -> int:
        """The number of the next fact, as of the last refresh."""
        return self._files[-1].end if self._files else 0

    def refresh(self) -> None:
        """
        Raises
        ------
        CorruptTableError, NewerStoreError, StoreUnavailableError
        """
        self._log.refresh()
        if self._log.version == self._version:
            return
        live = self._log.snapshot.files
        files: list[_File] = []
        # Sorted by name, the files are in the order of their facts, see `storage.group.control.recent_facts`.
        for path in sorted(path for path in live if kind_of(path) != SNAPSHOT):
            first = files[-1].end if files else 0
            count = live[path].rows
            files.append(_File(path, first, first + (self._read(path).num_rows if count is None else count)))
        for path in self._kept.keys() - live.keys():
            del self._kept[path]
        self._files, self._version = files, self._log.version

    def page(self, wanted: FactFilter, before: int | None = None, most: int = 100) -> FactPage:
        """The newest matching facts before the number `before`, at most `most`, as of the last refresh."""
        rows: list[Row] = []
        searched, reached = 0, min(self.end if before is None else max(0, before), self.end)
        for part in self._backwards(reached):
            part = part.slice(max(0, part.num_rows - (MOST_SEARCHED - searched)))
            searched += part.num_rows
            found = wanted.select(part)
            found = found.slice(max(0, found.num_rows - (most - len(rows))))
            rows += reversed(found.to_pylist())
            reached = rows[-1]["seq"] if len(rows) == most else part["seq"][0].as_py()
            if len(rows) == most or searched == MOST_SEARCHED:
                break
        return FactPage(rows, reached or None, self.end)

    def since(self, at: dt.datetime, most: int) -> pa.Table:
        """The facts since a moment, in order, but only the last `most` of them; as of the last refresh."""
        parts: list[pa.Table] = []
        for part in self._backwards(self.end):
            young = part.filter(pc.greater_equal(part["at"], pa.scalar(at, part.schema.field("at").type)))
            parts.insert(0, young)
            if young.num_rows < part.num_rows or sum(p.num_rows for p in parts) >= most:
                break
        facts = pa.concat_tables(parts) if parts else self._disk.arrow.empty_table()
        return facts.slice(max(0, facts.num_rows - most))

    def about(self, partition_id: PartitionId, numbers: tuple[int, ...], end: int) -> list[Row]:
        """The facts that explain a partition, in order: its own facts before the number `end`, the facts with these numbers, the first
        fact, and the facts that say which member joined when.
        """
        rows: list[Row] = []
        kinds = pa.array([Kind.MEMBER_JOINED.value, Kind.GROUP_DELETED.value], pa.string())
        for part in self._backwards(end):
            own = pc.and_(pc.equal(part["queue_id"], partition_id[0]), pc.equal(part["partition"], partition_id[1]))
            named = pc.is_in(part["seq"], value_set=pa.array([0, *numbers], pa.int64()))
            rows = [*part.filter(_any([own, named, pc.is_in(part["kind"], value_set=kinds)])).to_pylist(), *rows]
        return rows

    def _backwards(self, end: int) -> Iterator[pa.Table]:
        """The facts before a number, file by file: in each file in order, the file with the newest facts first. No table is empty."""
        for file in reversed(self._files):
            if file.first < min(end, file.end):
                yield self._facts(file).slice(0, min(end, file.end) - file.first)

    def _facts(self, file: _File) -> pa.Table:
        facts = self._read(file.path)
        numbers = facts["seq"]
        if facts.num_rows != file.end - file.first or numbers[0].as_py() != file.first:
            raise CorruptTableError(
                f"{self._what}, version {self._version}, has facts {numbers[0]} and up where {file.first} to {file.end - 1} should be: facts are missing. "
                f"Restore the table from a backup, or {ANOTHER_GROUP}",
                path=file.path,
                version=self._version,
            )
        return facts

    def _read(self, path: str) -> pa.Table:
        """The facts of a file, ordered by their numbers."""
        if path not in self._kept:
            facts = self._disk.read_table(path, self._log.version)
            self._kept[path] = table_in_order(facts, self._what, self._log.version)
        self._kept.move_to_end(path)
        while sum(facts.nbytes for facts in self._kept.values()) > _MOST_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return self._kept[path]


def _any(masks: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """True where one of the masks is; null counts as False."""
    return functools.reduce(pc.or_, [pc.fill_null(mask, False) for mask in masks])
