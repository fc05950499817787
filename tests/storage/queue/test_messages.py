"""Parquet files of messages: what goes in comes out, in any slice; damage is named (Q6)."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.payload.schema import MAX_DEPTH
from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.arrow import rows_of
from spark_partq.storage.queue import messages
from spark_partq.storage.queue.messages import MessageWriter, read_slice, read_timed
from spark_partq.storage.queue.partition_table import SOURCE_SHIFT
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.store import Store, partition_folder

SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("h", pa.int16()),
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("x", pa.binary()),
        ("t", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("dec", pa.decimal128(38, 10)),
        ("a", pa.list_(pa.string())),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.date32()))])),
        ("m", pa.map_(pa.string(), pa.struct([("z", pa.float64())]))),
    ]
)
FULL = {
    "s": "ä\0東",
    "i": -(2**31),
    "l": 2**63 - 1,
    "h": -7,
    "b": 127,
    "f": float("inf"),
    "d": -0.0,
    "x": b"\x00\xff",
    "t": True,
    "day": dt.date(1, 1, 1),
    "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    "local": dt.datetime(2024, 3, 10, 2, 30),
    "dec": Decimal("-9999999999999999999999999999.0123456789"),
    "a": ["x", None, ""],
    "st": {"x": None, "y": [dt.date(1582, 10, 15), None]},
    "m": [("k", {"z": 1.5}), ("l", None)],
}
EMPTY = {**dict.fromkeys(FULL), "a": [], "m": [], "st": {"x": None, "y": []}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for partition in range(4):
        (tmp_path / partition_folder("q", partition)).mkdir(parents=True)
    return Store.at(tmp_path)


def written(
    store: Store, batches: list[pa.RecordBatch], partitions: list[list[int]], orders: list[list[int]] | None = None,
    *, sorted_input: bool = False,
) -> list[NewFile]:  # fmt: skip
    writer = MessageWriter(store, "q", batches[0].schema, [], sorted_input)
    at = 0
    for n, batch in enumerate(batches):
        order = orders[n] if orders else range(at, at + batch.num_rows)
        writer.write(batch, np.array(partitions[n], dtype=np.int16), np.array(order, dtype=np.int64))
        at += batch.num_rows
    return sorted(writer.finish(), key=lambda file: file.order)


def slice_of(file: NewFile, first: int = 0, last: int | None = None) -> Slice:
    return Slice("q", file.partition, file.path, first, file.rows if last is None else last, 100, 0, file.rows)


def rows(store: Store, file: NewFile, schema: pa.Schema, first: int = 0, last: int | None = None) -> list[dict]:
    found = list(read_slice(store, slice_of(file, first, last), schema))
    at = first
    for start, batch in found:
        assert start == at and batch.schema == schema
        at += batch.num_rows
    return [row for _, batch in found for row in batch.to_pylist()]


def test_every_type(store: Store) -> None:
    """Q6: values of every type, nulls and empty collections come back as they were."""
    values = [FULL, EMPTY, dict.fromkeys(FULL), FULL]
    (file,) = written(store, [pa.RecordBatch.from_pylist(values, SCHEMA)], [[0] * 4])
    assert rows(store, file, SCHEMA) == pa.RecordBatch.from_pylist(values, SCHEMA).to_pylist()
    nan = pa.RecordBatch.from_pylist([{"d": float("nan"), "f": float("nan")}], SCHEMA)
    (file,) = written(store, [nan], [[1]])
    assert np.isnan(rows(store, file, SCHEMA)[0]["d"])


def test_dotted_and_odd_names(store: Store) -> None:
    """Q6: a dot in a name is no path into a struct."""
    schema = pa.schema(
        [("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64()), ("c`d", pa.string()), ("ä", pa.int32())]
    )
    value = {"a": {"b": 1}, "a.b": 2, "c`d": "x", "ä": 3}
    (file,) = written(store, [pa.RecordBatch.from_pylist([value], schema)], [[0]])
    assert rows(store, file, schema) == [value]
    assert '"a.b": 2' in file.stats


@pytest.mark.parametrize("inner", [pa.int64(), pa.string()])
def test_a_column_and_a_field_of_the_same_path(store: Store, inner: pa.DataType) -> None:
    """Q6: bounds of the column are those of its own values."""
    struct = pa.struct([("c", pa.list_(pa.int64())), ("b", inner)])
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int32())), ("a", struct), ("a.b", pa.int64())])
    value = {"m": [("x", 1)], "a": {"c": [8], "b": 9 if inner == pa.int64() else "x"}, "a.b": 2}
    (file,) = written(store, [pa.RecordBatch.from_pylist([value], schema)], [[0]])
    assert rows(store, file, schema) == [value]
    assert json.loads(file.stats) == {"numRecords": 1, "minValues": {"a.b": 2}, "maxValues": {"a.b": 2}}


@pytest.mark.parametrize("days", [2_932_897, -719_163])
def test_dates_that_python_does_not_have(store: Store, days: int) -> None:
    """Q6: Spark has them. There are no bounds of their column then."""
    schema = pa.schema([("day", pa.date32()), ("v", pa.int64())])
    columns = [pa.array([days, 0], pa.int32()).cast(pa.date32()), pa.array([1, 2])]
    (file,) = written(store, [pa.RecordBatch.from_arrays(columns, schema=schema)], [[0, 0]])
    ((_, found),) = read_slice(store, slice_of(file), schema)
    assert found.column(0).cast(pa.int32()).to_pylist() == [days, 0]
    assert json.loads(file.stats) == {"numRecords": 2, "minValues": {"v": 1}, "maxValues": {"v": 2}}
    struct = {"type": "struct", "fields": [{"name": "day", "type": "date"}, {"name": "v", "type": "long"}]}
    assert rows_of(found, struct) == [{"day": days, "v": 1}, {"day": dt.date(1970, 1, 1), "v": 2}]


def test_a_segment_whose_message_has_no_time(store: Store) -> None:
    times = pa.array([1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"v": [1, 2], "_row": [0, 1], "_enqueued_at": times})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.files.put(f"{partition_folder('q', 0)}/x.parquet", sink.getvalue().to_pybytes())
    piece = Slice("q", 0, "x.parquet", 0, 2, 100, 5, 2, segment=True)
    with pytest.raises(
        partq.CorruptTableError, match=r"x\.parquet.*offsets 100 to 101.*1 of its messages have no time"
    ):
        list(read_timed(store, piece, pa.schema([("v", pa.int64())])))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=6), st.data())
def test_split_by_partition(
    tmp_path_factory: pytest.TempPathFactory, partitions: list[list[int]], data: st.DataObject
) -> None:
    """Q4: each partition's rows, in the order in which they were read, also where a task reads inputs out of their order."""
    root = tmp_path_factory.mktemp("split")
    for partition in range(4):
        (root / partition_folder("q", partition)).mkdir(parents=True)
    store = Store.at(root)
    sources = [data.draw(st.integers(0, 5)) for _ in partitions]
    orders, counts = [], dict.fromkeys(range(6), 0)
    for source, part in zip(sources, partitions, strict=True):
        orders.append([(source << SOURCE_SHIFT) + counts[source] + i for i in range(len(part))])
        counts[source] += len(part)
    schema = pa.schema([("o", pa.int64())])
    batches = [pa.record_batch([pa.array(o, pa.int64())], schema=schema) for o in orders]
    files = written(store, batches, partitions, orders)
    for partition in range(4):
        found = [r["o"] for f in files if f.partition == partition for r in rows(store, f, schema)]
        # A task reads an input partition from its beginning to its end; only whole inputs come out of order
        if sources == sorted(sources) or len(set(sources)) == len(sources):
            assert found == sorted(
                o
                for os, ps in zip(orders, partitions, strict=True)
                for o, p in zip(os, ps, strict=True)
                if p == partition
            )
    for file in files:
        stored = pq.read_table(root / partition_folder("q", file.partition) / file.path)
        assert stored["_row"].to_pylist() == list(range(file.rows)) and file.rows > 0
    assert sum(f.rows for f in files) == sum(map(len, partitions))


def test_sorted_input(store: Store) -> None:
    """Q4: rows that come partition by partition make one file each."""
    schema = pa.schema([("v", pa.int64())])
    batches = [pa.record_batch([pa.array(range(n, n + 10))], schema=schema) for n in (0, 10, 20)]
    files = written(store, batches, [[0] * 10, [0] * 5 + [1] * 5, [3] * 10], sorted_input=True)
    assert {f.partition: [r["v"] for r in rows(store, f, schema)] for f in files} == {
        0: list(range(15)),
        1: list(range(15, 20)),
        3: list(range(20, 30)),
    }


@pytest.fixture
def groups(store: Store, monkeypatch: pytest.MonkeyPatch) -> NewFile:
    """A file of 100 rows in row groups of 30, 30, 30 and 10."""
    monkeypatch.setattr(messages, "ROW_GROUP_BYTES", 30 * (8 + 8))  # a value, and the number of its row
    schema = pa.schema([("v", pa.int64())])
    batches = [pa.record_batch([pa.array(range(n, n + 10))], schema=schema) for n in range(0, 100, 10)]
    (file,) = written(store, batches, [[2] * 10] * 10)
    return file


def test_slices_across_row_groups(store: Store, groups: NewFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6, Q7: any slice of a file is exactly its rows, whatever the row groups and batches."""
    schema = pa.schema([("v", pa.int64())])
    metadata = pq.ParquetFile(Path(store.uri) / partition_folder("q", 2) / groups.path).metadata
    assert metadata.num_row_groups > 2
    for batch_rows in (7, 65_536):
        monkeypatch.setattr(messages, "_MAX_BATCH_ROWS", batch_rows)
        for first, last in [(0, 100), (0, 1), (99, 100), (29, 31), (30, 60), (15, 85), (59, 60), (60, 61), (5, 5)]:
            assert [r["v"] for r in rows(store, groups, schema, first, last)] == list(range(first, last))


def test_bounded_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: what is gathered for many partitions together stays below a bound."""
    monkeypatch.setattr(messages, "_GATHERED_BYTES", 4_000)
    schema = pa.schema([("v", pa.int64())])
    writer = MessageWriter(store, "q", schema, [], False)
    for n in range(60):
        batch = pa.record_batch([pa.array(range(n * 20, n * 20 + 20))], schema=schema)
        writer.write(batch, np.arange(20, dtype=np.int16) % 4, np.arange(n * 20, n * 20 + 20))
        held = sum(gathered.nbytes for file in writer._open.values() for gathered in file._gathered)
        assert held <= 2 * (4_000 + 20 * 16)  # with the numbers of the rows, which are as long as they are
    files = writer.finish()
    assert sorted(r["v"] for f in files for r in rows(store, f, schema)) == list(range(1200))


@pytest.mark.parametrize("damage", ["missing", "cut", "foreign", "empty", "shorter", "longer", "other columns"])
def test_damage(store: Store, groups: NewFile, damage: str) -> None:
    """Bad input: a file that is not what was committed is named, with the offsets that cannot be read."""
    path = Path(store.uri) / partition_folder("q", 2) / groups.path
    good = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(good[:-100])
    elif damage == "foreign":
        path.write_bytes(b"x" * 5000)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "shorter":
        pq.write_table(pa.table({"v": [1, 2]}), path)
    elif damage == "longer":
        pq.write_table(pa.table({"v": range(101)}), path)
    elif damage == "other columns":
        pq.write_table(pa.table({"w": range(100)}), path)
    with pytest.raises(partq.CorruptTableError) as caught:
        rows(store, groups, pa.schema([("v", pa.int64())]))
    assert groups.path in str(caught.value) and "offsets 100 to 199 of partition 2" in str(caught.value)


def test_damaged_pages(store: Store, groups: NewFile) -> None:
    """Bad input: damage inside of the file, behind a good footer."""
    path = Path(store.uri) / partition_folder("q", 2) / groups.path
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(bytes(content))
    with pytest.raises(partq.CorruptTableError):
        rows(store, groups, pa.schema([("v", pa.int64())]))


BOMBS = {
    "long texts": pa.table({"v": pa.array(["x" * (1 << 24)] * 8)}),
    "long lists": pa.table({"v": pa.array([[0] * 100_000] * 8, pa.list_(pa.int64()))}),
    "empty values": pa.table({"v": pa.array([[None] * 1_000_000] * 8, pa.list_(pa.int64()))}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_that_takes_much_memory(
    store: Store, groups: NewFile, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input: kilobytes that become many times as much are refused before they are decompressed."""
    monkeypatch.setattr(messages, "MAX_GROUP_BYTES", 1 << 20)
    monkeypatch.setattr(messages, "MAX_GROUP_VALUES", 1 << 19)
    table = BOMBS[bomb]
    pq.write_table(
        table, Path(store.uri) / partition_folder("q", 2) / groups.path, compression="zstd", use_dictionary=False
    )
    file = replace(groups, rows=table.num_rows)
    with pytest.raises(
        partq.CorruptTableError, match=r"of partition 2\) cannot be read: a row group declares"
    ) as caught:
        rows(store, file, table.schema)
    assert groups.path in str(caught.value)


def test_declared_rows_that_are_not_there(store: Store, groups: NewFile) -> None:
    """Bad input: they would be taken for delivered."""
    path = Path(store.uri) / partition_folder("q", 2) / groups.path
    pq.write_table(pa.table({"v": pa.array(range(50), pa.int64())}), path, write_statistics=False)
    # The footer says how many rows the file has, how many values the column, how many rows the row group.
    in_file, in_column, in_group, rest = path.read_bytes().split(b"\x16\x64")
    path.write_bytes(in_file + b"\x16\x78" + in_column + b"\x16\x64" + in_group + b"\x16\x78" + rest)
    assert pq.read_metadata(path).num_rows == 60
    with pytest.raises(partq.CorruptTableError, match="its row group 0 holds 50 rows and declares 60"):
        rows(store, replace(groups, rows=60), pa.schema([("v", pa.int64())]))


def test_a_column_that_declares_more_than_its_row_group() -> None:
    """Bad input: a footer may contradict itself."""
    group = mock.Mock(num_rows=1, total_byte_size=8)
    small = mock.Mock(num_values=1, total_uncompressed_size=8, total_compressed_size=8)
    messages.check_group(group, [small])
    for field in ("total_uncompressed_size", "total_compressed_size"):
        large = mock.Mock(**{"num_values": 1, "total_uncompressed_size": 8, "total_compressed_size": 8, field: 1 << 40})
        with pytest.raises(ValueError, match="a row group declares 1,099,511,627,784 bytes and 1 values"):
            messages.check_group(group, [small, large])


def test_large_batches_are_cut(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: whatever Spark gives at once, a row group stays small, also where few messages are large."""
    monkeypatch.setattr(messages, "ROW_GROUP_BYTES", 4_000)
    schema = pa.schema([("v", pa.string())])
    values = [{"v": "x" * (7_000 if n % 10 == 0 else 10)} for n in range(100)]
    (file,) = written(store, [pa.RecordBatch.from_pylist(values, schema)], [[0] * 100])
    metadata = pq.read_metadata(Path(store.uri) / partition_folder("q", 0) / file.path)
    found = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    assert len(found) > 5 and max(group.total_byte_size for group in found) < 10_000
    assert rows(store, file, schema) == values
    (pair,) = written(store, [pa.RecordBatch.from_pylist([{"v": "x" * 9_000}] * 2, schema)], [[0] * 2])
    path = Path(store.uri) / partition_folder("q", 0) / pair.path
    assert pq.read_metadata(path).num_row_groups == 2


def test_narrow_rows_do_not_gather(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: most of what is gathered of them are the numbers of the rows."""
    monkeypatch.setattr(messages, "ROW_GROUP_BYTES", 8_000)
    schema = pa.schema([("v", pa.bool_())])
    batches = [pa.record_batch([pa.array([True] * 100)], schema=schema) for _ in range(100)]
    (file,) = written(store, batches, [[0] * 100] * 100)
    metadata = pq.read_metadata(Path(store.uri) / partition_folder("q", 0) / file.path)
    assert max(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)) <= 1_000


def test_a_message_that_could_not_be_read_is_not_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_GROUP_BYTES", 1_000)
    schema = pa.schema([("v", pa.string())])
    with pytest.raises(partq.CommitFailedError, match="a message of queue 'q' is too large"):
        written(store, [pa.RecordBatch.from_pylist([{"v": "x" * 2_000}], schema)], [[0]])
    assert list((Path(store.uri) / partition_folder("q", 0)).iterdir()) == []


def test_the_deepest_schema(store: Store) -> None:
    """Q6: what a queue can have can be written and read."""
    type_, value = pa.int32(), 7
    for _ in range(MAX_DEPTH - 1):
        type_, value = pa.list_(type_), [value]
    schema = pa.schema([("v", type_)])
    (file,) = written(store, [pa.RecordBatch.from_pylist([{"v": value}], schema)], [[0]])
    assert rows(store, file, schema) == [{"v": value}]
