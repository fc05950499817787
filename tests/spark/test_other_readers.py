"""Q6: the messages of a queue are the same for any Delta reader: delta-spark, delta-rs, DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import duckdb
import duckdb_extensions
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import spark_partq as partq
from tests.helpers import new_file, opened, read
from tests.storage.procedures.test_make_segments import ago, merged

Message = tuple[int, int, str | None, int, int]  # partition, offset, k, n, microseconds
PARTITIONS = 2


def micros(value: dt.datetime) -> int:
    return (value.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def table(store: str, partition: int) -> str:
    return f"{store}/queues/q/partitions/partition={partition}"


def of_partq(spark: SparkSession, store: str) -> list[Message]:
    rows = read(spark, store).selectExpr("_partition", "_offset", "k", "n", "unix_micros(_enqueued_at)").collect()
    return sorted(tuple(r) for r in rows)


def of_delta_spark(spark: SparkSession, store: str) -> list[Message]:
    found: list[Message] = []
    for p in range(PARTITIONS):
        df = spark.read.format("delta").load(table(store, p))
        rows = df.selectExpr(f"{p}", "base_offset + _row", "k", "n", "unix_micros(_enqueued_at)").collect()
        found += [tuple(r) for r in rows]
    return sorted(found)


def of_delta_rs(_: SparkSession, store: str) -> list[Message]:
    found: list[Message] = []
    for p in range(PARTITIONS):
        rows = DeltaTable(table(store, p)).to_pyarrow_table()
        offsets = pc.add(rows["base_offset"], rows["_row"]).to_pylist()
        at = [micros(t) for t in rows["_enqueued_at"].to_pylist()]
        found += zip([p] * len(offsets), offsets, rows["k"].to_pylist(), rows["n"].to_pylist(), at, strict=True)
    return sorted(found)


def of_delta_rs_sql(_: SparkSession, store: str) -> list[Message]:
    found: list[Message] = []
    for p in range(PARTITIONS):
        query = QueryBuilder().register("t", DeltaTable(table(store, p)))
        for batch in query.execute("select base_offset + _row o, k, n, _enqueued_at a from t"):
            import pyarrow as pa

            rows = pa.record_batch(batch).to_pylist()
            found += [(p, r["o"], r["k"], r["n"], micros(r["a"])) for r in rows]
    return sorted(found)


def of_duckdb(_: SparkSession, store: str) -> list[Message]:
    connection = duckdb.connect()
    duckdb_extensions.import_extension("delta", con=connection)
    connection.execute("load delta; set timezone = 'UTC'")
    found: list[Message] = []
    for p in range(PARTITIONS):
        rows = connection.execute(
            f"select {p}, base_offset + _row, k, n, epoch_us(_enqueued_at) from delta_scan('{table(store, p)}')"
        ).fetchall()
        found += rows
    connection.close()
    return sorted(found)


READERS = [of_delta_spark, of_delta_rs, of_delta_rs_sql, of_duckdb]


@pytest.fixture(scope="module")
def messages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Message]]:
    """A queue that was written in several batches, of which retention has taken the oldest files."""
    store = str(tmp_path_factory.mktemp("readers") / "store")
    partq.create_queue(store, "q", "k string, n bigint", key="k", partitions=PARTITIONS)
    for batch in range(3):
        df = spark.range(batch * 20, batch * 20 + 20).selectExpr("if(id % 5 = 0, null, concat('k', id)) k", "id n")
        partq.append(df, store, "q", sink_id="s", batch_id=batch)
    expected = of_partq(spark, store)
    assert len(expected) == 60
    for reader in READERS:
        assert reader(spark, store) == expected, reader.__name__
    table_0 = opened(store).partitions[0]
    assert table_0.remove(lambda index: 1) > 0
    table_0.checkpoint()
    table_0.vacuum(0)
    return store, of_partq(spark, store)


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_same_messages(
    spark: SparkSession, messages: tuple[str, list[Message]], reader: Callable[[SparkSession, str], list[Message]]
) -> None:
    """Q6, Q8: the same messages, offsets and times for every reader, also after retention, a checkpoint and vacuum."""
    store, expected = messages
    assert 30 < len(expected) < 60
    assert reader(spark, store) == expected


def test_delta_spark_skips_files(spark: SparkSession, messages: tuple[str, list[Message]]) -> None:
    """Q6: row counts, bounds and partition values in the log are right for readers that plan by them."""
    store, expected = messages
    last = expected[-1]
    df = spark.read.format("delta").load(table(store, 1))
    assert df.where(f"n = {last[3]}").count() == sum(m[3] == last[3] and m[0] == 1 for m in expected)
    assert df.where(f"_enqueued_at = timestamp_micros({last[4]})").count() == sum(
        m[4] == last[4] and m[0] == 1 for m in expected
    )
    assert df.where("base_offset = 0").count() > 0
    rows = DeltaTable(table(store, 1)).get_add_actions(flatten=True)
    assert sum(rows["num_records"].to_pylist()) == df.count()


@pytest.mark.long
def test_history_and_time_travel(spark: SparkSession, messages: tuple[str, list[Message]]) -> None:
    """Q6: what Delta gives its users works on a queue: history and older versions."""
    store, _ = messages
    assert spark.sql(f"describe history delta.`{table(store, 1)}`").count() >= 3
    old = spark.read.format("delta").option("versionAsOf", 1).load(table(store, 1))
    assert 0 < old.count() < spark.read.format("delta").load(table(store, 1)).count()


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_messages_of_a_segment(
    spark: SparkSession, store: str, reader: Callable[[SparkSession, str], list[Message]]
) -> None:
    """The same, but for their times: other readers have that of the last for all of them."""
    partq.create_queue(store, "q", "k string, n bigint", key="k", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for n in range(3):
            file = new_file(store, "q", partition, {"k": ["a", "b"], "n": [n, n + 10]})
            opened(store).table(partition).append([file], None, time_us=lambda n=n: ago(5) + n)  # type: ignore[misc]
    assert merged(store) == 4
    found = of_partq(spark, store)
    assert {at - ago(5) for *_, at in found} == {0, 1, 2}
    assert reader(spark, store) == [(*place, ago(5) + 2) for *place, _ in found]
