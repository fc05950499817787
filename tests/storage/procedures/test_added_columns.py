"""A queue gets columns while it is used: what was there reads as null, what has them keeps them, wherever it goes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.payload.ddl import parse_ddl
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.arrow import arrow_schema, in_schema, is_like
from spark_partq.storage.procedures import alter
from spark_partq.storage.procedures.consume import planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue, same_payload
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import slices
from spark_partq.storage.queue.write_task import write_task
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.storage.procedures.test_dead_letters import _NOTHING

Row = dict[str, Any]


def make(store: str, name: str = "q", partitions: int = 2, **settings: Any) -> None:
    partq.create_queue(
        store, name, "k string, v bigint", key="k", partitions=partitions, rebalance_delay_ms=0, **settings
    )


def put(queue: Queue, batch: int, *rows: Row) -> None:
    """Append rows as a sink does that knows what `queue` knew when it was last read."""
    given = pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(queue.state.schema))
    Producer(queue).write(BatchRecord("s", batch), lambda: write_rows(queue, [(0, given)]), lambda: given.num_rows)


ADDED = (
    "due timestamp, note string, b binary, l array<string>, m map<string, timestamp>, s struct<t: timestamp, x: string>"
)
_BERLIN = pa.timestamp("us", "Europe/Berlin")
_LARGE = {"note": pa.large_string(), "b": pa.large_binary(), "l": pa.large_list(pa.large_string())}
_ZONED = {
    "due": _BERLIN,
    "m": pa.map_(pa.string(), _BERLIN),
    "s": pa.struct([("t", _BERLIN), ("x", pa.string())]),
}


@pytest.mark.parametrize("held", [_LARGE, _ZONED, _LARGE | _ZONED])
def test_what_spark_has_in_another_form_is_the_column(store: str, held: dict[str, pa.DataType]) -> None:
    """Its session may have another time zone, or large types: the values are there, also when files are written again."""
    make(store, partitions=1)
    partq.add_column(store, "q", ADDED)
    queue, at = opened(store), dt.datetime(2026, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    row = {"due": at, "note": "n", "b": b"b", "l": ["x"], "m": [("y", at)], "s": {"t": at, "x": "z"}}
    rows = pa.Table.from_pylist([{"k": k, "v": v, **row} for v, k in enumerate("ab")], arrow_schema(queue.state.schema))
    columns = [rows.column(f.name).combine_chunks().cast(held.get(f.name, f.type)) for f in rows.schema]
    given = pa.RecordBatch.from_arrays([*columns, pa.array([0, 0]), pa.array([0, 1])], [*map(str, range(10))])
    names = [*rows.schema.names]
    files = [NewFile(**f) for f in written(write_task(queue.store, "q", names, ["k"], False, None)([given]))]
    Producer(queue).write(BatchRecord("s", 0), lambda: files, lambda: 2)
    expected = [{"k": k, "v": v, **row} for v, k in enumerate("ab")]
    assert stored(queue) == expected
    assert partq.delete_messages(store, "q", {"k": "b"}) == 1
    assert stored(opened(store)) == expected[:1]


@pytest.mark.parametrize(
    ("held", "wanted"),
    [("array<string>", "array<int>"), ("struct<x: string>", "struct<y: int>"), ("struct<x: bigint>", "struct<x: int>")],
)
def test_what_is_another_column(held: str, wanted: str) -> None:
    one, other = (arrow_schema(parse_ddl(f"c {type_}")).field(0).type for type_ in (held, wanted))
    assert is_like(one, one) and not is_like(one, other) and not is_like(other, one)


def written(results: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = [json.loads(one) for batch in results for one in batch.column(0).to_pylist()]
    return [one["file"] for one in found if "file" in one]


def stored(queue: Queue, schema: pa.Schema | None = None) -> list[Row]:
    queue.control.refresh()
    queue.refresh()
    wanted = schema or arrow_schema(queue.state.schema)
    found = [
        row
        for table in queue.partitions
        for part in slices(queue.state, table.partition, table.index, table.first_offset, table.next_offset)
        for _, rows in read_slice(queue.store, part, wanted)
        for row in rows.to_pylist()
    ]
    return sorted(found, key=lambda row: row["v"])


def read(store: str, group: str, schema: pa.Schema, name: str = "q") -> list[Row]:
    """What a query with a new checkpoint is given until nothing is left, and acknowledges."""
    found = planner.Planner(ConsumerSettings(Store(store), (name,)), group, "a")
    found.stop_at_current_ends()
    given, start = list[Row](), _NOTHING
    while (end := found.next(start, Limits())) is not None:
        for piece in (piece for flow in found.tasks(start, end) for piece in flow):
            for _, rows in read_slice(Store(store), piece.slice, schema):
                given += rows.to_pylist()
        start = end
    found.leave()
    return sorted(given, key=lambda row: row["v"])


OLD, NEW = {"k": "a", "v": 1}, {"k": "b", "v": 2, "note": "n"}


def test_older_messages_have_null_there(store: str) -> None:
    make(store)
    queue = opened(store)
    before = arrow_schema(queue.state.schema)
    put(queue, 0, OLD)
    assert partq.add_column(store, "q", "note string").schema == "k:string,v:bigint,note:string".replace(
        "bigint", "long"
    )
    put(queue, 1, {"k": "c", "v": 0})  # by a producer that has not read the fact: its next refresh is in the write
    put(opened(store), 2, NEW)
    assert stored(queue) == [{"k": "c", "v": 0, "note": None}, {**OLD, "note": None}, NEW]
    assert read(store, "new", arrow_schema(opened(store).state.schema)) == stored(queue)
    assert [row["v"] for row in read(store, "old", before)] == [0, 1, 2]  # a query that began before


def test_other_readers_of_the_tables_see_them(store: str) -> None:
    make(store, partitions=1)
    queue = opened(store)
    put(queue, 0, OLD)
    partq.add_column(store, "q", "note string, at timestamp_ntz")
    put(opened(store), 1, NEW)
    table = DeltaTable(f"{store}/queues/q/partitions/partition=0")
    rows = sorted(table.to_pyarrow_table().select(["k", "v", "note", "at"]).to_pylist(), key=lambda row: row["v"])
    assert rows == [{**OLD, "note": None, "at": None}, {**NEW, "at": None}]


def test_what_is_so_stays_so(store: str) -> None:
    make(store)
    partq.add_column(store, "q", "note string")
    revision = opened(store).state.revision
    partq.add_column(store, "q", "note string")
    assert opened(store).state.revision == revision
    with pytest.raises(partq.SchemaMismatchError, match="'note', which is string and not int"):
        partq.add_column(store, "q", "note int")
    assert partq.create_queue(
        store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0, exist_ok=True
    ).schema.endswith("note:string")


def test_a_call_that_dies_is_finished_by_maintenance(store: str) -> None:
    make(store, partitions=1)
    dies = mock.patch.object(alter, "follow_queue", side_effect=InterruptedError)
    with dies, pytest.raises(InterruptedError):
        partq.add_column(store, "q", "note string")
    put(opened(store), 0, NEW)
    folder = f"{store}/queues/q/partitions/partition=0"
    assert "note" not in DeltaTable(folder).to_pyarrow_table().column_names
    partq.maintain(store, "q")
    assert DeltaTable(folder).to_pyarrow_table().column("note").to_pylist() == ["n"]


def test_who_knows_fewer_columns_takes_none_back(store: str) -> None:
    make(store, partitions=1)
    late = opened(store)
    partq.add_column(store, "q", "note string")
    alter.follow_queue(late, late.partitions)
    table = DeltaTable(f"{store}/queues/q/partitions/partition=0")
    assert {"k", "v", "note"} < {field.name for field in table.schema().fields}
    version = table.version()
    alter.follow_queue(opened(store), late.partitions)
    assert DeltaTable(f"{store}/queues/q/partitions/partition=0").version() == version


def test_messages_keep_them_through_a_resize_and_a_copy_of_what_is_stuck(store: str) -> None:
    make(store, partitions=0)
    put(opened(store), 0, OLD)
    partq.add_column(store, "q", "note string")
    put(opened(store), 1, NEW)
    partq.scale(store, "q", 3)
    put(opened(store), 2, {**NEW, "v": 3})
    assert partq.copy_stuck(store, "q") == 2
    partq.scale(store, "q", 2)
    schema = arrow_schema(opened(store).state.schema)
    assert read(store, "g", schema) == [{**OLD, "note": None}, NEW, {**NEW, "v": 3}]


def test_a_batch_is_placed_again_with_them(store: str) -> None:
    """Its files were written before the column came, and are placed after the count has changed."""
    make(store)
    queue = opened(store)
    producer = Producer(queue)
    rows = pa.RecordBatch.from_pylist([OLD], schema=arrow_schema(queue.state.schema))

    def write() -> Any:
        files = write_rows(queue, [(0, rows)])
        partq.add_column(store, "q", "note string")
        partq.scale(store, "q", 5)
        return files

    producer.write(BatchRecord("s", 0), write, lambda: 1)
    assert stored(opened(store)) == [{**OLD, "note": None}]


def test_dead_messages_keep_them(store: str) -> None:
    make(
        store,
        partitions=1,
        max_deliveries=1,
        dead_letter_queue="dead",
        message_ttl_ms=1,
        expired_messages="dead_letter",
    )
    make(store, "other", max_deliveries=1, dead_letter_queue="dead")
    put(opened(store), 0, OLD)
    partq.add_column(store, "q", "note string")
    put(opened(store), 1, NEW)
    assert read(store, "g", arrow_schema(opened(store).state.schema)) == []  # all are too old
    found = {message.payload["v"]: message.payload["note"] for message in partq.dead_letters(store, "q")}
    assert found == {1: None, 2: "n"}
    partq.alter_queue(store, "q", reset=["message_ttl_ms", "expired_messages"])
    assert partq.redrive(store, "q") == {"q": 2}
    expected = [{**OLD, "note": None}] * 2 + [NEW] * 2  # each is there twice
    assert read(store, "later", arrow_schema(opened(store).state.schema)) == expected
    # The other queue shares the dead-message queue, and has no such column.
    partq.alter_queue(store, "other", message_ttl_ms=1, expired_messages="dead_letter")
    put(opened(store, "other"), 0, OLD)
    schema = arrow_schema(opened(store, "other").state.schema)
    assert read(store, "g", schema, "other") == []
    partq.alter_queue(store, "other", reset=["message_ttl_ms", "expired_messages"])
    assert partq.redrive(store, "other") == {"other": 1}
    assert read(store, "later", schema, "other") == [OLD, OLD]


def test_an_added_column_can_say_how_long_a_message_lives(store: str) -> None:
    make(store, partitions=1)
    put(opened(store), 0, OLD)
    with pytest.raises(partq.InvalidArgumentError, match="ttl"):
        partq.alter_queue(store, "q", message_ttl_column="ttl")
    partq.add_column(store, "q", "ttl bigint")
    partq.alter_queue(store, "q", message_ttl_column="ttl")
    put(opened(store), 1, {"k": "b", "v": 2, "ttl": 0}, {"k": "b", "v": 3})
    assert [row["v"] for row in read(store, "g", arrow_schema(opened(store).state.schema))] == [1, 3]


def test_queues_that_are_read_together_may_differ_in_them(store: str) -> None:
    make(store)
    make(store, "r")
    partq.create_queue(store, "s", "k string", key="k", partitions=1)
    partq.add_column(store, "q", "note string")
    queues = [opened(store), opened(store, "r")]
    assert same_payload(queues) == same_payload(queues[::-1]) == opened(store, "r").state.schema
    partq.add_column(store, "r", "note string")
    assert same_payload([opened(store), opened(store, "r")]) == opened(store).state.schema
    for others in (["q", "s"], ["s", "q"]):
        with pytest.raises(partq.InvalidArgumentError, match="have different columns"):
            same_payload([opened(store, name) for name in others])


def test_a_file_that_lacks_another_column_is_damaged(store: str) -> None:
    make(store, partitions=1)
    queue = opened(store)
    put(queue, 0, OLD)
    partq.add_column(store, "q", "note string")
    path = next(Path(f"{store}/queues/q/partitions/partition=0").glob("*.parquet"))
    table = pa.parquet.read_table(path, partitioning=None)
    pa.parquet.write_table(table.drop_columns(["k"]), path)
    with pytest.raises(partq.CorruptTableError, match="cannot be read"):
        stored(queue)


def test_a_replica_has_them(store: str, tmp_path: Path) -> None:
    make(store)
    put(opened(store), 0, OLD)
    copy = str(tmp_path / "copy")
    partq.replicate(store, "q", copy)
    partq.add_column(store, "q", "note string")
    put(opened(store), 1, NEW)
    partq.replicate(store, "q", copy)
    partq.promote(copy, "q")
    assert stored(opened(copy)) == [{**OLD, "note": None}, NEW]
    put(opened(copy), 2, {**NEW, "v": 3})
    partq.add_column(copy, "q", "more double")
    assert stored(opened(copy))[-1] == {**NEW, "v": 3, "more": None}


def test_columns_and_settings_are_added_at_once(store: str) -> None:
    make(store)
    handle = opened(store)
    partq.alter_queue(store, "q", retention_ms=5_000)
    alter.add_columns(handle, "note string")
    state = opened(store).state
    assert (state.settings.retention_ms, state.added) == (5_000, ("note",))


def test_in_schema() -> None:
    rows = pa.RecordBatch.from_pylist([{"b": 1, "a": 2}])
    schema = pa.schema([("a", pa.int64()), ("c", pa.string()), ("b", pa.int64())])
    assert json.dumps(in_schema(rows, schema).to_pylist()) == '[{"a": 2, "c": null, "b": 1}]'
