"""A user's Delta table as a sink sees it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

import spark_partq as partq
from spark_partq.core.payload.schema import payload_schema
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.log import Conflict
from spark_partq.storage.store import Store
from spark_partq.target.files import TableFile, TableWriter
from spark_partq.target.table import SUPPORTED, DeltaTarget
from tests.helpers import in_parallel
from tests.target.conftest import COLUMNS


def files(place: Store, values: list[int], keys: list[str | None] | None = None) -> list[TableFile]:
    schema = arrow_schema(payload_schema(COLUMNS))
    writer = TableWriter(place, schema, ["k"])
    keys = keys or ["a"] * len(values)
    writer.write(
        pa.RecordBatch.from_arrays(
            [pa.array(values), pa.nulls(len(values), pa.date32()), pa.array(keys)], schema=schema
        )
    )
    return writer.finish()


def test_rows_and_positions_go_in_together(place: Store, target: DeltaTarget) -> None:
    assert target.recorded("partq:g/id/0") is None
    target.commit(files(place, [1, 2, 3, 4], ["a", None, "ü/=%", ""]), {"partq:g/id/0": 7})
    target.refresh()
    assert target.recorded("partq:g/id/0") == 7
    rows = DeltaTable(place.uri).to_pyarrow_table().to_pylist()
    assert sorted((r["v"], r["k"]) for r in rows) == [(1, "a"), (2, None), (3, "ü/=%"), (4, None)]


def test_a_commit_is_a_compare_and_set(place: Store, target: DeltaTarget) -> None:
    slow = DeltaTarget(place)
    target.commit(files(place, [1]), {"a": 1})
    with pytest.raises(Conflict):
        slow.commit(files(place, [2]), {"b": 1})
    assert slow.recorded("a") == 1  # what is new was read
    slow.commit(files(place, [2]), {"b": 1})
    assert DeltaTable(place.uri).to_pyarrow_table().num_rows == 2


def test_a_commit_is_forced_before_it_is_told(place: Store, target: DeltaTarget, forced: list[str]) -> None:
    """What the queue asks for holds for the table, too: else a group would go on behind rows that a power cut takes."""
    target.commit(files(place, [1]), {"a": 1})
    assert forced == []
    other = DeltaTarget(place)
    place.force_writes()
    target.refresh()
    target.commit(files(place, [2]), {"a": 2})
    entry, log = forced[-2:]
    assert entry.endswith("_delta_log/00000000000000000002.json") and log.endswith("_delta_log")
    assert any(".parquet" in path or path.endswith(".tmp") for path in forced)
    forced.clear()
    other.refresh()  # whoever committed may have died before
    assert [Path(path).name[:20] for path in forced] == [f"{version:020}" for version in range(3)] + ["_delta_log"]


@pytest.mark.parametrize("opened", ["before", "after"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_entry_below_that_of_another_program_is_forced(
    place: Store, target: DeltaTarget, forced: list[str], opened: str, checkpointed: bool
) -> None:
    """A sink died between its commit and the forcing; then another program committed."""
    place.force_writes()
    target.refresh()
    other = DeltaTarget(place) if opened == "before" else None
    if other is not None:
        other.refresh()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_force", lambda _: None)
        target.commit(files(place, [1]), {"a": 7})
    rows = arrow_schema(payload_schema(COLUMNS)).empty_table()
    write_deltalake(place.uri, rows, mode="append")
    if checkpointed:
        DeltaTable(place.uri).create_checkpoint()
    forced.clear()
    other = other or DeltaTarget(place)
    other.refresh()
    assert other.recorded("a") == 7
    names = {Path(path).name for path in forced}
    assert "00000000000000000001.json" in names or "00000000000000000002.checkpoint.parquet" in names
    assert "00000000000000000002.json" in names and "_delta_log" in names


def test_positions_without_rows(place: Store, target: DeltaTarget) -> None:
    target.commit([], {"a": 5})
    target.refresh()
    assert target.recorded("a") == 5


def test_positions_outlive_checkpoints_and_what_they_clean_up(place: Store, target: DeltaTarget) -> None:
    target.commit(files(place, [1]), {"a": 5})
    target.refresh()
    target.commit(files(place, [2]), {"b": 1})
    table = DeltaTable(place.uri)
    table.create_checkpoint()
    for entry in (Path(place.uri) / "_delta_log").glob("*[01].json"):
        entry.unlink()
    again = DeltaTarget(place)
    assert again.recorded("a") == 5
    again.commit(files(place, [3]), {"a": 6})
    target.refresh()
    assert target.recorded("a") == 6


def test_two_processes_make_one_table(place: Store) -> None:
    DeltaTarget.create(place, payload_schema(COLUMNS), [])
    DeltaTarget.create(place, payload_schema("other bigint"), [])
    assert [f["name"] for f in DeltaTarget(place).schema["fields"]] == ["v", "day", "k"]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(partq.InvalidArgumentError, match="holds something else than a Delta table"):
        DeltaTarget.create(Store(tmp_path), payload_schema(COLUMNS), [])
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_no_table(place: Store) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="there is no Delta table"):
        DeltaTarget(place)


def test_a_table_that_was_replaced_is_refused(place: Store, target: DeltaTarget, tmp_path: Path) -> None:
    Path(place.uri).rename(tmp_path / "old")
    DeltaTarget.create(place, payload_schema(COLUMNS), [])
    with pytest.raises(partq.UnsupportedTableError, match="was replaced by another table"):
        target.refresh()


def edited(place: Store, change: Any) -> None:
    """Put the table's first entry anew with its actions changed."""
    first = Path(place.uri) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        change(action)
    first.write_text("\n".join(map(json.dumps, actions)) + "\n")


@pytest.mark.parametrize(
    ("protocol", "configuration", "named"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, {}, "rowTracking"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["identityColumns"]}, {}, "identityColumns"),
        ({"minReaderVersion": 1, "minWriterVersion": 6}, {}, "identityColumns"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["vacuumProtocolCheck"],
                "writerFeatures": ["vacuumProtocolCheck"],
            },
            {},
            "vacuumProtocolCheck",
        ),
    ],
)
def test_features_that_a_sink_does_not_know_are_refused(
    place: Store, protocol: dict[str, Any], configuration: dict[str, str], named: str
) -> None:
    DeltaTarget.create(place, payload_schema(COLUMNS), [])

    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            action["metaData"]["configuration"] |= configuration
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"]):
                mapping = {"id": number, "physicalName": f"c{number}"}
                field["metadata"] = {f"delta.columnMapping.{name}": value for name, value in mapping.items()}
            action["metaData"]["schemaString"] = json.dumps(schema)

    edited(place, change)
    with pytest.raises(partq.UnsupportedTableError, match=named):
        DeltaTarget(place)


def test_an_invariant_inside_a_column_is_refused(place: Store) -> None:
    """A sink checks those of columns; Delta's own writers read this one as a condition on a field of the struct."""
    DeltaTarget.create(place, payload_schema("v bigint, s struct<a: int>"), [])

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            rule = json.dumps({"expression": {"expression": "s.a > 0"}})
            schema["fields"][1]["type"]["fields"][0]["metadata"] = {"delta.invariants": rule}
            action["metaData"]["schemaString"] = json.dumps(schema)

    edited(place, change)
    with pytest.raises(partq.UnsupportedTableError, match=r"delta\.invariants inside column s"):
        DeltaTarget(place)


def test_a_column_that_another_sink_adds_in_other_case_is_not_added(place: Store, target: DeltaTarget) -> None:
    slow = DeltaTarget(place)
    target.add_columns(payload_schema("total double")["fields"])
    slow.add_columns(payload_schema("Total double, more bigint")["fields"])
    assert [column["name"] for column in slow.schema["fields"]] == ["v", "day", "k", "total", "more"]


def test_a_table_that_forgets_positions_is_refused(place: Store, target: DeltaTarget) -> None:
    """Also where somebody gives it that property while the sink is at work."""
    table = DeltaTable(place.uri)
    table.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}, raise_if_not_exists=False
    )
    for look in (target.refresh, lambda: DeltaTarget(place)):
        with pytest.raises(partq.UnsupportedTableError, match="forgets the positions"):
            look()


def test_a_generated_column_is_refused(place: Store) -> None:
    DeltaTarget.create(place, payload_schema(COLUMNS), [])

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = {"delta.generationExpression": "1"}
            action["metaData"]["schemaString"] = json.dumps(schema)

    edited(place, change)
    with pytest.raises(partq.UnsupportedTableError, match="generationExpression of column v"):
        DeltaTarget(place)


def test_constraints_are_those_of_the_table_and_of_its_columns(place: Store) -> None:
    schema = Schema([Field("v", PrimitiveType("long"), nullable=False), Field("k", PrimitiveType("string"))])
    DeltaTable.create(place.uri, schema)
    DeltaTable(place.uri).alter.add_constraint({"small": "v < 10"})
    assert DeltaTarget(place).constraints == {"small": "v < 10", "v NOT NULL": "`v` IS NOT NULL"}


def test_a_damaged_log_is_told_from_a_place_that_cannot_be_reached(place: Store) -> None:
    DeltaTarget.create(place, payload_schema(COLUMNS), [])
    (Path(place.uri) / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(partq.CorruptTableError, match="cannot be read"):
        DeltaTarget(place)


def test_columns_are_added_once(place: Store, target: DeltaTarget) -> None:
    other = DeltaTarget(place)
    new = payload_schema("v bigint, more string")["fields"]
    target.add_columns(new)
    other.add_columns(new)
    assert [f["name"] for f in other.schema["fields"]] == ["v", "day", "k", "more"]
    assert DeltaTable(place.uri).version() == 1


def test_another_process_adds_the_same_column_at_once(place: Store, target: DeltaTarget) -> None:
    """It is there then, and nothing stops."""
    other, refresh = DeltaTarget(place), DeltaTarget.refresh
    column = {"name": "x", "type": "long", "nullable": True, "metadata": {}}

    def late(self: DeltaTarget) -> None:
        refresh(self)
        if self is target and not any(c["name"] == "x" for c in fresh()):
            other.add_columns([column])

    def fresh() -> Any:
        return DeltaTarget(place).schema["fields"]

    with mock.patch.object(DeltaTarget, "refresh", late):
        target.add_columns([column])
    assert [c["name"] for c in target.schema["fields"]].count("x") == 1


def test_others_write_beside_it(place: Store, target: DeltaTarget) -> None:
    """An append, OPTIMIZE and VACUUM of other programs keep positions and rows."""
    for n in range(4):
        target.refresh()
        target.commit(files(place, [n]), {"a": n})
    table = DeltaTable(place.uri)
    write_deltalake(table, pa.table({"v": pa.array([9]), "k": ["a"]}), mode="append", schema_mode="merge")
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    target.refresh()
    assert target.recorded("a") == 3
    target.commit(files(place, [4]), {"a": 4})
    assert sorted(DeltaTable(place.uri).to_pyarrow_table().column("v").to_pylist()) == [0, 1, 2, 3, 4, 9]


def test_credentials_are_not_in_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    secret = "0123456789abcdef"
    options = {
        "aws_access_key_id": "somebody-1",
        "aws_secret_access_key": secret,
        "endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
    }
    place = Store("s3://nowhere/t", {**options, "region": "x", "max_retries": "0", "retry_timeout": "1s"})
    with caplog.at_level(logging.DEBUG), pytest.raises(partq.PartqError) as caught:
        DeltaTarget(place)
    assert secret not in str(caught.value) + caplog.text + repr(place)


def test_a_place_that_cannot_be_reached() -> None:
    options = {"region": "x", "endpoint": "http://127.0.0.1:9", "allow_http": "true", "max_retries": "0"}
    place = Store("s3://nowhere/t", {**options, "access_key_id": "testing", "secret_access_key": "testing"})
    with pytest.raises(partq.StoreUnavailableError, match=r"s3://nowhere/t cannot be read: .*HTTP error"):
        DeltaTarget.exists(place)


def test_a_table_that_another_process_has_begun_to_make(place: Store) -> None:
    Path(place.uri, "_delta_log").mkdir(parents=True)
    DeltaTarget.create(place, payload_schema(COLUMNS), ["k"])
    assert DeltaTarget(place).partition_by == ["k"]


def test_several_that_make_the_table_at_once(tmp_path: Path) -> None:
    """One does; delta-rs on its own would put the metadata of each as a further version, and the first ones would take it for another table."""
    for turn in range(10):
        place = Store(tmp_path / f"t{turn}")
        made = in_parallel([lambda place=place: DeltaTarget.create(place, payload_schema(COLUMNS), ["k"])] * 6)  # type: ignore[misc]
        assert made == [None] * 6
        assert len(list((tmp_path / f"t{turn}" / "_delta_log").iterdir())) == 1


@pytest.mark.parametrize("feature", sorted(SUPPORTED))
def test_a_table_with_each_feature_takes_a_commit(place: Store, feature: str) -> None:
    DeltaTarget.create(place, payload_schema(COLUMNS), ["k"])
    of_readers = [feature] if feature in ("deletionVectors", "timestampNtz", "v2Checkpoint") else []
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}

    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {**versions, "readerFeatures": of_readers, "writerFeatures": [feature]}

    edited(place, change)
    DeltaTarget(place).commit(files(place, [7]), {"partq:g/id/0": 5})
    assert DeltaTarget(place).recorded("partq:g/id/0") == 5
