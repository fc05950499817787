"""Checkpoints that are damaged or of something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log.checkpoints import encode_checkpoint
from tests.storage.log.damage import busy, refused, refused_by_all
from tests.storage.log.tables import FOLDER, checkpoint_path, entry_path, fresh, handle, made


def test_checkpoint_that_is_cut_short(files: MemoryFiles) -> None:
    writer = busy(files)
    writer.checkpoint()
    whole = files.read(checkpoint_path(4))
    for length in [*range(0, len(whole), 97), *range(len(whole) - 20, len(whole))]:
        files.put(checkpoint_path(4), whole[:length])
        refused(handle(files).refresh, r"0004\.checkpoint\.parquet: it is cut short or damaged")
        assert files.read(checkpoint_path(4)) == whole[:length]
    refused_by_all(files, [], r"0004\.checkpoint\.parquet: it is cut short or damaged")
    files.put(checkpoint_path(4), whole)
    assert fresh(files).version == 4


def test_checkpoint_of_another_version(files: MemoryFiles) -> None:
    """A checkpoint under a wrong name."""
    writer = busy(files)
    writer.checkpoint()
    files.put(checkpoint_path(3), files.read(checkpoint_path(4)))
    files.delete(checkpoint_path(4))
    refused_by_all(files, [], r"0003\.checkpoint\.parquet: it was written for version 4")


def rewritten(files: MemoryFiles, change: Callable[[pa.Table], pa.Table]) -> None:
    whole = pq.read_table(pa.BufferReader(files.read(checkpoint_path(4))))
    sink = pa.BufferOutputStream()
    pq.write_table(change(whole), sink)
    files.put(checkpoint_path(4), sink.getvalue().to_pybytes())


def _without(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(whole: pa.Table) -> pa.Table:
        at = whole.schema.get_field_index(name)
        return whole.set_column(at, whole.schema.field(name), pa.nulls(whole.num_rows, whole.schema.field(name).type))

    return change


def _with(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda whole: whole.append_column(name, pa.array([{"path": "x"}] + [None] * (whole.num_rows - 1)))


def _with_deletion_vector(whole: pa.Table) -> pa.Table:
    rows = whole["add"].to_pylist()
    live = [{**row, "partitionValues": None, "deletionVector": {"storageType": "u"}} if row else None for row in rows]
    return whole.set_column(whole.schema.get_field_index("add"), "add", pa.array(live))


def _changed(kind: str, field: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """With another value of a field in each action of a kind."""

    def change(whole: pa.Table) -> pa.Table:
        at = whole.schema.get_field_index(kind)
        rows = [row and {**row, field: value} for row in whole[kind].to_pylist()]
        type_ = whole.schema.field(at).type if value is None or kind == "metaData" else None
        return whole.set_column(at, kind, pa.array(rows, type_) if type_ else pa.array(_without_maps(rows)))

    return change


def _without_maps(rows: list[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Arrow makes no map of Python's values by itself."""
    return [row and {n: v for n, v in row.items() if n not in ("partitionValues", "tags")} for row in rows]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_changed("add", "size", None), "an action add has no size"),
        (_changed("add", "path", None), "an action add has no path"),
        (_changed("add", "modificationTime", None), "an action add has no modificationTime"),
        (_changed("add", "size", "7"), "add.size is of type string"),
        (_changed("txn", "version", None), "an action txn has no version"),
        (_changed("txn", "appId", None), "an action txn has no appId"),
        (_changed("txn", "version", 1.5), "txn.version is of type double"),
        (_changed("metaData", "schemaString", "no JSON"), "it is cut short or damaged"),
        (_changed("metaData", "schemaString", None), "it is cut short or damaged"),
        (_without("protocol"), "it has 0 protocols and 1 table metadata"),
        (_without("metaData"), "it has 1 protocols and 0 table metadata"),
        (lambda whole: pa.concat_tables([whole, whole]), "it has 2 protocols and 2 table metadata"),
        (lambda whole: whole.drop_columns(["protocol"]), "it has no protocol, metadata or files"),
        (lambda whole: whole.drop_columns(["add"]), "it has no protocol, metadata or files"),
        (lambda whole: whole.slice(0, 0), "it has 0 protocols and 0 table metadata"),
        (lambda whole: pa.concat_tables([whole, whole.filter(whole["add"].is_valid())]), "it names a file twice"),
        (_with("sidecar"), "it has the actions sidecar"),
        (_with("checkpointMetadata"), "it has the actions checkpointMetadata"),
        (_with("domainMetadata"), "it has the actions domainMetadata"),
        (_with_deletion_vector, "deletion vector"),
        (lambda _: pa.table({"n": [1, 2]}), "it has no protocol, metadata or files"),
    ],
)
def test_checkpoint_of_something_else(files: MemoryFiles, change: Callable[[pa.Table], pa.Table], reason: str) -> None:
    """Bad input: whole Parquet files that are no checkpoints of this package."""
    busy(files).checkpoint()
    rewritten(files, change)
    refused_by_all(files, [], rf"0004\.checkpoint\.parquet: .*{reason}")


def test_checkpoint_that_names_a_file_twice(files: MemoryFiles) -> None:
    """Also by two spellings of its name."""
    writer = busy(files)
    snapshot = writer.log.load(tombstones=True)
    snapshot.files["x"] = next(iter(snapshot.files.values()))
    files.put(checkpoint_path(4), encode_checkpoint(snapshot)[0])
    refused_by_all(files, [], r"0004\.checkpoint\.parquet: it names a file twice")


@pytest.mark.parametrize(
    "name", ["checkpoint.{}.json", "checkpoint.{}.parquet", "checkpoint.0000000001.0000000002.parquet"]
)
def test_checkpoint_of_another_kind(files: MemoryFiles, name: str) -> None:
    """Version 2 checkpoints and those of several parts are not read; they are named where nothing else tells the table."""
    made(files, 4)
    path = f"{FOLDER}/_delta_log/{3:020d}.{name.format('0f6b7c1e-16b9-4a3d-8ed0-1f54ae9c2f0a')}"
    files.put(path, b"{}")
    assert fresh(files).version == 4  # the entries tell all
    for version in range(3):
        files.delete(entry_path(version))
    refused_by_all(files, [], re.escape(path.rpartition("/")[2]), "a kind that spark_partq does not write")


def test_commit_infos_in_a_checkpoint_say_nothing(files: MemoryFiles) -> None:
    """Other writers may put them there."""
    busy(files).checkpoint()
    expected = fresh(files)
    rewritten(files, _with("commitInfo"))
    assert fresh(files).version == 4 and fresh(files).files == expected.files


def test_a_checkpoint_of_a_table_without_transactions(files: MemoryFiles) -> None:
    """Other writers may leave out the column."""
    busy(files).checkpoint()
    expected = fresh(files)
    rewritten(files, lambda whole: whole.drop_columns(["txn"]))
    assert (fresh(files).files, fresh(files).transactions) == (expected.files, {}) and expected.transactions


def test_a_tombstone_need_not_say_of_which_partition_its_file_was(files: MemoryFiles) -> None:
    """That is not the same as a file without a partition."""

    def change(whole: pa.Table) -> pa.Table:
        at = whole.schema.get_field_index("remove")
        field, rows = whole.schema.field(at), whole["remove"].to_pylist()
        shorter = [row and {**row, "partitionValues": None, "dataChange": True} for row in rows]
        return whole.set_column(at, field, pa.array(shorter, field.type))

    busy(files).checkpoint()
    rewritten(files, change)
    found = handle(files).log.load(tombstones=True).tombstones
    assert found is not None and found["c"].partition_values is None and found["c"].data_change
