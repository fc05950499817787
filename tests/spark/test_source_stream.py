"""Spark drives the streaming source as its tests without a JVM do: triggers, restarts, replays, errors and tasks that fail (Q7).

What the reader does with each option and in each state is shown by test_stream_reader, test_stream_refusals and test_stream_replays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from tests import queries
from tests.helpers import (
    assert_dense,
    consume,
    driver,
    eventually,
    finished,
    flat,
    opened,
    places,
    position,
    put,
    read,
    running,
    stream,
)
from tests.spark.messages import everything, make_queue

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store)


def failed(run: Any) -> str:
    """The text of the error with which the query ended."""
    with pytest.raises(StreamingQueryException) as caught:
        run()
    return str(caught.value)


def test_rows(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, U2: the stream has the columns of the batch read; each row says where it stands, who got it, under which epoch."""
    assert stream(spark, queue).isStreaming
    assert stream(spark, queue).schema == read(spark, queue).schema
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", instanceId="i"))
    assert places(rows) == everything()
    assert_dense(rows)
    for row in rows:
        assert row.v == row._offset
        assert (row._queue, row._redelivered, row._flow, row._epoch) == ("q", False, "i/0", 1)
    batch = {(r._partition, r._offset): r._enqueued_at for r in read(spark, queue).collect()}
    assert {(r._partition, r._offset): r._enqueued_at for r in rows} == batch


def test_available_now(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, Q8: every micro-batch keeps to the limit, has a task for each flow, and is the same for each action. What is written
    meanwhile is left to the next start, which goes on from the checkpoint; in the end all is acknowledged."""
    tasks: list[int] = []
    counts: list[int] = []

    def look(df: DataFrame, batch_id: int) -> None:
        tasks.append(df.rdd.getNumPartitions())
        if batch_id < 3:
            put(queue, 1, [100 + batch_id])
        counts.append(df.count())

    options = {"group": "g", "flows": 4, "maxRowsPerTrigger": 11}
    batches = consume(spark, queue, tmp_path / "cp", each=look, **options)
    assert [len(b) for b in batches] == counts == [11, 11, 8] and set(tasks) == {4}
    assert places(flat(batches)) == everything()
    assert [position(queue, "g", p) for p in range(3)] == [20, 10, 0]
    again = flat(consume(spark, queue, tmp_path / "cp", **options))
    assert places(again) == [(1, 10), (1, 11), (1, 12)] and not any(r._redelivered for r in again)
    assert consume(spark, queue, tmp_path / "cp", **options) == []


@pytest.mark.long
def test_a_query_without_a_group_that_finds_nothing_at_first(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: what comes after its first start belongs to it, though its first micro-batch had no messages and it was started again."""
    options = {"startingOffsets": "latest"}
    assert flat(consume(spark, queue, tmp_path / "cp", **options)) == []
    for value in (100, 101):
        put(queue, 1, [value])
        assert [row.v for row in flat(consume(spark, queue, tmp_path / "cp", **options))] == [value]
    assert len(opened(queue).state.groups) == 1


def test_refused(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Bad input: an error of ours has its class and text, whether the columns are asked for or the query is planned."""
    with pytest.raises(Exception, match=r"\[QUEUE_NOT_FOUND\].*its queues: q"):
        stream(spark, queue, "nowhere")
    with pytest.raises(Exception, match=r"(?i)\[INVALID_ARGUMENT\].*maxRowPerTrigger: there is no such option"):
        stream(spark, queue, maxRowPerTrigger=5)
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g", startingOffsets='{"q": {"0": 21}}'))
    assert "[OFFSET_OUT_OF_RANGE]" in text and "ends at offset 20" in text
    own = spark.readStream.format("partq").schema("v string").option("path", queue).option("queue", "q")
    with pytest.raises(Exception, match=r"\[SCHEMA_MISMATCH\]"):
        own.load().writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/own").start().awaitTermination()
    assert partq.list_groups(queue) == []


@pytest.mark.long
def test_corrupt_file(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Bad input: the error of a task names the damaged file, and nothing of its micro-batch is acknowledged."""
    index = opened(queue).partitions[1].index
    broken = Path(queue) / "queues/q/partitions/partition=1" / index.path(1)
    good = broken.read_bytes()
    broken.write_bytes(b"no parquet")
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert "[CORRUPT_TABLE]" in text and broken.name in text and "offsets 5 to 9 of partition 1" in text
    assert [position(queue, "g", p) for p in range(3)] == [0, 0, 0]
    broken.write_bytes(good)
    assert places(flat(consume(spark, queue, tmp_path / "cp", group="g"))) == everything()


# ---- replays
class Once(Exception):
    pass


def run_batches(spark: SparkSession, store: str, checkpoint: Path, take: Any, **options: Any) -> None:
    query = (
        stream(spark, store, **options)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_replay_of_a_failed_batch(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: the first batch of a nameless query failed. It comes again with the same rows, marked as redelivered, in the same group,
    though there is more by now."""
    seen: list[list[Row]] = []

    def take(df: DataFrame, batch_id: int) -> None:
        seen.append(df.collect())
        if len(seen) == 1:
            raise Once("the first time fails")

    options = {"maxRowsPerTrigger": 12, "flows": 2}
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", take, **options))
    (group,) = partq.list_groups(queue)
    put(queue, 2, [5])
    run_batches(spark, queue, tmp_path / "cp", take, **options)
    first, again, *rest = seen
    assert not any(r._redelivered for r in [*first, *flat(rest)]) and all(r._redelivered for r in again)
    shown = ("v", "_partition", "_offset", "_enqueued_at", "_flow")
    assert [[r[c] for c in shown] for r in again] == [[r[c] for c in shown] for r in first]
    assert places([*again, *flat(rest)]) == [*everything(), (2, 0)]
    assert partq.list_groups(queue) == [group]


def test_from_queue_to_queue(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q4, Q5, Q7: a stream from one queue into another, failing in between, loses and repeats nothing and keeps the order."""
    partq.create_queue(queue, "out", "v bigint, p int", key="p", partitions=2)
    left = [1]

    def copy(df: DataFrame, batch_id: int) -> None:
        sink(df.selectExpr("v", "_partition p"), batch_id)
        if batch_id == 1 and left:
            left.pop()
            raise Once("after the write")

    sink = partq.queue_sink(queue, "out")
    options = {"group": "g", "instanceId": "i", "maxRowsPerTrigger": 9}
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", copy, **options))
    run_batches(spark, queue, tmp_path / "cp", copy, **options)
    rows = sorted(read(spark, queue, "out").collect(), key=lambda r: (r._partition, r._offset))
    assert_dense(rows)
    for partition, count in ((0, 20), (1, 10)):
        assert [r.v for r in rows if r.p == partition] == list(range(count))


# ---- somebody else's session
PLAIN = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

store, checkpoint, flag = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
df = spark.read.format("partq").option("path", store).option("queue", "q").load()
print(df.where("_partition = 0 and _offset >= 18").count(), df.count())

def once(batches):
    from pyspark import TaskContext
    for n, batch in enumerate(batches):
        yield batch
    if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
        Path(flag).touch()
        raise RuntimeError("the first attempt fails")

def take(df, batch_id):
    rows = df.mapInArrow(once, df.schema).select("v", "_partition", "_offset", "_redelivered").collect()
    print(batch_id, sorted((r._partition, r._offset, r.v, r._redelivered) for r in rows))

query = (spark.readStream.format("partq").option("path", store).option("queue", "q").option("group", "g").option("flows", 2)
    .load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""


@pytest.mark.long
def test_plain_session_and_a_task_that_is_tried_again(queue: str, tmp_path: Path) -> None:
    """U2, Q6, Q7: in a session with nothing registered and without Delta, format("partq") is simply there, in batches and as a stream.
    A task that failed reads the same rows in its next attempt; the batch is as if nothing had been."""
    flag = tmp_path / "failed"
    out = finished(driver(PLAIN, queue, str(tmp_path / "cp"), str(flag)))
    assert flag.exists()
    assert out.splitlines() == ["2 30", f"0 {[(p, o, o, False) for p, o in everything()]}"]


# ---- running queries
def test_running_query_sees_what_comes(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, Q8: a query that runs delivers new messages, acknowledges its last batch though nothing follows it, and shows its progress:
    rows, offsets as valid JSON, also those of the partitions' ends, and the time of the planner call. What two groups have acknowledged is removed, and with a retention time what nobody has read."""
    seen: list[Row] = []
    query = running(spark, queue, tmp_path / "cp", seen, group="g")
    eventually(lambda: len(seen) == 30, "the first messages")
    eventually(lambda: position(queue, "g", 0) == 20 and position(queue, "g", 1) == 10, "the acknowledgement")
    progress = eventually(lambda: next((p for p in query.recentProgress if p.numInputRows), None), "progress")
    (source,) = progress.sources
    assert source.numInputRows == 30
    end = json.loads(source.endOffset)
    assert end["queues"]["q"]["partitions"] == {"0": [1, 0, 20], "1": [1, 0, 10], "2": [1, 0, 0]}
    latest = json.loads(source.latestOffset)["queues"]["q"]["partitions"]
    assert {number: latest_end for number, (_, _, latest_end) in latest.items()} == {"0": 20, "1": 10, "2": 0}
    assert source.metrics == {} and progress.durationMs["latestOffset"] > 0
    assert {"queryPlanning", "addBatch"} <= progress.durationMs.keys()
    for n in range(3):
        put(queue, n, [50 + n])
        eventually(lambda n=n: len(seen) == 31 + n, "a new message")
    eventually(lambda: position(queue, "g", 2) == 1, "its acknowledgement")
    query.stop()
    assert places(seen) == sorted([*everything(), (0, 20), (1, 10), (2, 0)])

    def left() -> dict[int, int]:
        """Messages of each partition that Spark still finds."""
        return {r._partition: r["count"] for r in read(spark, queue).groupBy("_partition").count().collect()}

    queries.consume(queue, tmp_path / "h", group="h", maxRowsPerTrigger=9)
    assert partq.describe_queue(queue, "q").depth == 0
    put(queue, 2, range(100, 104))
    assert sum(report.removed_messages for report in partq.maintain(queue)) == 33
    assert left() == {2: 4} and partq.describe_queue(queue, "q").depth == 4
    partq.alter_queue(queue, "q", retention_ms=0)
    assert sum(report.removed_messages for report in partq.maintain(queue)) == 4
    assert left() == {} and partq.describe_queue(queue, "q").depth == 0


def test_processing_time(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: Trigger.ProcessingTime with a limit."""
    sizes: list[int] = []
    query = (
        stream(spark, queue, group="g", maxRowsPerTrigger=11)
        .writeStream.foreachBatch(lambda df, _: sizes.append(df.count()))
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    eventually(lambda: sum(sizes) == 30, "all messages")
    query.stop()
    assert sizes == [11, 11, 8]
