"""Q2: what is done to a queue whose keys lie where Kafka's default partitioner puts them goes by that hash, too."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.payload.keys import key_hash, partition_of
from spark_partq.storage.arrow import arrow_schema, exact_type
from spark_partq.storage.procedures.place import identities, place_again, write_rows
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from tests import scaled
from tests.helpers import opened
from tests.scaled import Reader, Sink, assert_in_order, make, messages, stored, while_scaling
from tests.storage.procedures import test_held_keys as held
from tests.versions import OLDER, running


def assert_placed(store: str, partitions: int, queue: str = "q") -> None:
    """Every message lies where Kafka would put it."""
    schema = scaled.SCHEMA
    for number, rows in stored(store, schema, queue).items():
        for key, _ in rows:
            assert number == partition_of([key], ["string"], partitions, "murmur2")


def test_it_is_another_hash(store: str) -> None:
    """Q2: else all tests here would hold of any queue."""
    make(store, 5, key_hash="murmur2")
    assert partq.describe_queue(store, "q").key_hash == "murmur2"
    assert any(
        partition_of([f"k{i}"], ["string"], 5, "murmur2") != partition_of([f"k{i}"], ["string"], 5) for i in range(7)
    )


def test_a_key_that_is_no_text(store: str) -> None:
    """Q2: Spark casts any bytes to a string, which then is no UTF-8. A batch of such keys is placed again as any other."""
    struct = "k struct<t:string, d:array<date>>, s string, v bigint"
    partq.create_queue(store, "r", struct, key=["k", "s"], partitions=3)
    queue = opened(store, "r")
    schema = arrow_schema(queue.state.schema)
    texts = pa.array([b"\xff\xfe", b"ok", None], pa.binary()).view(pa.string())
    days = pa.ListArray.from_arrays([0, 1, 2, 2], pa.array([2_932_897, 3], pa.int32()).cast(pa.date32()))
    key = pa.StructArray.from_arrays([texts, days.cast(schema.field("k").type.field(1).type)], names=["t", "d"])
    columns = [key.cast(schema.field("k").type), texts, pa.array([1, 2, 3], pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    types = [{**queue.state.key_types[0], "fields": exact_type(queue.state.key_types[0])["fields"]}, "binary"]
    expected = [
        key_hash([{"t": b"\xff\xfe", "d": [2_932_897]}, b"\xff\xfe"], types),
        key_hash([{"t": b"ok", "d": [3]}, b"ok"], types),
    ]
    assert identities(queue.state, batch, [0, 0, 0])[:2] == expected
    assert expected[1] == key_hash([{"t": "ok", "d": [dt.date(1970, 1, 4)]}, "ok"], queue.state.key_types)
    (file,) = (file for file in write_rows(queue, [(0, batch.slice(0, 1))]))
    (again,) = place_again(queue, [file])
    assert again.partition == file.partition == expected[0] % 3


def test_several_files_are_placed_again_as_one(store: str) -> None:
    """Rows without a key are placed by their numbers, which go on from file to file."""
    partq.create_queue(store, "r", "v bigint", partitions=1)
    queue = opened(store, "r")
    schema = arrow_schema(queue.state.schema)
    batches = [pa.record_batch([pa.array(range(n, n + 4), pa.int64())], schema=schema) for n in (0, 4, 8)]
    files = [file for batch in batches for file in write_rows(queue, [(0, batch)])]
    partq.scale(store, "r", 5)
    queue = opened(store, "r")
    whole = write_rows(queue, [(0, pa.Table.from_batches(batches).combine_chunks().to_batches()[0])])
    again = place_again(queue, files)
    assert [(f.partition, f.rows, f.order) for f in again] == [(f.partition, f.rows, f.order) for f in whole]


def test_a_resize(store: str) -> None:
    """S5: the count changes under producers and consumers; each key goes on where Kafka would put it, and stays in order."""
    make(store, 4, key_hash="murmur2")
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 60, 20))
    for batch, count in enumerate((6, 3, 5), 1):
        while_scaling(lambda count=count: partq.scale(store, "q", count), reader.turn)  # type: ignore[misc]
        sink.write(batch, messages(60 * batch, 60 * batch + 60, 20))
        if batch < 3:
            reader.all()
            partq.maintain(store, "q")
    assert_in_order(reader.all(), messages(0, 240, 20))
    last = [(k, v) for k, v in reader.seen if v >= 180]
    rows = {v: number for number, found in stored(store).items() for _, v in found}
    assert all(rows[v] == partition_of([k], ["string"], 5, "murmur2") for k, v in last)


def test_files_that_a_resize_overtakes(store: str) -> None:
    """S5: rows that an earlier map placed are placed again by the same hash."""
    make(store, 4, key_hash="murmur2")
    sink = Sink(store)
    sink.write(0, messages(0, 50, 20), begun=lambda: partq.scale(store, "q", 7) and None)
    assert_placed(store, 7)
    assert sorted(v for rows in stored(store).values() for _, v in rows) == list(range(50))


def test_stuck_messages(store: str) -> None:
    """S6: what is copied out of the parent goes where its key belongs."""
    make(store, 0, key_hash="murmur2")
    Reader(store)
    Sink(store).write(0, messages(0, 40, 20))
    partq.scale(store, "q", 6)
    assert partq.copy_stuck(store, "q") == 40
    assert_placed(store, 6)


def test_a_replica(store: str, tmp_path: Any) -> None:
    """S7: a replica that takes over goes on with the same hash."""
    make(store, 5, key_hash="murmur2")
    Sink(store).write(0, messages(0, 30, 20))
    there = str(tmp_path / "there")
    partq.replicate(store, "q", there)
    partq.promote(there, "q")
    Sink(there).write(1, messages(30, 60, 20))
    assert partq.describe_queue(there, "q").key_hash == "murmur2"
    assert_placed(there, 5)


def test_a_redrive(store: str) -> None:
    """X3: what comes back from the dead-message queue comes back to its key's partition, and its key was held until then."""
    held.make(store, 3, key_hash="murmur2")
    producing = held.Producing(store)
    producing.put(*((f"k{i % 9}", i) for i in range(27)))
    query = held.Query(store, {4})
    query.run()
    assert [v for k, v in query.done if k == "k4"] == []
    partq.set_ingress(store, "q", enabled=False)
    query.deadly = set()
    query.run()
    assert partq.redrive(store, "dead") == {"q": 3}
    query.run()
    assert [v for k, v in query.done if k == "k4"] == [4, 13, 22]
    assert_placed(store, 3)


# ---- what refuses it
def test_only_a_queue_that_needs_it_says_so(store: str) -> None:
    """X8: older programs use every other queue, but not this one, in which they would put keys elsewhere."""
    make(store, 2, key_hash="murmur2")
    partq.create_queue(store, "other", "k string, v bigint", key="k", partitions=2)
    control = open_control(Store.at(store), "q")
    assert control.state.format.features == ("keyHashMurmur2",)
    with running(OLDER):
        assert partq.describe_queue(store, "other").key_hash == "xxhash64"
        for use in (lambda: Sink(store).write(0, messages(0, 3)), lambda: partq.scale(store, "q", 3)):
            with pytest.raises(partq.NewerStoreError, match="the feature 'keyHashMurmur2'"):
                use()
    Sink(store).write(0, messages(0, 3))


def test_it_never_changes(store: str) -> None:
    """X6: a hash that changed would part each key from its earlier messages."""
    make(store, 2)
    with pytest.raises(
        partq.InvalidArgumentError, match="key_hash decides in which partition each key lies, so it never changes"
    ):
        partq.alter_queue(store, "q", key_hash="murmur2")
    with pytest.raises(partq.InvalidArgumentError, match="never changes"):
        partq.alter_queue(store, "q", reset=["key_hash"])
    with pytest.raises(partq.QueueAlreadyExistsError, match="its key_hash is xxhash64, not murmur2"):
        make(store, 2, key_hash="murmur2", exist_ok=True)
    make(store, 2, exist_ok=True)


@pytest.mark.parametrize("key", [None, "n", ["k", "n"], "s"])
def test_a_key_that_kafka_has_not(store: str, key: Any) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="key is one column of type string or binary; here it is"):
        partq.create_queue(store, "q", "k string, n bigint, s struct<x:string>", key, key_hash="murmur2")
    with pytest.raises(
        partq.InvalidArgumentError, match="'murmur3': a queue places its keys by one of xxhash64, murmur2"
    ):
        partq.create_queue(store, "q", "k string", "k", key_hash="murmur3")
    with pytest.raises(partq.NotAStoreError):
        partq.list_queues(store)
