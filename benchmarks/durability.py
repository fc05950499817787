"""What it costs that every write is forced to the disk, against a queue whose writes are not, in turn: ``python -m benchmarks.durability``."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

import spark_partq as partq
from benchmarks.data import session

PARTITIONS, SIZES, WARM_UP = 16, (1_000, 100_000), 5


def main(
    folder: Annotated[Path | None, typer.Option(help="a folder on the disk to measure; else a temporary one")] = None,
    batches: Annotated[int, typer.Option(help="counted batches of each", min=3)] = 25,
) -> None:
    """Print the median milliseconds of a micro-batch of the sink, and how many times the other's time the forced one takes."""
    spark = session()
    with tempfile.TemporaryDirectory(prefix="partq-bench-", dir=folder) as place:
        print(f"one fsync of 4 kB: {1000 * fsync_s(place):.2f} ms")
        for rows in SIZES:
            df = spark.range(rows).selectExpr("id", "concat('k', id % 1000) k", "repeat('x', 90) body").cache()
            df.count()
            sinks = {}
            for durability in ("process", "disk"):
                store = f"{place}/{durability}-{rows}"
                partq.create_queue(store, "q", df.schema, key="k", partitions=PARTITIONS, durability=durability)
                sinks[durability] = partq.queue_sink(store, "q", sink_id="bench")
            seconds: dict[str, list[float]] = {durability: [] for durability in sinks}
            for batch in range(WARM_UP + batches):
                for durability, sink in sinks.items():
                    began = time.perf_counter()
                    sink(df, batch)
                    seconds[durability].append(time.perf_counter() - began)
            process, disk = (statistics.median(seconds[durability][WARM_UP:]) for durability in ("process", "disk"))
            told = f"{1000 * process:7.1f} ms process, {1000 * disk:7.1f} ms disk, {disk / process:.2f} times"
            print(f"{rows:>7,} rows into {PARTITIONS} partitions: {told}")
    spark.stop()


def fsync_s(folder: str) -> float:
    taken = []
    for i in range(20):
        with open(f"{folder}/{i}", "wb") as file:
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


if __name__ == "__main__":
    typer.run(main)
