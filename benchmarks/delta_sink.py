"""Results exactly once: the sink for Delta tables against a plain streaming append of the same messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_partq as partq
from benchmarks.data import rows
from benchmarks.report import Figure, at_least, at_most, in_turn, median, spread


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    """Each run reads the whole queue as a group of its own, into a table that the warm-up has made."""
    df = rows(spark, folder, count)
    store = str(folder / "results-store")
    partq.create_queue(store, "large", df.schema, key="k", partitions=16)
    partq.append(df, store, "large")
    partq.create_queue(store, "small", df.schema, key="k", partitions=16)
    partq.append(df.where("id < 10000"), store, "small")
    yield from _large(spark, folder, store, runs)
    yield from _small(spark, folder, store, runs)


def _large(spark: SparkSession, folder: Path, store: str, runs: int) -> Iterator[Figure]:
    seconds = in_turn(
        "results in a Delta table",
        {
            "delta_sink": lambda: sum(_seconds(_sink(_messages(spark, store), folder / "large-once"), folder)),
            "append": lambda: sum(_seconds(_append(_messages(spark, store), folder / "large-plain"), folder)),
        },
        runs,
        warm_up=2,
    )
    ratio = median(seconds["append"]) / median(seconds["delta_sink"])
    yield at_least("delta_sink, rows/s, 2 flows", "Delta streaming append", ratio, 0.9, spread(seconds))


def _small(spark: SparkSession, folder: Path, store: str, runs: int) -> Iterator[Figure]:
    def some() -> DataFrame:
        return _messages(spark, store, "small", maxRowsPerTrigger=1000)

    seconds = in_turn(
        "results in a Delta table, small micro-batches",
        {
            "delta_sink": lambda: median(_seconds(_sink(some(), folder / "small-once"), folder)[1:]),
            "append": lambda: median(_seconds(_append(some(), folder / "small-plain"), folder)[1:]),
        },
        runs,
        warm_up=1,
    )
    ratio = median(seconds["delta_sink"]) / median(seconds["append"])
    name = "delta_sink, time of a micro-batch of 1,000 rows, 16 partitions"
    yield at_most(name, "Delta streaming append", ratio, 1.0, spread(seconds))


def _messages(spark: SparkSession, store: str, queue: str = "large", **options: int) -> DataFrame:
    reader = spark.readStream.format("partq").option("path", store).option("queue", queue).option("flows", 2)
    return reader.options(**options).load()


def _sink(messages: DataFrame, table: Path) -> DataStreamWriter:
    return messages.writeStream.foreachBatch(partq.delta_sink(table))


def _append(messages: DataFrame, table: Path) -> DataStreamWriter:
    return messages.writeStream.format("delta").option("path", str(table))


def _seconds(writer: DataStreamWriter, folder: Path) -> list[float]:
    """Run it over all there is; each micro-batch's whole time, planning and checkpointing included."""
    checkpoint = str(folder / "checkpoints" / uuid.uuid4().hex)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
