"""What becomes of the tables that a sink writes, while it does so and before: replaced, compacted, ahead of a queue, in an object store."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from tests.helpers import put, put_back, run_through, stream
from tests.s3server import BUCKET, running

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def queue(store: str) -> str:
    """Messages 0 to 19 in two partitions; who comes back waits for no rebalance delay."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    more(store, 0)
    return store


def more(store: str, first: int) -> None:
    """Twenty messages."""
    for partition in range(2):
        put(store, partition, range(first + partition * 10, first + partition * 10 + 10))


def values(table: str | Path, options: dict[str, str] | None = None) -> list[Any]:
    return sorted(DeltaTable(str(table), storage_options=options).to_pyarrow_table().column("v").to_pylist())


@pytest.mark.parametrize(("type_", "refused"), [
    ("STRUCT<a: BIGINT COMMENT 'x'>", ""),
    ("STRUCT<a: BIGINT NOT NULL>", "its column s must not hold nulls inside, which this sink does not check"),
    pytest.param("STRUCT<a: INT>", "its column s is struct<a:integer>, not struct<a:long>", marks=pytest.mark.long),
])  # fmt: skip
def test_nested_columns(spark: SparkSession, queue: str, tmp_path: Path, type_: str, refused: str) -> None:
    """A comment inside of a column is none of the sink's business."""
    table = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, s {type_}) USING delta")
    rows = stream(spark, queue, group="g").withColumn("s", sf.struct(sf.col("v").alias("a")))
    if refused:
        with pytest.raises(StreamingQueryException, match=refused):
            run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    else:
        run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == ([] if refused else [*range(20)])


def test_texts_with_a_length(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Spark keeps the length beside the column, and checks each row that it writes."""
    table, inside = tmp_path / "t", tmp_path / "inside"
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, s VARCHAR(3), c CHAR(2)) USING delta")
    spark.sql(f"CREATE TABLE delta.`{inside}` (v BIGINT, s ARRAY<VARCHAR(3)>) USING delta")
    rows = (
        stream(spark, queue, group="g")
        .withColumn("s", sf.expr("if(v = 7, 'long', 'ööö')"))
        .withColumn("c", sf.lit(None).cast("string"))
    )
    with pytest.raises(
        StreamingQueryException, match="a row of message 7 of partition 0 of queue 'q' does not fulfil s varchar"
    ):
        run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == []
    run_through(rows.filter("v <> 7"), tmp_path / "again", partq.delta_sink(table))
    assert values(table) == [v for v in range(20) if v != 7]
    other = stream(spark, queue, group="h").withColumn("s", sf.array(sf.lit("a")))
    with pytest.raises(
        StreamingQueryException, match=r"features that this sink does not support: array<varchar\(3\)> of column s"
    ):
        run_through(other, tmp_path / "other", partq.delta_sink(inside))


def test_a_column_of_another_case(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, Note STRING) USING delta")
    rows = stream(spark, queue, group="g").withColumn("note", sf.lit("x"))
    with pytest.raises(StreamingQueryException, match="its column Note differs from note by case"):
        run_through(rows, tmp_path / "cp", partq.delta_sink(table, merge_schema=True))
    assert values(table) == []


def test_a_column_of_the_source_of_another_case(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """It would hold nulls: nothing that looks for the message's offset would find the row."""
    table = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, _OFFSET BIGINT) USING delta")
    with pytest.raises(StreamingQueryException, match="its column _OFFSET differs from _offset by case"):
        run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == []


def test_no_column_is_added_if_another_is_wrong(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{table}` (v STRING) USING delta")
    rows = stream(spark, queue, group="g").withColumn("x", sf.lit(1))
    with pytest.raises(StreamingQueryException, match=r"rows: its column v is string, not long\. Nothing was written"):
        run_through(rows, tmp_path / "cp", partq.delta_sink(table, merge_schema=True))
    assert DeltaTable(table).version() == 0


@pytest.mark.long
def test_a_table_that_was_dropped_and_made_again(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Its positions are gone with it, and the group goes on where it is; another group writes all messages that the queue has."""
    table, cp = tmp_path / "t", tmp_path / "cp"
    sink = partq.delta_sink(table)
    run_through(stream(spark, queue, group="g"), cp, sink)
    shutil.rmtree(table)
    more(queue, 20)
    run_through(stream(spark, queue, group="g"), cp, sink)
    assert values(table) == [*range(20, 40)]
    run_through(stream(spark, queue, group="h"), tmp_path / "h", partq.delta_sink(table, name="again"))
    assert values(table) == sorted([*range(20, 40), *range(40)])


@pytest.mark.long
def test_a_column_that_must_not_be_null_and_is_missing(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, note STRING NOT NULL) USING delta")
    with pytest.raises(StreamingQueryException, match="its column note must not be null, and the rows have none"):
        run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(table))
    rows = stream(spark, queue, group="g").withColumn("note", sf.lit("x"))
    run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == [*range(20)]


@pytest.mark.long
def test_an_empty_text_in_a_partition_column(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """It is null there, as Delta's writers have it: refused where the column must not be null, and the table stays whole."""
    table, rows = tmp_path / "t", stream(spark, queue, group="g").withColumn("k", sf.expr("if(v = 7, '', 'x')"))
    spark.sql(f"CREATE TABLE delta.`{table}` (v BIGINT, k STRING NOT NULL) USING delta PARTITIONED BY (k)")
    with pytest.raises(StreamingQueryException, match=r"CONSTRAINT_VIOLATED.* does not fulfil k NOT NULL"):
        run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == []
    spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN k DROP NOT NULL")
    run_through(rows, tmp_path / "cp", partq.delta_sink(table))
    assert values(table) == [*range(20)]
    assert [row.v for row in spark.read.format("delta").load(str(table)).filter("k is null").collect()] == [7]


@pytest.mark.long
def test_optimize_and_vacuum_beside_it(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Again and again, while micro-batches of a few messages are written."""
    table, over, done = tmp_path / "t", threading.Event(), []
    run_through(stream(spark, queue, group="g", maxRowsPerTrigger=4), tmp_path / "cp", partq.delta_sink(table))
    more(queue, 20)

    def compact() -> None:
        while not over.is_set():
            files = DeltaTable(str(table))
            files.optimize.compact()
            files.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)
            done.append(files.version())

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        run_through(stream(spark, queue, group="g", maxRowsPerTrigger=2), tmp_path / "cp", partq.delta_sink(table))
    finally:
        over.set()
        thread.join()
    assert len(set(done)) > 1, "nothing was compacted meanwhile"
    assert values(table) == [*range(40)]


@pytest.mark.long
def test_a_queue_that_is_put_back(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Its new messages get offsets that the table has: that is told, and nothing is written or left out."""
    table, backup = tmp_path / "t", tmp_path / "backup"
    shutil.copytree(queue, backup)
    more(queue, 20)
    run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(table))
    put_back(queue, backup, "g")
    put(queue, 0, range(100, 105))
    version = DeltaTable(str(table)).version()
    said = r"\[TARGET_AHEAD\].*has the messages of partition \d .* up to 20, but that partition ends at 1[05]: the queue was put back"
    with pytest.raises(StreamingQueryException, match=said):
        run_through(stream(spark, queue, group="g"), tmp_path / "fresh", partq.delta_sink(table))
    assert DeltaTable(str(table)).version() == version
    run_through(stream(spark, queue, group="h"), tmp_path / "h", partq.delta_sink(tmp_path / "other"))
    assert values(tmp_path / "other") == [*range(20), *range(100, 105)]


@pytest.mark.long
def test_a_table_in_an_object_store(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table = f"s3://{BUCKET}/billed"
    with running() as server:
        sink = partq.delta_sink(table, storage_options=server.options)
        run_through(stream(spark, queue, group="g", maxRowsPerTrigger=8), tmp_path / "cp", sink)
        more(queue, 20)
        again = partq.delta_sink(table, storage_options=server.options)
        run_through(stream(spark, queue, group="g"), tmp_path / "fresh", again)
        options = {**server.options, "conditional_put": "etag"}
        assert values(table, options) == [*range(40)]
        server.next_put("drop")  # the answer to a put is lost
        more(queue, 40)
        run_through(stream(spark, queue, group="g"), tmp_path / "fresh", sink)
        assert values(table, options) == [*range(60)]
