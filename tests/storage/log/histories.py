"""Any history of a table: several processes commit, write checkpoints, clean up and die."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_partq.core.payload.schema import payload_schema, with_columns
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import LONG_LOG, SHORT_LOG, Add, Conflict, DeltaLog, Remove, TableSpec
from spark_partq.storage.log.folder import HINT, LogFolder
from spark_partq.storage.queue.file_index import partition_values
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.storage.log.readings import APPS, File, Reading, ours, theirs, typed

SCHEMA = with_columns(
    payload_schema("v bigint"), ("_row", "long"), ("base_offset", "long"), ("_enqueued_at", "timestamp")
)
PARTITION_BY = ("base_offset", "_enqueued_at")
EXPIRED = "expired"
NAMES = ["part-{}.parquet", "part {}.parquet", "part%20{}.parquet", "é+={}#?.parquet", "a:b&{}~!.parquet"]
HOUR_S = 3_600


class Crash(BaseException):
    """Stands for the death of a process."""


class CrashingFiles(DiskFiles):
    """Files of a disk; the process dies at one of its writing operations, before or after it is done."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._left: int | None = None
        self._done = False

    def __deepcopy__(self, _: object) -> CrashingFiles:
        return self

    @contextmanager
    def dying(self, point: tuple[int, bool] | None) -> Iterator[None]:
        """Die at the n-th operation from here, after it was done or before."""
        self._left, self._done = point if point is not None else (None, False)
        try:
            yield
        finally:
            self._left = None

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._operation(path):
            super().put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        with self._operation(path):
            super().put(path, data)

    def delete(self, path: str) -> None:
        with self._operation():
            super().delete(path)

    def open_output(self, path: str) -> Any:
        with self._operation(path):
            return super().open_output(path)

    @contextmanager
    def _operation(self, path: str | None = None) -> Iterator[None]:
        if self._left is not None:
            self._left -= 1
        if self._left == 0 and not self._done:
            if path is not None:  # whoever dies while he writes leaves half a temporary file
                Path(self._temporary(path)).write_bytes(b'{"commitInfo":{"oper')
            raise Crash
        yield
        if self._left == 0:
            raise Crash


def forgets(transactions: Mapping[str, object], _: int) -> list[str]:
    return [app for app in transactions if app == EXPIRED]


writers = st.integers(0, 2)
deaths = st.none() | st.none() | st.tuples(st.integers(1, 4), st.booleans())
recorded = st.dictionaries(st.sampled_from(APPS), st.integers(0, 2**63 - 1), max_size=2)


class Histories(RuleBasedStateMachine):
    """Several processes write one table; after each step delta-rs, our readers and a plain model agree about it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.uri = f"{self.root}/t"
        self.files = CrashingFiles(self.root)
        self.folder = LogFolder(Store.over(self.files), "t")
        self.writers = [self.fresh() for _ in range(3)]
        self.model: Reading | None = None
        self.adds: dict[str, Add] = {}
        self.removed: list[str] = []
        self.names = 0
        self.seen: tuple[object, Reading | None] = None, None
        self.patch, clock, self.later_s = pytest.MonkeyPatch(), SYSTEM.monotonic_s, 0
        self.patch.setattr(SYSTEM, "monotonic_s", lambda: clock() + self.later_s)

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.root)

    def fresh(self) -> DeltaLog:
        return DeltaLog(Store.over(self.files), "t", "the table", expired=forgets)

    # ---- what is compared
    def judge(self) -> Reading | None:
        """The reading of delta-rs, again only if a file of the log has changed."""
        state = self.files.list_files("t/_delta_log")
        if state != self.seen[0]:
            self.seen = state, theirs(self.uri)
        return self.seen[1]

    @invariant()
    def all_agree(self) -> None:
        judged = self.judge()
        assert ours(self.fresh()) == judged, "a fresh handle differs from delta-rs"
        remembered = without_expired(judged)
        assert remembered == without_expired(self.model), "delta-rs differs from the model"
        for writer in self.writers:
            # A twin refreshes, so that who is behind stays behind.
            assert without_expired(ours(copy.deepcopy(writer))) == remembered, "a handle differs after a refresh"

    # ---- steps
    @initialize(short=st.booleans(), death=deaths)
    def create(self, short: bool, death: tuple[int, bool] | None) -> None:
        configuration = {**(SHORT_LOG if short else LONG_LOG), "delta.appendOnly": "false"}
        writer, spec = self.writers[0], TableSpec(SCHEMA, PARTITION_BY, configuration)
        if self.died(0, death, lambda: writer.create(spec)) and theirs(self.uri) is None:
            self.writers[0].create(spec)
        judged = theirs(self.uri)
        assert judged is not None
        no_apps: dict[str, int | None] = dict.fromkeys(APPS)
        self.model = Reading(0, {}, no_apps, judged.table_id, list(PARTITION_BY), configuration, SCHEMA)

    @rule(who=writers, death=deaths)
    def create_again(self, who: int, death: tuple[int, bool] | None) -> None:
        """Somebody makes the table though it is there, and is told so."""
        self.writers[who] = self.fresh()

        def attempt() -> None:
            try:
                self.writers[who].create(TableSpec(SCHEMA, PARTITION_BY))
            except Conflict:
                return
            raise AssertionError("somebody made a table that is there")

        self.died(who, death, attempt)

    @rule(who=writers, names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), apps=recorded, death=deaths)
    def append(self, who: int, names: list[str], apps: dict[str, int], death: tuple[int, bool] | None) -> None:
        self.commit(who, [self.new_file(name) for name in names], [], apps, death)

    @precondition(lambda self: self.adds)
    @rule(who=writers, data=st.data(), apps=recorded, death=deaths)
    def remove(self, who: int, data: st.DataObject, apps: dict[str, int], death: tuple[int, bool] | None) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.adds)), min_size=1, max_size=3, unique=True))
        bare, ago_ms = data.draw(st.booleans()), data.draw(st.sampled_from([0, 2 * HOUR_S * 1000]))
        removes = [removal(self.adds[name], ago_ms) for name in gone]
        removes = [changed(r, size=None, partition_values=None) if bare else r for r in removes]
        self.commit(who, [], removes, apps, death)

    @precondition(lambda self: self.adds)
    @rule(who=writers, data=st.data(), name=st.sampled_from(NAMES), death=deaths)
    def compact(self, who: int, data: st.DataObject, name: str, death: tuple[int, bool] | None) -> None:
        """One file takes the place of some."""
        gone = data.draw(st.lists(st.sampled_from(sorted(self.adds)), min_size=1, max_size=2, unique=True))
        removes = [changed(removal(self.adds[n]), data_change=False) for n in gone]
        self.commit(who, [changed(self.new_file(name), data_change=False)], removes, {}, death)

    @precondition(lambda self: self.removed)
    @rule(who=writers, data=st.data(), death=deaths)
    def bring_back(self, who: int, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """A file that was removed is live again, as after a restore."""
        name = data.draw(st.sampled_from(sorted(set(self.removed))))
        self.commit(who, [changed(self.new_file(""), path=name)], [], {}, death)

    @rule(who=writers, apps=recorded, death=deaths)
    def record(self, who: int, apps: dict[str, int], death: tuple[int, bool] | None) -> None:
        self.commit(who, [], [], apps, death)

    @rule(who=writers, commits=st.integers(2, 4), apps=recorded)
    def go_on(self, who: int, commits: int, apps: dict[str, int]) -> None:
        """One process commits several times, while the others sleep."""
        self.writers[who].refresh()
        for _ in range(commits):
            self.commit(who, [self.new_file(NAMES[0])], [], apps, None)

    @rule(who=writers, death=deaths, by_handle=st.booleans())
    def checkpoint(self, who: int, death: tuple[int, bool] | None, by_handle: bool) -> None:
        self.died(who, death, self.writers[who].checkpoint if by_handle else self.folder.write_checkpoint)

    @rule(who=writers, data=st.data(), death=deaths)
    def clean_up(self, who: int, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """Time passes, and the oldest versions get so old that a checkpoint lets them be removed."""
        self.later_s += 2 * HOUR_S
        names = self.folder.names()
        before = data.draw(st.just(names.last) | st.integers(0, names.last))
        for path in [
            *(self.folder.entry_path(v) for v in names.entries if v < before),
            *(self.folder.checkpoint_path(v) for v in names.checkpoints if v < before),
        ]:
            found = self.files.info(path)
            assert found is not None
            at_s = found.modified_ns / 1e9 - 2 * HOUR_S
            os.utime(f"{self.root}/{path}", (at_s, at_s))
        self.died(who, death, self.writers[who].checkpoint)

    @rule()
    def lose_hint(self) -> None:
        self.files.delete(f"t/_delta_log/{HINT}")

    @rule(who=writers)
    def refresh(self, who: int) -> None:
        self.writers[who].refresh()

    @rule(who=writers)
    def restart(self, who: int) -> None:
        self.writers[who] = self.fresh()

    # ---- how
    def new_file(self, name: str) -> Add:
        self.names += 1
        n = self.names
        bounds = {"minValues": {"v": n}, "maxValues": {"v": 2 * n}, "nullCount": {"v": 0}}
        stats = json.dumps({"numRecords": n, **bounds})
        values = partition_values(n * 100, 1_700_000_000_000_000 + n)
        if n % 5 == 4:
            values, stats = dict.fromkeys(PARTITION_BY), "{}" if n % 2 else '{"numRecords":0}'
        return Add(name.format(n), 1000 + n, values, stats, SYSTEM.time_ns() // 1_000_000)

    def commit(
        self,
        who: int,
        adds: Sequence[Add],
        removes: Sequence[Remove],
        apps: Mapping[str, int],
        death: tuple[int, bool] | None,
    ) -> None:
        """Commit; exactly who has not seen the newest version meets a conflict, and refreshes."""
        model, writer = self.model, self.writers[who]
        assert model is not None
        if writer.version < 0:
            writer.refresh()
        behind = writer.version != model.version

        def attempt() -> None:
            try:
                writer.commit(adds, removes, apps)
            except Conflict:
                assert behind, "a conflict met somebody who knew the newest version"
                writer.refresh()
            else:
                assert not behind, "somebody committed upon an old version"
            assert writer.version == model.version + (not behind)

        died = self.died(who, death, attempt)
        judged = self.judge()
        assert judged is not None
        if died and judged.version == model.version:
            return
        if behind:
            assert judged.version == model.version
            return
        for remove in removes:
            del self.adds[remove.path]
        self.adds |= {add.path: add for add in adds}
        self.removed = [*(n for n in self.removed if n not in self.adds), *(remove.path for remove in removes)]
        files = {
            name: File(
                add.size,
                add.rows,
                {column: typed(add.partition_values[column], type_of(column)) for column in PARTITION_BY},
            )
            for name, add in self.adds.items()
        }
        transactions = {**model.transactions, **apps}
        self.model = replace(model, version=model.version + 1, files=files, transactions=transactions)

    def died(self, who: int, death: tuple[int, bool] | None, act: Callable[[], object]) -> bool:
        """Whether the process died while it acted; another one comes in its place."""
        try:
            with self.files.dying(death):
                act()
        except Crash:
            self.writers[who] = self.fresh()
            return True
        return False


def without_expired(reading: Reading | None) -> Reading | None:
    """Who has seen an expired transaction may remember it longer than a checkpoint does."""
    if reading is None:
        return None
    return replace(reading, transactions={app: v for app, v in reading.transactions.items() if app != EXPIRED})


def changed(action: Any, **changes: Any) -> Any:
    return action._replace(**changes)


def removal(add: Add, ago_ms: int = 0) -> Remove:
    return Remove(add.path, SYSTEM.time_ns() // 1_000_000 - ago_ms, add.size, add.partition_values)


def type_of(column: str) -> str:
    return str(next(field["type"] for field in SCHEMA["fields"] if field["name"] == column))
