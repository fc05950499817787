"""Memory of the Python processes: a flow that reads a long partition, and the planner of a wide queue.

Each is measured in a process of its own, as Spark gives each one; its peak is what the operating system says (VmHWM).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import spark_partq as partq
from benchmarks.data import ROW_BYTES, rows
from benchmarks.report import Figure, at_most
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store

STATS = '{"numRecords": 1000, "minValues": {"id": 0}, "maxValues": {"id": 1000000}}'  # of any file
PARTITIONS, FILES = 1024, 100


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    size = 2 << 30
    store = str(folder / "memory-store")
    df = rows(spark, folder, count)
    partq.create_queue(store, "long", df.schema, key="k", partitions=1)
    for _ in range(-(-size // (count * ROW_BYTES))):
        partq.append(df, store, "long")
    said = _measure("flow", store, "long")
    detail = f"{said['rows']:,} rows, {said['bytes'] / 2**30:.2f} GiB in {said['seconds']:.1f} s"
    yield at_most("memory, a flow reads a 2 GB partition, MB", "-", said["peak_mb"], 300, detail)

    _wide_queue(Store.at(store))
    said = _measure("planner", store, "wide")
    detail = f"{PARTITIONS} partitions of {FILES} files"
    yield at_most("memory, planner, MB", "-", said["peak_mb"], 400, detail)
    yield at_most("planner, s a micro-batch, every partition has new messages", "-", said["changed_s"], 1.0, detail)
    yield at_most("planner, s a micro-batch, nothing new in the logs", "-", said["unchanged_s"], 1.0, detail)


def _wide_queue(store: Store) -> None:
    """The logs of a queue of many files; the planner never opens the files, so there are none."""
    create_queue(store, "wide", "id bigint, k string, body string", "k", PARTITIONS)
    schema = payload_schema("id bigint, k string, body string")

    def fill(partition: int) -> None:
        files = [NewFile(partition, f"part-{i:032x}.parquet", 1000, 50_000, STATS, i) for i in range(FILES)]
        PartitionTable(store, "wide", partition, schema).append(files, None)

    store.map(fill, range(PARTITIONS))


def _measure(subject: str, store: str, queue: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker", subject, store, queue], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    said: dict[str, float] = json.loads(done.stdout)
    return said
