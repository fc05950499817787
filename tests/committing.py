"""What an application of a campaign commits to the tables of groups: invoked when, and told when that it is in.

Each process writes a file of its own into the folder `commits` beside the store, if that folder is there, or into the one that its
environment names, as an object store has none beside it. Its JSON lines are

- ``{"kind": "decide", "id", "group", "store", "at", "looked": [began, ended], "facts"}``: it is about to commit facts that follow from
  what it saw when it looked;
- ``{"kind": "acknowledge", "id", "group", "store", "at", "rows"}``: it is about to commit rows to the ack table;
- ``{"kind": "told", "id", "at", "is_in"}``: what came of it. Who is killed, or does not know, never writes it.

Times are those of the one monotonic clock of the machine.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.group.handle import Group
from spark_partq.storage.log import Conflict

FOLDER, VARIABLE = "commits", "APPLICATION_COMMITS"
_COLUMNS = (
    "kind", "partition", "offset", "delivered", "epoch_before", "epoch", "lineage_epoch", "flow", "to_flow", "instance", "incarnation",
    "status", "cause", "by",
)  # fmt: skip


def known_by(fact: Mapping[str, Any]) -> dict[str, Any]:
    """The columns by which a fact is known again."""
    return {name: fact.get(name) for name in _COLUMNS}


class _Record:
    """The file of this process in one folder."""

    def __init__(self, folder: Path) -> None:
        self._run, self._numbers = uuid.uuid4().hex[:8], itertools.count()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(folder / f"{self._run}.jsonl", flags, 0o644)

    def begins(self, kind: str, **about: Any) -> Callable[[bool], None]:
        """Write down that it is invoked; what it returns writes down what came of it."""
        name = f"{self._run}-{next(self._numbers)}"
        self._write({"kind": kind, "id": name, "at": time.monotonic(), **about})
        return lambda is_in: self._write({"kind": "told", "id": name, "at": time.monotonic(), "is_in": is_in})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")  # one call, so lines of several threads do not mix


class Commits:
    """Patches the tables of groups in this process for good."""

    def __init__(self) -> None:
        self._records: dict[Path, _Record] = {}
        self._lock = threading.Lock()
        mock.patch.object(Group, "refresh", self._refresh(Group.refresh)).start()
        mock.patch.object(Group, "decide", self._invoked(Group.decide)).start()
        mock.patch.object(ControlTable, "commit", self._decide(ControlTable.commit)).start()
        mock.patch.object(AckTable, "append", self._acknowledge(AckTable.append)).start()

    def _record(self, store: str) -> _Record | None:
        folder = Path(os.environ.get(VARIABLE) or Path(store).parent / FOLDER)
        with self._lock:
            if folder not in self._records and folder.is_dir():
                self._records[folder] = _Record(folder)
            return self._records.get(folder)

    def _refresh(self, refresh: Callable[[Group], bool]) -> Callable[[Group], bool]:
        def patched(group: Group) -> bool:
            began = time.monotonic()
            changed = refresh(group)
            group._control._looked = (began, time.monotonic())  # type: ignore[attr-defined]
            return changed

        return patched

    def _invoked(self, decide: Callable[..., list[GroupFact]]) -> Callable[..., list[GroupFact]]:
        def patched(group: Group, *arguments: Any, **named: Any) -> list[GroupFact]:
            group._control._invoked = time.monotonic()  # type: ignore[attr-defined]
            return decide(group, *arguments, **named)

        return patched

    def _decide(
        self, commit: Callable[[ControlTable, Sequence[GroupFact]], None]
    ) -> Callable[[ControlTable, Sequence[GroupFact]], None]:
        def patched(table: ControlTable, facts: Sequence[GroupFact]) -> None:
            record = self._record(table._store.uri)
            if record is None:
                return commit(table, facts)
            group = table._disk._folder.split("/")[1]
            numbered = [{"seq": seq, **known_by(vars(fact))} for seq, fact in enumerate(facts, table.state.seq)]
            # Whoever did not look since it was told to decide should have.
            now = time.monotonic()
            invoked = getattr(table, "_invoked", now)
            began, ended = getattr(table, "_looked", (0.0, 0.0))
            looked = (began, ended) if began >= invoked else (invoked, now)
            told = record.begins("decide", group=group, store=table._store.uri, looked=looked, facts=numbered)
            try:
                commit(table, facts)
            except Conflict:
                told(False)
                raise
            told(True)

        return patched

    def _acknowledge(self, append: Callable[..., None]) -> Callable[..., None]:
        def patched(table: AckTable, rows: Sequence[AckRow], *arguments: Any) -> None:
            of_partitions = [vars(row) for row in rows if row.partition is not None]
            record = self._record(table._store.uri) if of_partitions else None
            if record is None:
                return append(table, rows, *arguments)
            about = {"group": table._group, "store": table._store.uri, "rows": of_partitions}
            told = record.begins("acknowledge", **about)
            append(table, rows, *arguments)
            told(True)

        return patched
