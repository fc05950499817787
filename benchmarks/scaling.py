"""Scaling: how long producers are held, and what consumers do meanwhile, in a live resize under load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_partq as partq
from benchmarks.report import Figure, at_least, at_most, in_turn, known, median, spread
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.procedures.scale import start
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

ROWS = 20_000  # of a producer's micro-batch
WINDOW_S = 15.0


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    yield _map(folder, runs)
    yield from _under_load(spark, folder)


def _map(folder: Path, runs: int) -> Figure:
    """From the decision until the new map is in force: 64 tables are made and 128 are sealed."""
    store = str(folder / "scaling-store")
    names = iter(range(1_000))

    def subject() -> float:
        name = f"q{next(names)}"
        partq.create_queue(store, name, "k string, v bigint", key="k", partitions=64)
        queue = open_queue(Store.at(store), name)
        start(queue, 128, "live")
        began = time.perf_counter()
        open_generation(queue)
        return time.perf_counter() - began

    seconds = in_turn("a new map", {"64 to 128": subject}, runs, warm_up=1)
    return at_most("scaling, seal and make 64 partitions, s", "", median(seconds["64 to 128"]), 1.0, spread(seconds))


def _under_load(spark: SparkSession, folder: Path) -> Iterator[Figure]:
    store = str(folder / "resize-store")
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=8, rebalance_delay_ms=0)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    sink = partq.queue_sink(store, "q")
    wrote: list[tuple[float, float]] = []
    read: list[tuple[float, int]] = []

    def write(df: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        sink(df, batch_id)
        wrote.append((began, time.monotonic() - began))

    def count(df: DataFrame, batch_id: int) -> None:
        rows = df.count()
        read.append((time.monotonic(), rows))

    messages = source.selectExpr("concat('key-', value % 1000) as k", "value as v")
    consumer = spark.readStream.format("partq").option("path", store).option("queue", "q").option("flows", 2)
    queries: list[StreamingQuery] = [
        query.option("checkpointLocation", str(folder / f"resize-{name}")).trigger(processingTime="1 second").start()
        for name, query in (
            ("p", messages.writeStream.foreachBatch(write)),
            ("c", consumer.load().writeStream.foreachBatch(count)),
        )
    ]
    while len(wrote) < 10 or len(read) < 10:
        time.sleep(0.1)
    time.sleep(WINDOW_S)
    began = time.monotonic()
    partq.scale(store, "q", 16)
    took = time.monotonic() - began
    time.sleep(max(0.0, WINDOW_S - took))
    for query in queries:
        query.stop()

    usual = median([s for at, s in wrote if began - WINDOW_S <= at < began - 1])
    held = max(s for at, s in wrote if began - usual <= at < began + WINDOW_S)
    before, during = (
        sum(rows for at, rows in read if first <= at < first + WINDOW_S) / WINDOW_S
        for first in (began - WINDOW_S, began)
    )
    detail = f"usual {usual:.3f} s, longest {held:.3f} s"
    yield at_most(
        "scaling, time a producer's micro-batch is held", "its micro-batch", (held - usual) / usual, 2.0, detail
    )
    detail = f"{before:,.0f} rows/s, then {during:,.0f} rows/s"
    yield at_least("scaling, consumer's rows/s over the resize", "before it", during / before, 0.7, detail)
    yield known("scaling, 8 to 16 partitions, s", "", took)
