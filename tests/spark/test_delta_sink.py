"""The rows of each message in a Delta table exactly once, with Spark: restarts, lost checkpoints, another application, a resize."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from spark_partq.core.stored import MOST
from spark_partq.spark import delta_sink
from spark_partq.spark.micro_batch import SOURCE
from tests.helpers import put, run_through, stream

pytestmark = pytest.mark.usefixtures("stopped_queries")

Sink = Callable[[DataFrame, int], None]


@pytest.fixture
def queue(store: str) -> str:
    """Messages 0 to 29 in two of three partitions; who comes back waits for no rebalance delay."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=3, rebalance_delay_ms=0)
    for partition, first in ((0, 0), (1, 20)):
        put(store, partition, range(first, first + (20, 10)[partition]))
    return store


def values(table: Path, column: str = "v") -> list[Any]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column(column).to_pylist())


def more(spark: SparkSession, store: str, first: int, count: int) -> None:
    partq.append(spark.range(first, first + count).select(sf.col("id").alias("v")), store, "q")


class Failing:
    """A sink whose query dies after the commit, before Spark knows that the micro-batch is done."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.left = 1

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self._sink(batch, batch_id)
        if self.left:
            self.left -= 1
            raise InterruptedError("the driver is gone")


def test_each_row_once(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """A query that dies after its commit, a lost checkpoint, another group, a resize; of each message the rows that it makes."""
    table, cp = tmp_path / "t", tmp_path / "cp"

    def rows() -> DataFrame:
        made = stream(spark, queue, group="g").filter("v % 3 != 0")
        return made.select("*", sf.explode(sf.expr("array(v, -v)")).alias("w"), (sf.col("v") % 2).alias("odd"))

    def wanted(end: int) -> list[int]:
        return sorted(w for v in range(end) if v % 3 for w in (v, -v))

    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        run_through(rows(), cp, Failing(partq.delta_sink(table, partition_by="odd")))
    assert values(table, "w") == wanted(30)
    run_through(rows(), cp, partq.delta_sink(table))
    assert values(table, "w") == wanted(30)

    more(spark, queue, 30, 20)
    partq.scale(queue, "q", 5)
    more(spark, queue, 50, 20)
    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        run_through(rows(), tmp_path / "fresh", Failing(partq.delta_sink(table)))
    run_through(rows(), tmp_path / "fresher", partq.delta_sink(table))
    assert values(table, "w") == wanted(70)

    read = spark.read.format("delta").load(str(table))
    assert read.filter("odd = 1").count() == sum(1 for w in wanted(70) if w % 2)
    assert {"k", "v", "_partition", "_offset"} - set(read.columns) == {"k"}
    run_through(stream(spark, queue, group="h").withColumn("w", sf.col("v")), tmp_path / "h", partq.delta_sink(table))
    assert len(values(table, "w")) == len(wanted(70)) + 70


@pytest.mark.long
def test_the_table_is_as_durable_as_the_queue(
    spark: SparkSession, queue: str, tmp_path: Path, forced: list[str]
) -> None:
    """Also if it becomes so while the query runs."""
    sink = partq.delta_sink(tmp_path / "t")

    def write(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        if batch_id == 0:
            assert not [path for path in forced if path.startswith(str(tmp_path / "t"))]
            partq.alter_queue(queue, "q", durability="disk")

    run_through(stream(spark, queue, group="g", maxRowsPerTrigger=20), tmp_path / "cp", write)
    assert [path for path in forced if path == str(tmp_path / "t" / "_delta_log")]
    assert values(tmp_path / "t") == list(range(30))
    more(spark, queue, 30, 5)
    forced.clear()
    run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(tmp_path / "t"))
    assert [path for path in forced if path == str(tmp_path / "t" / "_delta_log")]
    assert values(tmp_path / "t") == list(range(35))


def test_a_queue_that_cannot_be_asked_may_be_durable(
    spark: SparkSession, queue: str, tmp_path: Path, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store does not answer once: what this micro-batch adds is forced to the disk, too."""
    monkeypatch.setattr(delta_sink, "open_sources", lambda *_: iter(()))
    run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(tmp_path / "t"))
    assert [path for path in forced if path == str(tmp_path / "t" / "_delta_log")]
    assert values(tmp_path / "t") == list(range(30))


def test_two_sinks_of_a_group_in_one_micro_batch(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    small, large = partq.delta_sink(table, name="small"), partq.delta_sink(table, name="large")

    def both(batch: DataFrame, batch_id: int) -> None:
        small(batch.filter("v < 5"), batch_id)
        large(batch.filter("v >= 5").withColumn("v", sf.col("v") * 100), batch_id)

    for _ in range(2):  # the second time with a lost checkpoint
        run_through(stream(spark, queue, group="g"), tmp_path / f"cp{_}", both)
    assert values(table) == [*range(5), *range(500, 3000, 100)]


@pytest.mark.long
def test_a_table_of_delta_spark(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Constraints, NOT NULL, deletion vectors, and what Delta does beside the sink; the table has its own columns only."""
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (v BIGINT NOT NULL, note STRING, day DATE) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (v < 1000)")
    sink = partq.delta_sink(table)
    rows = stream(spark, queue, group="g").withColumn("day", sf.expr("date '2024-01-01' + cast(v % 2 as int)"))
    run_through(rows, tmp_path / "cp", sink)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE v = 7")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    more(spark, queue, 30, 5)
    run_through(rows, tmp_path / "other", sink)
    found = spark.read.format("delta").load(str(table))
    assert sorted(r.v for r in found.collect()) == [v for v in range(35) if v != 7]
    assert found.columns == ["v", "note", "day"] and found.filter("day = '2024-01-02'").count() == 16

    more(spark, queue, 1000, 1)
    version = DeltaTable(str(table)).version()
    with pytest.raises(StreamingQueryException, match=r"CONSTRAINT_VIOLATED.*does not fulfil small \(v < 1000\)"):
        run_through(rows, tmp_path / "third", sink)
    with pytest.raises(StreamingQueryException, match=r"CONSTRAINT_VIOLATED.*v NOT NULL"):
        run_through(rows.withColumn("v", sf.lit(None).cast("bigint")), tmp_path / "fourth", sink)
    assert DeltaTable(str(table)).version() == version
    run_through(rows.filter("v < 1000"), tmp_path / "third", sink)


def test_what_cannot_be_written_exactly_once_is_refused(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Before anything is written; the micro-batch is then written as it is."""
    table, other, said = tmp_path / "t", tmp_path / "other", []

    def try_all(batch: DataFrame, batch_id: int) -> None:
        sink, v = partq.delta_sink(table), sf.col("v")
        partq.delta_sink(table, name="other")(batch.limit(0), batch_id)  # makes the table
        for into, rows in (
            (sink, batch.groupBy("v").count()),
            (sink, batch.withColumn("_offset", sf.col("_offset") + 1000)),
            (sink, batch.withColumn("_queue", sf.lit(None).cast("string"))),
            (sink, batch.withColumn("x", sf.lit(None))),
            (sink, batch.withColumn("v", v.cast("string")).withColumn("x", sf.lit(1))),
            (partq.delta_sink(other, partition_by="nothing"), batch),
            (partq.delta_sink(other, create=False), batch),
        ):
            with pytest.raises(partq.PartqError) as caught:
                into(rows, batch_id)
            said.append(caught.value.message)
        assert values(table) == []

    run_through(stream(spark, queue, group="g"), tmp_path / "cp", try_all)
    for text, begins in zip(
        said,
        (
            "the rows have no _queue, _partition, _offset, so nobody can tell which messages they come from",
            "a row says that it comes from message 1000 of partition 0 of queue 'q', which is none of this micro-batch",
            "a row says that it comes from message 0 of partition 0 of queue None",
            "column x: type void cannot be kept",
            f"Delta table {table} does not take the rows: it has no column x integer; its column v is long, not string",
            "partition_by column 'nothing' is none of v, _queue",
            f"there is no Delta table at {other}",
        ),
        strict=True,
    ):
        assert text.startswith(begins), text
    assert not other.exists()


def test_columns_are_added_if_that_is_asked_for(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    table, seen = tmp_path / "t", stream(spark, queue, group="g")
    run_through(seen, tmp_path / "cp", partq.delta_sink(table))
    more(spark, queue, 30, 1)
    run_through(seen.withColumn("x", sf.lit(1)), tmp_path / "cp", partq.delta_sink(table, merge_schema=True))
    found = DeltaTable(str(table)).to_pyarrow_table().to_pydict()
    assert sorted(zip(found["v"], map(str, found["x"]), strict=True))[28:] == [(28, "None"), (29, "None"), (30, "1")]


def test_positions(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Of the rows that are there: a filter, or a replay, may have left something out."""
    found: list[Any] = []
    said: list[str] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        found.extend(
            partq.positions(rows) for rows in (batch, batch.filter("v between 3 and 7"), batch.filter("false"))
        )
        for rows in (batch.groupBy("v").count(), batch.withColumn("_queue", sf.lit("other"))):
            with pytest.raises(partq.InvalidArgumentError) as caught:
                partq.positions(rows)
            said.append(caught.value.message)

    run_through(stream(spark, queue, group="g"), tmp_path / "cp", take)
    queue_id = partq.describe_queue(queue, "q").queue_id

    def position(start: int, end: int) -> partq.Position:
        return partq.Position(start, end, 1, queue_id, ((queue_id, MOST),))

    assert found == [{("q", 0): position(0, 20), ("q", 1): position(0, 10)}, {("q", 0): position(3, 8)}, {}]
    assert (
        said[0].startswith("the rows have no _queue") and "of partition 0 of queue 'other', which is none of" in said[1]
    )
    with pytest.raises(partq.InvalidArgumentError, match="those of a micro-batch"):
        partq.positions(spark.range(1).selectExpr("'q' _queue", "0 _partition", "id _offset"))


def test_two_threads_of_a_micro_batch(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Each writes a half, with a sink of its own: the table would take one for the other."""
    said: list[str] = []

    def halves(batch: DataFrame, batch_id: int) -> None:
        def write(condition: str) -> None:
            try:
                partq.delta_sink(tmp_path / "t")(batch.filter(condition), batch_id)
            except partq.InvalidArgumentError as error:
                said.append(error.message)

        threads = [InheritableThread(target=write, args=(condition,)) for condition in ("v < 7", "v >= 7")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run_through(stream(spark, queue, group="g"), tmp_path / "cp", halves)
    assert len(said) == 1 and said[0].startswith("this micro-batch has been written to")


def test_a_second_call_with_other_names(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Two columns change their names: to Spark's hash of a plan that is the same."""
    said: list[str] = []

    def twice(batch: DataFrame, batch_id: int) -> None:
        sink, rows = partq.delta_sink(tmp_path / "t"), batch.select("v", (-sf.col("v")).alias("w"), *SOURCE)
        sink(rows, batch_id)
        sink(rows, batch_id)
        with pytest.raises(partq.InvalidArgumentError) as caught:
            sink(rows.withColumnsRenamed({"v": "w", "w": "v"}), batch_id)
        said.append(caught.value.message)

    run_through(stream(spark, queue, group="g"), tmp_path / "cp", twice)
    assert said and said[0].startswith("this micro-batch has been written to")
    assert values(tmp_path / "t") == list(range(30))
