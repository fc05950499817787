"""Reading a stream: the source against Spark's native Delta source on the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

import spark_partq as partq
from benchmarks.data import rows
from benchmarks.floor import FloorSource
from benchmarks.report import Figure, at_least, at_most, in_turn, known, median, spread

Sink = Callable[[DataFrame, int], None]


def discard(batch: DataFrame, batch_id: int) -> None:
    """Compute every row and drop it."""
    batch.write.format("noop").mode("overwrite").save()


def per_key(batch: DataFrame, batch_id: int) -> None:
    """What consumers of keyed messages do: something per key."""
    batch.groupBy("k").agg({"id": "max", "body": "max"}).write.format("noop").mode("overwrite").save()


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    df = rows(spark, folder, count)
    store = str(folder / "stream-store")
    partq.create_queue(store, "large", df.schema, key="k", partitions=16)
    partq.append(df, store, "large")
    df.write.format("delta").save(str(folder / "large"))
    partq.create_queue(store, "small", df.schema, key="k", partitions=16)
    batches = 10
    for i in range(batches):
        some = df.where(f"id >= {i * 1000} and id < {(i + 1) * 1000}").coalesce(1)
        partq.append(some, store, "small")
        some.write.format("delta").mode("append").save(str(folder / "small"))

    def ours(queue: str, **options: int) -> DataStreamReader:
        reader = spark.readStream.format("partq").option("path", store).option("queue", queue).option("flows", 2)
        return reader.options(**options)

    def native(table: str, **options: int) -> DataStreamReader:
        return spark.readStream.format("delta").option("path", str(folder / table)).options(**options)

    spark.dataSource.register(FloorSource)
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in ours("large").load().schema)
    floor = spark.readStream.format("floor").options(rows=count, flows=2, ddl=columns)

    for name, sink in (("discarded", discard), ("grouped by key", per_key)):
        subjects: dict[str, Callable[[], float]] = {
            "partq": partial(_total_seconds, ours("large"), sink, folder),
            "native": partial(_total_seconds, native("large"), sink, folder),
            "reads nothing": partial(_total_seconds, floor, sink, folder),
        }
        seconds = in_turn(f"stream, {name}", subjects, runs, warm_up=4)
        ratio = median(seconds["native"]) / median(seconds["partq"])
        yield at_least(f"stream, rows/s, 2 flows, {name}", "native Delta source", ratio, 1.5, spread(seconds))
        ratio = median(seconds["reads nothing"]) / median(seconds["partq"])
        yield known(f"stream, rows/s, 2 flows, {name}", "a Python source that reads nothing", ratio)

    subjects = {
        "partq": lambda: median(_seconds(ours("small", maxRowsPerTrigger=1000), discard, folder)[1:]),
        "native": lambda: median(_seconds(native("small", maxFilesPerTrigger=1), discard, folder)[1:]),
    }
    seconds = in_turn("stream, small micro-batches", subjects, runs, warm_up=2)
    ratio = median(seconds["partq"]) / median(seconds["native"])
    name = "stream, time of a micro-batch of 1,000 rows, 16 partitions"
    yield at_most(name, "native Delta source", ratio, 1.0, spread(seconds))


def _total_seconds(reader: DataStreamReader, sink: Sink, folder: Path) -> float:
    return sum(_seconds(reader, sink, folder))


def _seconds(reader: DataStreamReader, sink: Sink, folder: Path) -> list[float]:
    """Read all there is and return each micro-batch's whole time, planning and checkpointing included."""
    return [p["durationMs"]["triggerExecution"] / 1000 for p in progress(reader, sink, folder)]


def progress(reader: DataStreamReader, sink: Sink, folder: Path) -> list[Any]:
    """Read all there is and return what Spark reports of each micro-batch with rows."""
    query = (
        reader.load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoints" / uuid.uuid4().hex))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [p for p in query.recentProgress if p["numInputRows"]]
