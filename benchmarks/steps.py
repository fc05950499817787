"""What a sink spends its time on when it writes a small micro-batch: ``python -m benchmarks.steps``."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer
from pyspark.sql.classic.dataframe import DataFrame
from rich.console import Console
from rich.table import Table

import spark_partq as partq
from benchmarks.data import rows, session
from benchmarks.report import median
from spark_partq.spark import sink, write_job
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.produce import Producer

# Where one of these functions calls another one, only the other one's step is counted for that time.
STEPS: dict[str, tuple[Any, str]] = {
    "look for news in the control table": (Producer, "refresh"),
    "ask the JVM for the columns and the partition of each row": (write_job, "selected"),
    "Spark's job, which brings the rows to the driver as Arrow": (DataFrame, "toArrow"),
    "write a file for each partition": (sink, "write_files"),
    "put the manifest": (Batch, "put"),
    "commit the files of each partition": (Producer, "_commit"),
}
REST = "the rest"
WARM_UP = 20  # micro-batches that are not counted


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


def main(
    count: Annotated[int, typer.Option("--rows", help="rows of a micro-batch")] = 1_000,
    partitions: Annotated[int, typer.Option(help="of the queue")] = 16,
    runs: Annotated[int, typer.Option(help="counted micro-batches", min=5)] = 41,
) -> None:
    """Medians of the micro-batches, and the share of each step."""
    spark = session({})
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        df = rows(spark, Path(place), count).cache()
        df.count()
        partq.create_queue(f"{place}/store", "q", df.schema, key="k", partitions=partitions)
        write = partq.queue_sink(f"{place}/store", "q", sink_id="bench")
        found, least = list[Mapping[str, float]](), list[float]()
        for number in range(WARM_UP + runs):
            found.append(_write(partial(write, df, number)))
            began = time.perf_counter()
            df.select("id").toArrow()
            least.append(time.perf_counter() - began)
        spark.stop()
    table = Table("step", "ms", "share")
    total = median([sum(took.values()) for took in found[WARM_UP:]])
    for name in (*STEPS, REST):
        took_s = median([took[name] for took in found[WARM_UP:]])
        table.add_row(name, f"{1000 * took_s:.1f}", f"{took_s / total:.0%}")
    table.add_row("all of it", f"{1000 * total:.1f}", "")
    table.add_row("for comparison: a job that brings one column", f"{1000 * median(least[WARM_UP:]):.1f}", "")
    Console().print(table)


def _write(write: Callable[[], None]) -> Mapping[str, float]:
    clock = Clock()
    with ExitStack() as patches:
        for name, (owner, function) in STEPS.items():
            patches.enter_context(mock.patch.object(owner, function, clock.timed(name, getattr(owner, function))))
        with clock.step(REST):
            write()
    return clock.took


if __name__ == "__main__":
    typer.run(main)
