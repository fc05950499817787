"""Files of messages in which many rows share a text, which stands in the file once (Q6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.storage import parquet
from spark_partq.storage.queue import messages
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.store import Store, partition_folder
from tests.storage.bombs import one_text, packed, taken_for_little

MIB = "x" * (1 << 20)
_BEFORE = """
import pyarrow as pa
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.store import Store
store, type_, rows = Store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
schema = pa.schema([("v", pa.list_(pa.string()) if type_ == "list" else pa.string())])
piece = Slice("q", 0, "f.parquet", 0, rows, 0, 0, rows)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def put(store: Store, given: pa.Array | pa.Table) -> Slice:
    """A file of these messages, or of messages that have these as `v`."""
    table = given if isinstance(given, pa.Table) else pa.table({"v": given})
    folder = Path(store.uri) / partition_folder("q", 0)
    folder.mkdir(parents=True)
    (folder / "f.parquet").write_bytes(packed(table.append_column("_row", pa.array(range(len(table))))))
    return Slice("q", 0, "f.parquet", 0, len(table), 0, 0, len(table))


def lists(length: int, rows: int, text: str = MIB) -> pa.Array:
    """An empty list, and lists of so many times the same text."""
    offsets = [0, *range(0, length * rows, length), length * rows]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), one_text(text, length * rows))


@pytest.mark.parametrize(
    ("kind", "values"), [("text", one_text(MIB, 2_000)), ("list", lists(2, 1_000))], ids=["text", "list"]
)
def test_a_small_file_takes_little_memory(store: Store, kind: str, values: pa.Array) -> None:
    """Bad input: some kilobytes that are two gigabytes of messages come in small batches."""
    piece = put(store, values)
    act = "assert sum(rows.num_rows for _, rows in read_slice(store, piece, schema)) == rows_of(piece)"
    taken_for_little(_BEFORE + "rows_of = lambda piece: piece.rows\n", act, store.uri, kind, str(piece.rows))


def test_a_row_that_is_too_large(store: Store) -> None:
    """Bad input: it cannot be cut."""
    piece = put(store, lists(2_000, 1))
    with pytest.raises(
        partq.CorruptTableError, match=r"cannot be read: the texts of a row of it take 2,0\d\d,\d{3},\d{3} bytes"
    ):
        list(read_slice(store, piece, pa.schema([("v", pa.list_(pa.string()))])))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "bcd", "a"] * 300),
        pa.array([[], ["a", None], None, ["bcd"] * 3] * 300),
        pa.array([{"a": "x", "b": 1}, {"a": None, "b": 2}, None, {"a": "yz", "b": 3}] * 300),
        pa.array([[("k", "a")], [], None, [("k", "bcd"), ("l", None)]] * 300, pa.map_(pa.string(), pa.string())),
        pa.array([[{"a": ["x"]}], [], [{"a": None}, {"a": ["x", "yz"]}]] * 400),
    ],
    ids=["text", "list", "struct", "map", "nested"],
)
@pytest.mark.parametrize("first", [0, 7])
def test_what_is_cut_is_whole(store: Store, monkeypatch: pytest.MonkeyPatch, values: pa.Array, first: int) -> None:
    """Every row comes once, with its number, whatever the type."""
    monkeypatch.setattr(messages, "MAX_GROUP_BYTES", 20_000)
    monkeypatch.setattr(parquet, "_SHARED_BYTES", 100)
    whole = put(store, values)
    piece = Slice("q", 0, whole.path, first, whole.rows, 0, 0, whole.rows)
    cut = list(read_slice(store, piece, pa.schema([("v", values.type)])))
    assert len(cut) > 10
    found: list[Any] = [v for _, rows in cut for v in rows.column(0).to_pylist()]
    assert found == values.to_pylist()[first:]
    assert [row for row, _ in cut] == np.cumsum([first, *(rows.num_rows for _, rows in cut)]).tolist()[:-1]


def test_columns_that_have_one_path(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column `a.b`, the field `b` of a column `a`, and a list whose texts have the path of a struct's."""
    monkeypatch.setattr(messages, "MAX_GROUP_BYTES", 20_000)
    monkeypatch.setattr(parquet, "_SHARED_BYTES", 100)
    columns = {
        "a.b": ["x", "y", None] * 300,
        "a": [{"b": "long text", "c": 1}, None, {"b": None, "c": 2}] * 300,
        "l": [["u"], [], ["v", "u"]] * 300,
        "l.list": [{"element": "p"}, {"element": "q"}, None] * 300,
    }
    table = pa.table(columns)
    piece = put(store, table)
    cut = list(read_slice(store, piece, table.schema))
    assert len(cut) > 10
    assert pa.Table.from_batches([rows for _, rows in cut]).to_pydict() == columns


def test_a_file_that_does_not_declare_its_dictionary(store: Store) -> None:
    """Bad input: that texts are shared is seen in what is read."""
    piece = put(store, one_text(MIB, 1_500))
    file = Path(store.uri) / partition_folder("q", 0) / piece.path
    declared = b"\x19\x35\x00\x06\x10"  # three encodings: PLAIN, RLE, RLE_DICTIONARY
    written = file.read_bytes()
    assert declared in written
    file.write_bytes(written.replace(declared, b"\x19\x35\x00\x06\x00"))
    act = "assert sum(rows.num_rows for _, rows in read_slice(store, piece, schema)) == piece.rows"
    taken_for_little(_BEFORE, act, store.uri, "text", str(piece.rows))


def test_a_row_that_is_large_without_texts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nulls take room in memory and none in a file: what a sink takes is read."""
    monkeypatch.setattr(messages, "MAX_GROUP_BYTES", 20_000)
    decimals = pa.struct([(f"d{n}", pa.decimal128(38, 2)) for n in range(10)])
    table = pa.table({"k": pa.array([None], pa.string()), "v": pa.array([[None] * 1_000], pa.list_(decimals))})
    found = [rows for _, rows in read_slice(store, put(store, table), table.schema)]
    assert pa.Table.from_batches(found).to_pydict() == table.to_pydict()


def test_values_of_a_fixed_length(store: Store) -> None:
    """Bad input: no type of a message has such values, which rows could share."""
    piece = put(store, pa.array([b"x" * 17] * 3, pa.binary(17)))
    with pytest.raises(partq.CorruptTableError, match="it has a column of another type"):
        list(read_slice(store, piece, pa.schema([("v", pa.binary())])))
