"""What became of messages goes into another queue exactly once, with Spark: a chain of queues, restarts, lost checkpoints, resizes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from tests.helpers import put, put_back, run_through, stream
from tests.spark.test_delta_sink import Failing, more, values

pytestmark = pytest.mark.usefixtures("stopped_queries")

Sink = Callable[[DataFrame, int], None]


@pytest.fixture
def queues(store: str) -> str:
    """Messages 0 to 29 in two of three partitions of `q`; `b` and `c` are empty."""
    for name in ("q", "b", "c"):
        partq.create_queue(store, name, "v bigint", key="v", partitions=3, rebalance_delay_ms=0)
    for partition, first in ((0, 0), (1, 20)):
        put(store, partition, range(first, first + (20, 10)[partition]))
    return store


def stored(spark: SparkSession, store: str, queue: str) -> list[Any]:
    read = spark.read.format("partq").option("path", store).option("queue", queue).load()
    return sorted(row.v for row in read.select("v").collect())


@pytest.mark.long
def test_a_chain_of_queues_and_a_table(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    """Each step's query dies once after it has written, and comes back with a lost checkpoint; the queues are resized meanwhile."""
    table = tmp_path / "t"

    def step(source: str, sink: Sink, name: str) -> None:
        read = stream(spark, queues, queue=source, group="g")
        with pytest.raises(StreamingQueryException, match="the driver is gone"):
            run_through(read, tmp_path / f"{name}-{source}", Failing(sink))
        run_through(read, tmp_path / f"{name}-{source}-fresh", sink)

    def chain(name: str) -> None:
        step("q", partq.queue_sink(queues, "b", exactly_once=True), name)
        step("b", partq.queue_sink(queues, "c", order_by="v", exactly_once=True), name)
        step("c", partq.delta_sink(table), name)

    chain("first")
    assert stored(spark, queues, "b") == stored(spark, queues, "c") == values(table) == list(range(30))
    more(spark, queues, 30, 20)
    partq.scale(queues, "q", 5)
    partq.scale(queues, "b", 4)
    more(spark, queues, 50, 20)
    chain("second")
    assert stored(spark, queues, "b") == stored(spark, queues, "c") == values(table) == list(range(70))


def test_a_join_that_shuffles(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Its rows come by the key of the join; ``order_by="_offset"`` has the messages of a key in their order."""
    for name in ("q", "b"):
        partq.create_queue(store, name, "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    rows = spark.range(40).coalesce(1).selectExpr("'a' as k", "id as v")
    partq.append(rows, store, "q")
    other = spark.range(7).withColumnRenamed("id", "j")
    joined = stream(spark, store, group="g").withColumn("j", sf.expr("v % 7")).join(other.hint("merge"), "j").drop("j")
    run_through(joined, tmp_path / "cp", partq.queue_sink(store, "b", order_by="_offset", exactly_once=True))
    read = spark.read.format("partq").option("path", store).option("queue", "b").load()
    assert [row.v for row in read.orderBy("_offset").collect()] == list(range(40))


def test_two_sinks_of_a_group(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    small, large = (partq.queue_sink(queues, "b", exactly_once=True, sink_id=name) for name in ("small", "large"))

    def both(batch: DataFrame, batch_id: int) -> None:
        small(batch.filter("v < 5"), batch_id)
        large(batch.filter("v >= 5").withColumn("v", sf.col("v") * 100), batch_id)

    for number in range(2):  # the second time with a lost checkpoint
        run_through(stream(spark, queues, group="g"), tmp_path / f"cp{number}", both)
    assert stored(spark, queues, "b") == [*range(5), *range(500, 3000, 100)]


@pytest.mark.long
def test_a_queue_that_is_put_back(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    """Its new messages get offsets that the target has: that is told, and nothing is written or left out."""
    target, backup = str(tmp_path / "target"), tmp_path / "backup"
    partq.create_queue(target, "b", "v bigint", key="v", partitions=3)
    shutil.copytree(queues, backup)
    more(spark, queues, 30, 20)
    sink = partq.queue_sink(target, "b", exactly_once=True)
    run_through(stream(spark, queues, group="g"), tmp_path / "cp", sink)
    put_back(queues, backup, "g")
    put(queues, 0, range(100, 105))
    with pytest.raises(StreamingQueryException, match=r"\[TARGET_AHEAD\] queue 'b' has the messages of partition \d "):
        run_through(stream(spark, queues, group="g"), tmp_path / "fresh", sink)
    assert stored(spark, target, "b") == list(range(50))
    run_through(stream(spark, queues, group="h"), tmp_path / "h", sink)
    assert stored(spark, target, "b") == sorted([*range(50), *range(30), *range(100, 105)])


@pytest.mark.long
def test_a_checkpoint_that_is_put_back(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    """Q5: its next micro-batch has other messages under a number that the sink has had; that is told, and they are not left out."""
    checkpoint, backup = tmp_path / "cp", tmp_path / "backup"
    run_through(stream(spark, queues, group="g").select("v"), checkpoint, partq.queue_sink(queues, "b"))
    shutil.copytree(checkpoint, backup)
    more(spark, queues, 30, 20)
    run_through(stream(spark, queues, group="g").select("v"), checkpoint, partq.queue_sink(queues, "b"))
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    more(spark, queues, 50, 20)
    with pytest.raises(StreamingQueryException, match=r"\[SINK_AHEAD\].* batch 1 of other messages came now"):
        run_through(stream(spark, queues, group="g").select("v"), checkpoint, partq.queue_sink(queues, "b"))
    assert stored(spark, queues, "b") == list(range(50))
    run_through(stream(spark, queues, group="g").select("v"), tmp_path / "fresh", partq.queue_sink(queues, "b"))
    assert stored(spark, queues, "b") == list(range(70))


@pytest.mark.long
def test_spark_keeps_offsets_by_the_names_of_sources(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    """As with `spark.sql.streaming.offsetLog.formatVersion` = 2, which is not its default."""
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", 2)
    try:
        sinks = partq.queue_sink(queues, "b", exactly_once=True), partq.queue_sink(queues, "c")

        def both(batch: DataFrame, batch_id: int) -> None:
            sinks[0](batch, batch_id)
            sinks[1](batch.select("v"), batch_id)

        for first in (30, 50):
            run_through(stream(spark, queues, group="g"), tmp_path / "cp", both)
            more(spark, queues, first, 20)
    finally:
        spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    assert stored(spark, queues, "b") == stored(spark, queues, "c") == list(range(50))


@pytest.mark.long
def test_messages_that_are_discarded_are_counted_once(spark: SparkSession, store: str, tmp_path: Path) -> None:
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, rebalance_delay_ms=0)
    partq.create_queue(store, "b", "v bigint", key="v", partitions=2, reject_to_sender="off")
    put(store, 0, range(10))
    partq.set_ingress(store, "b", enabled=False)
    sink = partq.queue_sink(store, "b", exactly_once=True)
    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        run_through(stream(spark, store, group="g", instanceId="a").filter("v != 3"), tmp_path / "cp", Failing(sink))
    partq.set_ingress(store, "b", enabled=True)
    put(store, 0, range(10, 15))
    run_through(stream(spark, store, group="g", instanceId="a").filter("v != 3"), tmp_path / "fresh", sink)
    assert stored(spark, store, "b") == list(range(10, 15))
    assert partq.describe_queue(store, "b").discarded == 9


def test_what_cannot_be_traced_is_refused(spark: SparkSession, queues: str, tmp_path: Path) -> None:
    sink = partq.queue_sink(queues, "b", exactly_once=True)
    with pytest.raises(partq.InvalidArgumentError, match="foreachBatch"):
        sink(spark.range(1).selectExpr("id as v", "'q' as _queue", "0 as _partition", "0L as _offset"), 0)
    said: list[str] = []

    def try_all(batch: DataFrame, batch_id: int) -> None:
        for rows in (
            batch.groupBy("v").count().drop("count"),
            batch.withColumn("w", sf.col("v")),
            batch.withColumn("_offset", sf.col("_offset") + 1000),
        ):
            with pytest.raises(partq.PartqError) as caught:
                sink(rows, batch_id)
            said.append(caught.value.message)

    run_through(stream(spark, queues, group="g"), tmp_path / "cp", try_all)
    parts = "no _queue, _partition, _offset", "extra w long", "which is none of this micro-batch"
    assert [part in text for part, text in zip(parts, said, strict=True)] == [True] * 3
    assert stored(spark, queues, "b") == []
