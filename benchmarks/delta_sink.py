"""Results exactly once: the sink for Delta tables against a plain streaming append of the same messages; and four writers of one table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_partq as partq
from benchmarks.data import rows
from benchmarks.delta_sink_worker import COLUMNS
from benchmarks.report import Figure, at_least, at_most, in_turn, known, median, spread
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget


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
    yield from _four(folder, runs)


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


WRITERS, COMMITS = 4, 25


def _four(folder: Path, runs: int) -> Iterator[Figure]:
    """Applications that commit as fast as they can, each 1,000 rows at a time; without Spark, which would hide what a commit costs."""
    tries: list[int] = []

    def race(how: str) -> float:
        seconds, tried = _race(folder, how)
        if how == "delta_sink":
            tries.append(tried)
        return seconds

    seconds = in_turn(
        "four writers of one table",
        {"delta_sink": lambda: race("delta_sink"), "append": lambda: race("append")},
        runs,
        warm_up=1,
    )
    commits = WRITERS * COMMITS
    rate = {how: commits / median(of_how) for how, of_how in seconds.items()}
    ratio = rate["delta_sink"] / rate["append"]
    yield at_least("delta_sink, commits/s, 4 writers", "delta-rs append", ratio, 0.9, spread(seconds))
    yield known(
        "delta_sink, commits/s of 4 writers together",
        "-",
        rate["delta_sink"],
        f"{rate['append']:.3g} by delta-rs append",
    )
    yield known("delta_sink, tries of a commit, 4 writers", "-", median(tries) / commits)


def _race(folder: Path, how: str) -> tuple[float, int]:
    """Seconds from the start of all writers to the end of the last, and how often they tried to commit."""
    table, go = folder / uuid.uuid4().hex, folder / f"go-{uuid.uuid4().hex}"
    DeltaTarget.create(Store(str(table)), COLUMNS, [])
    command = [sys.executable, "-m", "benchmarks.delta_sink_worker", how, str(table)]
    writers = [
        subprocess.Popen([*command, str(n), str(COMMITS), str(go)], stdout=subprocess.PIPE, text=True)
        for n in range(WRITERS)
    ]
    outputs = [writer.stdout for writer in writers if writer.stdout is not None]
    for output in outputs:
        output.readline()
    began = time.time()
    go.touch()
    told = [json.loads(output.read()) for output in outputs]
    if any(writer.wait() for writer in writers):
        raise RuntimeError("a writer failed")
    return max(t["ended_s"] for t in told) - began, sum(t["tries"] for t in told)


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
