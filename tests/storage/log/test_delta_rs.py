"""Tables that delta-rs writes, alone or in turn with us: what is read of them, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType

from spark_partq.core.errors import CorruptTableError
from spark_partq.storage.files import open_files
from spark_partq.storage.log import DeltaLog, TableSpec
from spark_partq.storage.store import Store
from tests.storage.log.damage import refused
from tests.storage.log.histories import PARTITION_BY, SCHEMA, removal
from tests.storage.log.readings import APPS, ours, theirs
from tests.storage.log.tables import FOLDER, handle, made


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
    for one in (log, foreign_handle(tmp_path, only_ours=True)):
        for _ in range(2):
            with pytest.raises(CorruptTableError, match=told):
                one.refresh()
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


def test_commit_of_another_writer(store: str) -> None:
    """What delta-rs committed is named, with the program and the operation."""
    disk = open_files(store, {})
    made(disk, 1)
    old = handle(disk)
    old.refresh()
    write_deltalake(Path(store) / FOLDER, pa.table({"n": [1], "base_offset": [1]}), mode="append")
    for one in (old, handle(disk)):
        refused(
            one.refresh, r"0002\.json: it was committed by delta-rs.* \(WRITE\), and only spark_partq may write here"
        )
    DeltaTable(Path(store) / FOLDER).create_checkpoint()
    refused(handle(disk).refresh, r"0002\.checkpoint\.parquet: it names the file 'base_offset=1/part-")


def test_metadata_of_another_writer(store: str) -> None:
    """A feature that another writer has switched on."""
    disk = open_files(store, {})
    made(disk, 1)
    other = DeltaTable(Path(store) / FOLDER)
    other.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    refused(handle(disk).refresh, r"0002\.json: ")
