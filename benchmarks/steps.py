"""What a batch spends its time on: ``python -m benchmarks.steps write``, ``append`` or ``read``."""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import pyarrow as pa
import typer
from pyspark.sql import DataFrame
from pyspark.sql.classic import dataframe
from rich.console import Console
from rich.table import Table

import spark_partq as partq
from benchmarks.data import rows, session
from benchmarks.floor import FloorSource
from benchmarks.report import median
from benchmarks.stream import discard, progress
from spark_partq.spark import sink, write_job
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.partition_table import PartitionTable

Write = Callable[[DataFrame, int], object]

# Where one of these functions calls another one, only the other one's step is counted for that time.
STEPS: dict[str, tuple[Any, str]] = {
    "look for news in the control table": (Producer, "refresh"),
    "ask the JVM for the columns and the partition of each row": (write_job, "selected"),
    "Spark's job: it brings the rows of a small batch to the driver, or its tasks write files": (
        dataframe.DataFrame,
        "toArrow",
    ),
    "around the job: of a small batch, the driver writes the files": (sink, "write_files"),
    "put the manifest": (Batch, "put"),
    "read the partitions' logs": (PartitionTable, "refresh"),
    "commit the files of each partition": (Producer, "_commit"),
}
REST = "the rest"
WARM_UP = 20  # batches that are not counted
# What Spark calls the parts of a micro-batch, in their order.
PARTS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
READ_AT_ONCE = 10  # micro-batches of one query; the first is not counted

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
Rows = Annotated[int, typer.Option("--rows", help="rows of a batch")]
Partitions = Annotated[int, typer.Option(help="of the queue")]
Runs = Annotated[int, typer.Option(help="batches to count, at least", min=5)]


class Clock:
    """How long each step of a write takes, in seconds."""

    def __init__(self) -> None:
        self.took: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._count()
        self._running.append(name)
        try:
            yield
        finally:
            self._count()
            self._running.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.took[self._running[-1]] += now - self._since
        self._since = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self.step(name):
                return function(*arguments, **named)

        return call


@app.command()
def write(count: Rows = 1_000, partitions: Partitions = 16, runs: Runs = 41) -> None:
    """A sink's micro-batches: medians of the steps, and the share of each."""
    _show_writes(count, partitions, runs, lambda store: partq.queue_sink(store, "q", sink_id="bench"))


@app.command()
def append(count: Rows = 1_000, partitions: Partitions = 16, runs: Runs = 41) -> None:
    """Batches of ``partq.append``: medians of the steps, and the share of each."""

    def writer(store: str) -> Write:
        return lambda df, number: partq.append(df, store, "q", sink_id="bench", batch_id=number)

    _show_writes(count, partitions, runs, writer)


@app.command()
def read(count: Rows = 100_000, partitions: Partitions = 16, runs: Runs = 41) -> None:
    """A query's micro-batches, with two flows; and the same of a Python source that makes rows of these columns from nothing."""
    spark = session({})
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        df, store = rows(spark, Path(place), count), f"{place}/store"
        partq.create_queue(store, "q", df.schema, key="k", partitions=partitions)
        sink_of_queue = partq.queue_sink(store, "q", sink_id="bench")
        for number in range(READ_AT_ONCE):
            sink_of_queue(df, number)
        spark.dataSource.register(FloorSource)
        ours = spark.readStream.format("partq").options(path=store, queue="q", flows=2, maxRowsPerTrigger=count)
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in ours.load().schema)
        floor = spark.readStream.format("floor").options(rows=READ_AT_ONCE * count, batch=count, flows=2, ddl=columns)
        took = defaultdict[str, list[Mapping[str, float]]](list)
        for turn in range(1 + math.ceil(runs / (READ_AT_ONCE - 1))):
            for name, reader in (("queue", ours), ("from nothing", floor)):
                found = [p["durationMs"] for p in progress(reader, discard, Path(place))]
                if turn:
                    took[name] += found[1:]
        spark.stop()
    table = Table("part of a micro-batch", *(f"{name}, ms" for name in took))
    for part in (*PARTS, "triggerExecution"):
        table.add_row(part, *(f"{median([one.get(part, 0) for one in found]):.0f}" for found in took.values()))
    Console().print(table)


def _show_writes(count: int, partitions: int, runs: int, writer: Callable[[str], Write]) -> None:
    spark = session({})
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        df = rows(spark, Path(place), count).cache()
        df.count()
        partq.create_queue(f"{place}/store", "q", df.schema, key="k", partitions=partitions)
        write_batch = writer(f"{place}/store")
        jobs: dict[str, Callable[[], DataFrame]] = {
            "for comparison: a job that brings one column": lambda: df.select("id"),
            "for comparison: a job that gives all rows to Python, which drops them": lambda: df.mapInArrow(
                _dropped, "id long"
            ),
        }
        found, compared = list[Mapping[str, float]](), defaultdict[str, list[float]](list)
        for number in range(WARM_UP + runs):
            found.append(_write(partial(write_batch, df, number)))
            for name, job in jobs.items():
                began = time.perf_counter()
                job().toArrow()
                compared[name].append(time.perf_counter() - began)
        spark.stop()
    table = Table("step", "ms", "share")
    total = median([sum(took.values()) for took in found[WARM_UP:]])
    for name in (*STEPS, REST):
        took_s = median([took[name] for took in found[WARM_UP:]])
        table.add_row(name, f"{1000 * took_s:.1f}", f"{took_s / total:.0%}")
    table.add_row("all of it", f"{1000 * total:.1f}", "")
    for name, seconds in compared.items():
        table.add_row(name, f"{1000 * median(seconds[WARM_UP:]):.1f}", "")
    Console(width=120).print(table)


def _dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column("id").slice(0, 0)], ["id"])


def _write(write: Callable[[], object]) -> Mapping[str, float]:
    clock = Clock()
    with ExitStack() as patches:
        for name, (owner, function) in STEPS.items():
            patches.enter_context(mock.patch.object(owner, function, clock.timed(name, getattr(owner, function))))
        with clock.step(REST):
            write()
    return clock.took


if __name__ == "__main__":
    app()
