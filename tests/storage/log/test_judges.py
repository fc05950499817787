"""What our log says, judged by delta-rs; and what delta-rs's log says, read by ours."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import PrimitiveType
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.payload.schema import payload_schema, with_columns
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import (
    LONG_LOG,
    SHORT_LOG,
    Add,
    Conflict,
    DeltaLog,
    Remove,
    Snapshot,
    TableSpec,
    checkpoints,
    entries,
    folder,
    table,
)
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import HINT, LogFolder
from spark_partq.storage.queue.file_index import partition_values
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store

SCHEMA = with_columns(
    payload_schema("v bigint"), ("_row", "long"), ("base_offset", "long"), ("_enqueued_at", "timestamp")
)
PARTITION_BY = ("base_offset", "_enqueued_at")
# The second one is what the writers let a checkpoint forget.
APPS = ["partq:next", "expired", "partq:sink/s one/0", "é%20/ü"]
EXPIRED = "expired"
NAMES = ["part-{}.parquet", "part {}.parquet", "part%20{}.parquet", "é+={}#?.parquet", "a:b&{}~!.parquet"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HOUR_S = 3_600


# ---- a reading of a table, by whoever
@dataclass(frozen=True)
class File:
    """What the log tells of one live file."""

    size: int
    rows: int | None
    partition: Mapping[str, int | str | None]


@dataclass(frozen=True)
class Reading:
    """A table as one reader sees it."""

    version: int
    files: Mapping[str, File]
    transactions: Mapping[str, int | None]
    table_id: str
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    schema: Any


def theirs(uri: str, apps: Sequence[str] = APPS) -> Reading | None:
    """The table as delta-rs reads it; None if it finds none."""
    try:
        table = DeltaTable(uri)
    except TableNotFoundError:
        return None
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = {
        unquote(action["path"]): File(
            action["size_bytes"],
            action.get("num_records"),
            {
                name.removeprefix("partition."): comparable(value)
                for name, value in action.items()
                if name.startswith("partition.")
            },
        )
        for action in actions
    }
    assert len(files) == len(actions), "delta-rs lists a file twice"
    metadata = table.metadata()
    return Reading(
        table.version(),
        files,
        {app: table.transaction_version(app) for app in apps},
        str(metadata.id),
        list(metadata.partition_columns),
        dict(metadata.configuration),
        json.loads(table.schema().to_json()),
    )


def ours(log: DeltaLog, apps: Sequence[str] = APPS) -> Reading | None:
    """The table as a handle of this package sees it."""
    if not log.exists():
        return None
    log.refresh()
    snapshot = log.snapshot
    assert snapshot.version == log.version
    return reading_of(snapshot, apps)


def reading_of(snapshot: Snapshot, apps: Sequence[str] = APPS) -> Reading:
    """The snapshot as a reading."""
    metadata = snapshot.metadata
    assert metadata is not None
    types = {field["name"]: field["type"] for field in json.loads(metadata.schema)["fields"]}
    files = {}
    for name, add in snapshot.files.items():
        values = {column: typed(value, types[column]) for column, value in add.partition_values.items()}
        assert name == add.path
        files[name] = File(add.size, add.rows, values)
    versions = {app: txn.version for app, txn in snapshot.transactions.items()}
    return Reading(
        snapshot.version,
        files,
        {app: versions.get(app) for app in apps},
        metadata.id,
        list(metadata.partition_columns),
        dict(metadata.configuration),
        json.loads(metadata.schema),
    )


def comparable(value: Any) -> int | str | None:
    """A partition value of delta-rs; a time as microseconds, a date as text."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(microseconds=1)
    return value.isoformat() if isinstance(value, dt.date) else value


def typed(text: str | None, type_: str) -> int | str | None:
    """A partition value of the log, which is text, as `comparable` has it."""
    if text is None:
        return None
    if type_ == "timestamp":
        return comparable(dt.datetime.fromisoformat(text))
    if type_ == "date":
        return comparable(dt.date.fromisoformat(text))
    return int(text) if type_ == "long" else text


# ---- any history of our own commits
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
            # A twin looks, so that who is behind stays behind.
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
    def look(self, who: int) -> None:
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


def test_any_history_is_read_alike() -> None:
    """Q6: delta-rs reads every history of our commits, checkpoints, clean-ups and crashes as we do."""
    run_state_machine_as_test(Histories, settings=settings(max_examples=60, stateful_step_count=30))


# ---- bugs that are planted
def removes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    apply = Snapshot.apply
    patch.setattr(Snapshot, "apply", lambda self, entry: apply(self, replace(entry, removes=())))


def checkpoints_drop_transactions(patch: pytest.MonkeyPatch) -> None:
    encode = checkpoints.encode_checkpoint
    patch.setattr(folder, "encode_checkpoint", lambda snapshot: encode(replace(snapshot, transactions={})))


def checkpoints_drop_statistics(patch: pytest.MonkeyPatch) -> None:
    array = checkpoints._adds_array
    patch.setattr(checkpoints, "_adds_array", lambda adds: array([add._replace(stats=None) for add in adds]))


def checkpoints_revive_removed_files(patch: pytest.MonkeyPatch) -> None:
    encode = checkpoints.encode_checkpoint

    def revived(snapshot: Snapshot) -> tuple[bytes, int]:
        dead = (snapshot.tombstones or {}).values()
        files = {t.path: Add(t.path, t.size or 0, t.partition_values or dict.fromkeys(PARTITION_BY)) for t in dead}
        return encode(replace(snapshot, files=snapshot.files | files, tombstones={}))

    patch.setattr(folder, "encode_checkpoint", revived)


def names_are_not_encoded(patch: pytest.MonkeyPatch) -> None:
    """Our readers cannot notice: they do not decode names, either."""
    for module in (entries, checkpoints):
        for function in ("quote", "unquote"):
            patch.setattr(module, function, str)


def commits_overwrite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DiskFiles, "put_if_absent", DiskFiles.put)


def any_free_name_will_do(patch: pytest.MonkeyPatch) -> None:
    """Whoever slept while the log was cleaned up takes the name of an entry that was removed."""

    def put_entry(log: LogFolder, version: int, entry: Entry, *_: object) -> None:
        try:
            log.files.put_if_absent(log.entry_path(version), entries.encode(entry))
        except FileAlreadyExists:
            raise Conflict from None

    patch.setattr(table, "put_entry", put_entry)


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    removes_are_ignored: "a fresh handle differs from delta-rs",
    checkpoints_drop_transactions: "delta-rs differs from the model",
    checkpoints_drop_statistics: "delta-rs differs from the model",
    checkpoints_revive_removed_files: "delta-rs differs from the model",
    names_are_not_encoded: "a fresh handle differs from delta-rs",
    commits_overwrite: "somebody committed upon an old version|somebody made a table that is there",
    any_free_name_will_do: "somebody committed upon an old version|somebody made a table that is there",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """The histories find each of these bugs, so they would find one of its kind."""
    plant(monkeypatch)
    quick = settings(max_examples=100, stateful_step_count=30, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=PLANTED[plant]):
        run_state_machine_as_test(Histories, settings=quick)


# ---- delta-rs's own tables
def rows(first: int, count: int) -> pa.Table:
    """Rows whose partition values hold what a path or a URL would change, and none at all."""
    keys = ["plain", "é /%20+=&", None]
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([keys[n % 3] for n in numbers], pa.string()),
            "day": pa.array([dt.date(2024, 1, 1 + n % 2) for n in numbers], pa.date32()),
        }
    )


def with_transactions(*transactions: tuple[str, int]) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app, version) for app, version in transactions])


def made_by_delta_rs(uri: str, partition_by: Sequence[str] = ("k", "day")) -> None:
    properties = with_transactions((APPS[0], 1))
    write_deltalake(uri, rows(0, 12), partition_by=list(partition_by), commit_properties=properties)


THEIR_STEPS: dict[str, Callable[[str], object]] = {
    "append": lambda uri: write_deltalake(
        uri, rows(12, 7), mode="append", commit_properties=with_transactions((APPS[0], 2), (APPS[3], 2**40))
    ),
    "delete rows": lambda uri: DeltaTable(uri).delete("n = 3 or n = 13"),
    "delete partitions": lambda uri: DeltaTable(uri).delete("k = 'plain'"),
    "checkpoint": lambda uri: DeltaTable(uri).create_checkpoint(),
    "append behind the checkpoint": lambda uri: write_deltalake(
        uri, rows(20, 3), mode="append", commit_properties=with_transactions((APPS[0], 3))
    ),
    "update": lambda uri: DeltaTable(uri).update(updates={"n": "n + 100"}, predicate="n < 8"),
    "compact": lambda uri: DeltaTable(uri).optimize.compact(),
    "add a column": lambda uri: DeltaTable(uri).alter.add_columns(DeltaField("more", PrimitiveType("long"))),
    "overwrite a part": lambda uri: write_deltalake(
        uri, rows(31, 1), mode="overwrite", predicate="day = '2024-01-02'", schema_mode="merge"
    ),
    "restore": lambda uri: DeltaTable(uri).restore(4),
    "set a property": lambda uri: DeltaTable(uri).alter.set_table_properties({"delta.appendOnly": "false"}),
    "overwrite": lambda uri: write_deltalake(uri, rows(40, 4), mode="overwrite"),
    "vacuum": lambda uri: DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False),
    "checkpoint again": lambda uri: DeltaTable(uri).create_checkpoint(),
    "remove old entries": lambda uri: DeltaTable(uri).cleanup_metadata(),
}


def foreign_handle(folder_of_tables: Path, *, only_ours: bool = False) -> DeltaLog:
    """A handle on the table `t` of that folder, to which other programs may commit."""
    return DeltaLog(Store(str(folder_of_tables)), "t", "the table", only_ours=only_ours)


def test_their_commits_are_read_alike(tmp_path: Path) -> None:
    """Our reader sees what delta-rs sees after each commit, checkpoint and clean-up of delta-rs itself."""
    uri = str(tmp_path / "t")
    made_by_delta_rs(uri)
    kept = foreign_handle(tmp_path)
    assert ours(kept) == theirs(uri) is not None
    for name, step in THEIR_STEPS.items():
        step(uri)
        judged = theirs(uri)
        assert ours(foreign_handle(tmp_path)) == judged, name
        assert ours(kept) == judged, name
    assert judged is not None
    assert judged.version == 13
    assert judged.transactions == {**dict.fromkeys(APPS), APPS[0]: 3, APPS[3]: 2**40}
    assert sorted(file.rows or 0 for file in judged.files.values()) == [1, 1, 1, 1]


def test_both_commit_to_one_table(tmp_path: Path) -> None:
    """delta-rs and our writer take turns, and each sees and keeps what the other one did, behind the checkpoints of both."""
    uri = str(tmp_path / "t")
    made_by_delta_rs(uri, partition_by=())  # folders of partitions have names that delta-rs and we encode differently
    log = foreign_handle(tmp_path)
    for turn in range(4):
        log.refresh()
        some = sorted(log.snapshot.files)[turn]
        gone = log.snapshot.files[some]
        log.commit([gone._replace(path=f"é %20 {turn}.parquet")], [removal(gone)], {APPS[2]: turn})
        os.link(f"{uri}/{some}", f"{uri}/é %20 {turn}.parquet")
        if turn % 2:
            log.checkpoint()
        assert ours(foreign_handle(tmp_path)) == ours(log) == theirs(uri)
        write_deltalake(
            uri, rows(50 + turn, 3), mode="append", commit_properties=with_transactions((APPS[0], 50 + turn))
        )
        DeltaTable(uri).delete(f"n = {turn}")
        if turn > 1:
            DeltaTable(uri).create_checkpoint()
        assert ours(foreign_handle(tmp_path)) == ours(log) == theirs(uri)
    judged = theirs(uri)
    assert judged is not None
    assert judged.transactions == {**dict.fromkeys(APPS), APPS[0]: 53, APPS[2]: 3}
    found = DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()
    assert sorted(found) == sorted([*range(4, 12), 50, 51, 51, 52, 52, 52, 53, 53, 53, 54, 54, 55])


def test_their_tables_are_refused(tmp_path: Path) -> None:
    """A handle that takes only our commits names the file and the program of another one's."""
    made_by_delta_rs(str(tmp_path / "t"))
    with pytest.raises(CorruptTableError, match=r"0{20}\.json: it was committed by delta-rs:py-\S+ \(WRITE\)"):
        foreign_handle(tmp_path, only_ours=True).refresh()


def test_their_commits_to_our_tables_are_refused(tmp_path: Path) -> None:
    """A handle that takes only our commits refuses one of delta-rs in between, whether it was there before or starts anew."""
    log = foreign_handle(tmp_path, only_ours=True)
    log.create(TableSpec(SCHEMA, PARTITION_BY))
    log.commit(transactions={APPS[0]: 1})
    DeltaTable(log.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    told = r"the table at \S+ cannot be read: 0{19}2\.json: it was committed by delta-rs:py-\S+ \(SET TBLPROPERTIES\)"
    for refused in (log, foreign_handle(tmp_path, only_ours=True)):
        for _ in range(2):
            with pytest.raises(CorruptTableError, match=told):
                refused.refresh()
    assert ours(foreign_handle(tmp_path)) == theirs(log.uri)


def test_their_features_are_refused(tmp_path: Path) -> None:
    """A table that asks for more than our reader knows is refused, and what it asks for is named."""
    uri = str(tmp_path / "t")
    made_by_delta_rs(uri)
    kept = foreign_handle(tmp_path)
    kept.refresh()
    DeltaTable(uri).alter.add_constraint({"positive": "n >= 0"})
    for log in (kept, foreign_handle(tmp_path)):
        with pytest.raises(CorruptTableError, match=r"0{19}1\.json: the table .*writer version 3"):
            log.refresh()
    DeltaTable(uri).create_checkpoint()
    with pytest.raises(CorruptTableError, match=r"0{19}1\.checkpoint\.parquet: the table .*writer version 3"):
        foreign_handle(tmp_path).refresh()
