"""What a pass of a replica costs: the first one, one over nothing new, one over k new commits. Without Spark.

python -m benchmarks.replica
"""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import spark_partq as partq
from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store

PARTITIONS, ROWS = 16, 10_000


def put(table: PartitionTable, store: str) -> None:
    rows = pa.table({"v": pa.array(range(ROWS), pa.int64()), "_row": pa.array(range(ROWS), pa.int64())})
    path = f"part-{uuid.uuid4().hex}.parquet"
    pq.write_table(rows, f"{store}/{table.folder}/{path}")
    size = os.path.getsize(f"{store}/{table.folder}/{path}")
    table.append([NewFile(table.partition, path, ROWS, size, f'{{"numRecords":{ROWS}}}', 0)], None)


def timed(what: str, function: Callable[[], object], times: int = 1) -> None:
    took = []
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        took.append(time.perf_counter() - start)
    print(f"{what}: {sorted(took)[len(took) // 2] * 1000:.1f} ms {result}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, there = f"{folder}/store", str(Path(folder) / "there")
        partq.create_queue(store, "q", "v bigint", partitions=PARTITIONS)
        state = queue_state(Store.at(store), "q")
        tables = [PartitionTable(Store.at(store), "q", n, state.schema) for n in range(PARTITIONS)]
        for _ in range(20):
            for table in tables:
                put(table, store)
        replicator = Replicator(Store.at(store), "q", there)
        replicator.register()
        tracemalloc.start()
        timed(f"first pass, {PARTITIONS} partitions of 20 files", lambda: replicator.sync().commits)
        print(f"peak of Python's memory: {tracemalloc.get_traced_memory()[1] / 1e6:.1f} MB")
        tracemalloc.stop()
        timed("nothing new", lambda: replicator.sync().commits, 21)
        for k in (1, 10, 100):
            for n in range(k):
                put(tables[n % PARTITIONS], store)
            timed(f"{k} new commits", lambda: replicator.sync().commits)
        timed("another process, nothing new", lambda: Replicator(Store.at(store), "q", there).sync().commits, 5)


if __name__ == "__main__":
    main()
