"""What several tests need: messages without Spark, whole streams as rows, other driver processes."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_partq as partq
from spark_partq.core.group.state import GroupState
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests.clocks import wall_clock

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


# ---- without Spark
def opened(store: Store | str, queue: str = "q") -> Queue:
    """The queue with all of its partitions refreshed."""
    found = open_queue(Store.at(store), queue)
    found.refresh()
    return found


def new_file(store: str, queue: str, partition: int, columns: dict[str, Sequence[Any]]) -> NewFile:
    """A file of messages that nobody has committed yet."""
    table = pa.table(columns)
    table = table.append_column("_row", pa.array(range(table.num_rows), pa.int64()))
    path = f"part-{uuid.uuid4().hex}.parquet"
    target = f"{store}/queues/{queue}/partitions/partition={partition}/{path}"
    pq.write_table(table, target)
    return NewFile(partition, path, table.num_rows, os.path.getsize(target), f'{{"numRecords":{table.num_rows}}}', 0)


def put(
    store: str,
    partition: int,
    values: Iterable[Any],
    *,
    queue: str = "q",
    column: str = "v",
    type_: pa.DataType | None = None,
    record: BatchRecord | None = None,
    generation: int = 0,
    at: dt.datetime | None = None,
    table: PartitionTable | None = None,
) -> int | None:
    """Commit one file of messages with a single payload column, and return the first offset."""
    file = new_file(store, queue, partition, {column: pa.array(values, type_ or pa.int64())})
    table = table or opened(store, queue).table(partition)
    with wall_clock(at):
        return table.append([file], record, generation)


def two_partitions(store: str, messages: int) -> str:
    """Make queue `q` with so many messages in each of two partitions; returns the store."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    for number in range(2):
        put(store, number, range(messages))
    return store


def position(store: str, group: str, partition: int, queue: str = "q") -> int | None:
    """The offset of the next message that the group wants."""
    found = Group(Store.at(store), group)
    found.refresh()
    return found.position((opened(store, queue).state.queue_id, partition))


def in_parallel(functions: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """Run all at once, each in a thread; an exception is a result."""
    results: list[Any] = [None] * len(functions)
    barrier = threading.Barrier(len(functions))

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = functions[i]()
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def eventually(condition: Callable[[], T], what: str, timeout_s: float = 120.0, every_s: float = 0.05) -> T:
    """The first true value of the condition."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not come about within {timeout_s} s"
        time.sleep(every_s)


# ---- with Spark
def read(spark: SparkSession, store: str, queue: str = "q", **options: Any) -> DataFrame:
    """The queue as a batch DataFrame."""
    return spark.read.format("partq").option("path", store).option("queue", queue).options(**options).load()


def stream(spark: SparkSession, store: str, queue: str = "q", **options: Any) -> DataFrame:
    """The queue as a stream."""
    return spark.readStream.format("partq").option("path", store).option("queue", queue).options(**options).load()


def consume(
    spark: SparkSession,
    store: str,
    checkpoint: str | Path,
    *,
    queue: str = "q",
    each: Callable[[DataFrame, int], None] | None = None,
    **options: Any,
) -> list[list[Row]]:
    """All that is there now, as a list of micro-batches; `each` is called with every batch after its rows were taken."""
    batches: list[list[Row]] = []

    def take(df: DataFrame, batch_id: int) -> None:
        batches.append(df.collect())
        if each:
            each(df, batch_id)

    run_through(stream(spark, store, queue, **options), checkpoint, take)
    return [rows for rows in batches if rows]


def put_back(store: str, backup: Path, group: str) -> None:
    """The store is what the backup is, once the group's last query has left it."""
    eventually(lambda: not partq.describe_group(store, group).members, f"the end of the queries of {group}")
    shutil.rmtree(store)
    backup.rename(store)


def run_through(df: DataFrame, checkpoint: str | Path, sink: Callable[[DataFrame, int], None]) -> None:
    """Give the sink all that is there now."""
    query = (
        df.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def running(spark: SparkSession, store: str, checkpoint: Path, seen: list[Row], **options: Any) -> StreamingQuery:
    """A stream that goes on until it is stopped; `seen` gets its rows."""
    return (
        stream(spark, store, **options)
        .writeStream.foreachBatch(lambda df, _: seen.extend(df.collect()))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def flat(batches: Iterable[Iterable[T]]) -> list[T]:
    return [row for rows in batches for row in rows]


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """(partition, offset) of each row, sorted."""
    return sorted((r["_partition"], r["_offset"]) for r in rows)


def assert_dense(rows: Iterable[Row]) -> None:
    """Every offset from 0 to the end of each partition occurs once (Q4)."""
    counts: dict[int, int] = {}
    for partition, offset in places(rows):
        assert offset == counts.get(partition, 0), (
            f"partition {partition}: {offset} instead of {counts.get(partition, 0)}"
        )
        counts[partition] = offset + 1


# ---- other processes
def driver(program: str, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a Python program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **(env or {})},
    )


def finished(process: subprocess.Popen[str], code: int = 0, timeout_s: float = 300.0) -> str:
    """What the program printed; it must end with this exit code."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout_s} s:\n{out[-2000:]}\n{err[-4000:]}") from None
    assert process.returncode == code, f"exit code {process.returncode}:\n{out[-2000:]}\n{err[-4000:]}"
    return out


def balanced_queue(store: str, partitions: int) -> str:
    """Make queue `q` with 5 messages in each partition, whose groups rebalance at once; returns the store."""
    partq.create_queue(store, "q", "v bigint", partitions=partitions, rebalance_delay_ms=0, max_handoff_time_ms=20_000)
    for partition in range(partitions):
        put(store, partition, range(5))
    return store


def group_state(store: str, group: str = "g") -> GroupState:
    found = Group(Store.at(store), group)
    found.refresh()
    return found.state
