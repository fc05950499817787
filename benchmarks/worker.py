"""The measured processes of `memory`: ``python -m benchmarks.worker flow|planner|append STORE QUEUE`` prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from pyspark.sql.types import StructType

from benchmarks.peak import peak_kb
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.payload.schema import message_schema
from spark_partq.core.queue.manifest import NewFile
from spark_partq.spark.reading import FlowPartition, read
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.slices import Piece, slices
from spark_partq.storage.store import Store


def peak_mb() -> float:
    return peak_kb() / 1000


def flow(store: Store, name: str) -> dict[str, float]:
    """Read a whole queue as one flow does, dropping each batch."""
    queue = open_queue(store, name)
    queue.refresh()
    pieces = [
        Piece(s, 1) for t in queue.partitions for s in slices(queue.state, t.partition, t.index, 0, t.next_offset)
    ]
    schema = StructType.fromJson(message_schema(queue.state.schema))
    start, count, size = time.perf_counter(), 0, 0
    for batch in read(FlowPartition(store, tuple(pieces), "flow"), schema):
        count += batch.num_rows
        size += sum(column.nbytes for column in batch.columns[: len(queue.state.schema["fields"])])
    return {"rows": count, "bytes": size, "seconds": time.perf_counter() - start, "peak_mb": peak_mb()}


def planner(store: Store, name: str) -> dict[str, float]:
    """Plan three micro-batches: all there is, all partitions changed, nothing changed in the logs but a backlog left."""
    planner = Planner(ConsumerSettings(store, (name,)), "bench", "bench")
    done = planner.next(StreamOffset("bench", "bench", {}, {}), Limits(max_rows=1_000_000))
    assert done is not None
    # another process writes, as in life; its tables shall not count here
    subprocess.run(
        [sys.executable, "-m", "benchmarks.worker", "append", store.uri, name], check=True, stdout=subprocess.DEVNULL
    )
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        end = planner.next(done, Limits(max_rows=1_000_000))
        assert end is not None
        planner.tasks(done, end)
        taken.append(time.perf_counter() - start)
        done = end
    peak = peak_mb()
    return {"changed_s": taken[0], "unchanged_s": taken[1], "peak_mb": peak}


def append(store: Store, name: str) -> dict[str, float]:
    """Commit a file to every partition; only its log entry, as nobody will read it."""
    file = NewFile(0, "part-new.parquet", 10, 1000, '{"numRecords": 10}', 0)
    done = store.map(lambda table: table.append([file], None), open_queue(store, name).partitions)
    return {"partitions": len(done)}


if __name__ == "__main__":
    subject, path, queue_name = sys.argv[1:]
    print(json.dumps({"flow": flow, "planner": planner, "append": append}[subject](Store.at(path), queue_name)))
