"""Writing: the sink against Delta's own appends of the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from benchmarks.data import rows
from benchmarks.report import Figure, at_least, at_most, in_turn, median, spread
from spark_partq.storage.procedures.produce import Producer


def timed(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    df = rows(spark, folder, count)
    for partitions in (16, 64):
        yield from _large(df, folder, partitions, runs)
    yield from _small(df, folder, runs)


def _large(df: DataFrame, folder: Path, partitions: int, runs: int) -> Iterator[Figure]:
    write, plain, parted = _subjects(df, folder, partitions)
    subjects = {"sink": write, "partitionBy append": parted, "plain append": plain}
    measured: dict[str, Callable[[], float]] = {name: partial(timed, subject) for name, subject in subjects.items()}
    with CommitClock() as clock:
        seconds = in_turn(f"sink, {partitions} partitions", measured, runs, warm_up=3)
    took = {name: median(s) for name, s in seconds.items()}
    name = f"sink, rows/s, {partitions} partitions"
    yield at_least(name, "Delta partitionBy append", took["partitionBy append"] / took["sink"], 1.5, spread(seconds))
    yield at_least(name, "Delta plain append", took["plain append"] / took["sink"], 0.6)
    if partitions == 64:
        commits = median(clock.seconds[-runs:])
        detail = f"{commits / took['sink']:.1%} of the micro-batch"
        bound = max(200, 50 * took["sink"])
        yield at_most("sink, commits of 64 partitions, ms (200, or 5 %)", "-", commits * 1000, bound, detail)


class CommitClock:
    """Takes the time from the first to the last commit of each micro-batch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._commit = Producer._commit

    def __enter__(self) -> CommitClock:
        clock = self

        def measured(producer: Producer, *args: Any) -> Any:
            start = time.perf_counter()
            result = clock._commit(producer, *args)
            clock.seconds.append(time.perf_counter() - start)
            return result

        Producer._commit = measured  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Producer._commit = self._commit  # type: ignore[method-assign]


def _small(df: DataFrame, folder: Path, runs: int) -> Iterator[Figure]:
    thousand = df.limit(1000).cache()
    thousand.count()
    write, plain, _ = _subjects(thousand, folder, 16, "small")
    subjects = {"sink": lambda: timed(write), "plain append": lambda: timed(plain)}
    seconds = in_turn("sink, 1,000 rows", subjects, runs * 2, warm_up=3)
    took = {name: median(s) for name, s in seconds.items()}
    ratio = took["sink"] / took["plain append"]
    yield at_most("sink, time of 1,000 rows, 16 partitions", "Delta plain append", ratio, 1.0, spread(seconds))


def _subjects(df: DataFrame, folder: Path, partitions: int, name: str = "rows") -> tuple[Callable[[], Any], ...]:
    store, queue = str(folder / "store"), f"{name}-{partitions}"
    partq.create_queue(store, queue, df.schema, key="k", partitions=partitions)
    sink = partq.queue_sink(store, queue)
    number = sf.pmod(sf.xxhash64("k"), sf.lit(partitions)).alias("p")
    plain_path, parted_path = str(folder / f"plain-{queue}"), str(folder / f"parted-{queue}")
    return (
        lambda: sink.append(df, None),
        lambda: df.write.format("delta").mode("append").save(plain_path),
        lambda: df.select("*", number).write.format("delta").partitionBy("p").mode("append").save(parted_path),
    )
