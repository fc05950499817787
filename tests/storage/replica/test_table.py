"""The table that says what a replica is: its cost does not grow with the number of passes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.replica import decide
from spark_partq.core.replica.facts import Kind
from spark_partq.storage.replica.table import MERGE_AFTER, SYNCED, ReplicaTable
from spark_partq.storage.rows import RowFiles
from spark_partq.storage.store import Store
from spark_partq.storage.upkeep import UPKEEP

FOLDERS = "queues/q/partitions/partition=0", "groups/g/acks"


@pytest.fixture
def table(store: str) -> ReplicaTable:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    made = ReplicaTable(Store.at(store), "q")
    made.decide(lambda state: decide.follow(state, "r", "/primary", "/standby", "id"))
    return made


@pytest.fixture
def read() -> Iterator[list[str]]:
    """The files of rows that are read."""
    found: list[str] = []

    def reading(self: RowFiles, path: str, *args: int) -> object:
        found.append(path)
        return original(self, path, *args)

    original = RowFiles.read
    with mock.patch.object(RowFiles, "read", reading):
        yield found


def jump(table: ReplicaTable, versions: range) -> None:
    """As passes do that find both tables cleaned up."""
    for version in versions:
        for folder in FOLDERS:
            table.decide(lambda state, f=folder, v=version: decide.announce_jump(state, f, v))  # type: ignore[misc]


def test_jumps_are_merged(table: ReplicaTable) -> None:
    """S7: of each table one is left, and files as few as before; whoever followed it meanwhile knows as much."""
    other = ReplicaTable(table.store, "q")
    other.refresh()
    jump(table, range(3 * MERGE_AFTER))
    state = table.refresh()
    assert state is not None and state.jumps == dict.fromkeys(FOLDERS, 3 * MERGE_AFTER - 1)
    assert state == other.refresh() == ReplicaTable(table.store, "q").refresh()
    rows = table._rows.rows()
    assert [row["seq"] for row in rows] == list(range(len(rows))) and rows[0]["kind"] == Kind.REPLICA_OF
    assert len(rows) <= 2 * MERGE_AFTER and len(table._rows.files) <= MERGE_AFTER


def test_files_of_merged_facts_are_deleted(table: ReplicaTable) -> None:
    folder = Path(table.store.uri, "queues/q/replica")
    (folder / SYNCED).write_text("{}")
    jump(table, range(MERGE_AFTER))
    UPKEEP.wait()
    for path in [*folder.iterdir(), *(folder / "_delta_log").iterdir()]:
        os.utime(path, (1e9, 1e9))
    merged = set(folder.glob("*.parquet"))
    with mock.patch("spark_partq.storage.replica.table._GRACE_MS", 0):
        jump(table, range(MERGE_AFTER, 2 * MERGE_AFTER))
        UPKEEP.wait()
    assert (folder / SYNCED).exists()
    assert not merged & set(folder.glob("*.parquet"))
    assert ReplicaTable(table.store, "q").refresh() == table.refresh()


def test_a_row_that_is_no_fact(table: ReplicaTable) -> None:
    """The error names the table."""
    table._rows.append([{"seq": -1, "kind": "Anything", "body": "{}", "by": "", "at": table.store.now()}])
    with pytest.raises(
        partq.CorruptTableError, match=r"the replica table of queue 'q' in .*, version 1, holds a row that is no fact"
    ):
        ReplicaTable(table.store, "q").refresh()


def test_a_look_reads_what_is_new(table: ReplicaTable, read: list[str]) -> None:
    jump(table, range(5))
    other = ReplicaTable(table.store, "q")
    for news, files in ((0, 11), (0, 0), (1, 2)):
        jump(table, range(5, 5 + news))
        read.clear()
        assert other.refresh() == table.refresh()
        assert len(read) == files


def test_a_table_that_was_made_again(table: ReplicaTable, store: str) -> None:
    jump(table, range(5))
    other = ReplicaTable(table.store, "q")
    assert other.refresh() is not None
    partq.delete_queue(store, "q")
    assert other.refresh() is None and table.refresh() is None
    table.decide(lambda state: decide.follow(state, "another", "/primary", "/standby", "id"))
    state = other.refresh()
    assert state is not None and (state.replica_id, state.jumps) == ("another", {})
