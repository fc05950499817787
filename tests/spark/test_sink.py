"""The sink: exactly once, in order, by several producers at the same time (Q2 to Q5)."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

import spark_partq as partq
from spark_partq.spark import sink
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SYSTEM
from tests.helpers import assert_dense, eventually, in_parallel, opened, read
from tests.processes import Pool
from tests.spark.messages import ORDERS, numbers, orders


class Crash(Exception):
    """Stands for a driver that dies."""


def crash_after(monkeypatch: pytest.MonkeyPatch, commits: int, survivors: Iterable[int] = ()) -> list[int]:
    """Let only so many partition commits through; returns the list of those that went through."""
    through: list[int] = []
    lock = threading.Lock()
    append = PartitionTable.append

    def limited(self: PartitionTable, *args: Any) -> int | None:
        with lock:
            if len(through) >= commits:
                raise Crash
            through.append(self.partition)
            return append(self, *args)

    monkeypatch.setattr(PartitionTable, "append", limited)
    return through


def assert_ordered(rows: Iterable[Row], by: Callable[[Row], Any] = lambda r: r.k) -> None:
    """The messages of each key stand in one partition, with `n` rising (Q2, Q4)."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r._partition, r._offset)):
        if row.k is not None:
            found[by(row)].append(row)
    for key, messages in found.items():
        assert len({m._partition for m in messages}) == 1, key
        assert [m.n for m in messages] == sorted(m.n for m in messages), key


@pytest.mark.parametrize("commits", range(6))
def test_replay_after_a_crash_between_commits(
    spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Q5: the first try dies after k of 5 partition commits; the replay, its rows in another layout, adds what is missing."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=5)
    assert partq.append(orders(spark, 0, 50), store, "q", sink_id="s", batch_id=0) == 50
    with monkeypatch.context() as patch:
        through = crash_after(patch, commits)
        batch = orders(spark, 50, 60)
        if commits < 5:
            with pytest.raises(Crash):
                partq.append(batch, store, "q", sink_id="s", batch_id=1)
        else:
            assert partq.append(batch, store, "q", sink_id="s", batch_id=1) == 60
        assert len(through) == commits
    before = read(spark, store).collect()
    assert {r._partition for r in before if r.n >= 50} == set(through)
    replay = orders(spark, 50, 60, files=3)
    added = partq.append(replay, store, "q", sink_id="s", batch_id=1)
    assert added == 110 - len(before)
    assert partq.append(replay, store, "q", sink_id="s", batch_id=1) == 0
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(110))
    assert_dense(rows)
    assert_ordered(rows)


def test_crash_in_the_middle_of_several_batches(
    spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q5: a streaming query whose micro-batch failed half-way goes on from its checkpoint, exactly once and in order."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=4)
    source, checkpoint = Path(store).parent / "in", Path(store).parent / "cp"
    for i in range(4):
        orders(spark, i * 30, 30, files=1).write.mode("append").json(str(source))

    def run() -> None:
        query = (
            spark.readStream.schema(ORDERS)
            .option("maxFilesPerTrigger", 1)
            .json(str(source))
            .writeStream.foreachBatch(partq.queue_sink(store, "q"))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with monkeypatch.context() as patch:
        crash_after(patch, 6)
        with pytest.raises(StreamingQueryException):
            run()
    assert 30 <= read(spark, store).count() < 90
    run()
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(120))
    assert_dense(rows)
    assert_ordered(rows)


SPARK = pytest.mark.parametrize("pool", ["spark"], indirect=True)


@SPARK
def test_two_producing_drivers(spark: SparkSession, store: str, pool: Pool) -> None:
    """Q5, Q4: two driver processes write one queue at once; no loss, nothing twice, dense, each one's order kept."""
    partq.create_queue(store, "q", ORDERS + ", producer string", key="k", partitions=3)
    names = zip("ab", pool.take(2), strict=True)
    for answer in [a.tell("append", store=store, sink_id=name, batches=4, rows=50) for name, a in names]:
        answer()
    rows = read(spark, store).collect()
    assert sorted((r.producer, r.n) for r in rows) == [(p, n) for p in "ab" for n in range(200)]
    assert_dense(rows)
    assert_ordered(rows, lambda r: (r.producer, r.k))
    commits = [c for p in opened(store).partitions for c in p.index.enqueued_us.tolist()]
    assert len(commits) == 24


@SPARK
def test_driver_killed_between_commits(spark: SparkSession, store: str, pool: Pool) -> None:
    """Q5, Q4: kill -9 of the driver after 6 of 8 commits; another driver with its checkpoint finishes, exactly once."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=4)
    source, checkpoint = str(Path(store).parent / "in"), str(Path(store).parent / "cp")
    for i in range(2):
        orders(spark, i * 40, 40, files=1).write.mode("append").json(source)
    (application,) = pool.take(1)
    application.tell("copy", store=store, source=source, checkpoint=checkpoint, commits=6)
    eventually(lambda: application.ended, "the end of the driver")
    application.kill()  # what is left of it
    assert 40 < read(spark, store).count() < 80
    query = (
        spark.readStream.schema(ORDERS)
        .option("maxFilesPerTrigger", 1)
        .json(source)
        .writeStream.foreachBatch(partq.queue_sink(store, "q"))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(80))
    assert_dense(rows)
    assert_ordered(rows)


def test_four_producing_threads(spark: SparkSession, store: str) -> None:
    """Q5, Q4: four sinks of one session at once."""
    partq.create_queue(store, "q", ORDERS + ", producer string", key="k", partitions=3)

    def produce(name: str) -> None:
        for batch in range(3):
            df = orders(spark, batch * 40, 40, keys=9, files=1).selectExpr("*", f"'{name}' producer")
            partq.append(df, store, "q", sink_id=name, batch_id=batch)

    assert in_parallel([lambda name=name: produce(name) for name in "abcd"]) == [None] * 4
    rows = read(spark, store).collect()
    assert sorted((r.producer, r.n) for r in rows) == [(p, n) for p in "abcd" for n in range(120)]
    assert_dense(rows)
    assert_ordered(rows, lambda r: (r.producer, r.k))


def test_two_processes_of_one_sink(spark: SparkSession, store: str) -> None:
    """Q5: the same batch of the same sink written twice at the same time is in once."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=4)
    added = in_parallel(
        [lambda: partq.append(orders(spark, 0, 80), store, "q", sink_id="s", batch_id=0) for _ in range(3)]
    )
    assert sum(added) == 80
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(80))
    assert_dense(rows)


def test_golden_placement(spark: SparkSession, store: str) -> None:
    """Q2: a composite key of several types goes where `partition_of` says, in every batch."""
    partq.create_queue(store, "q", "a string, b decimal(20,2), c date, n int", key=["c", "a", "b"], partitions=7)
    df = spark.sql(
        "select if(id % 5 = 0, null, concat('a', id)) a, cast(id / 4 as decimal(20,2)) b, "
        "date_add(date'1969-12-25', cast(id as int)) c, int(id) n from range(60)"
    )
    for batch in range(2):
        partq.append(df, store, "q", sink_id="s", batch_id=batch)
    for row in read(spark, store).collect():
        assert row._partition == partq.partition_of([row.c, row.a, row.b], ["date", "string", "decimal(20,2)"], 7)


@pytest.mark.usefixtures("written_by")
def test_null_keys_are_spread(spark: SparkSession, store: str) -> None:
    """Q3: messages without a key are spread, also if they are all alike, over the batches."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=4)
    partq.append(spark.range(10_000).selectExpr("cast(null as string) k", "id n"), store, "q")
    assert_even([r["count"] for r in read(spark, store).groupBy("_partition").count().collect()])
    partq.create_queue(store, "same", ORDERS, key="k", partitions=4)
    for batch in range(12):
        same = spark.range(1).selectExpr("cast(null as string) k", "1L n")
        partq.append(same, store, "same", sink_id="s", batch_id=batch)
    counts = Counter(r._partition for r in read(spark, store, "same").collect())
    assert len(counts) == 4 and max(counts.values()) <= 6


@pytest.mark.usefixtures("written_by")
def test_queue_without_a_key(spark: SparkSession, store: str) -> None:
    """Q3: a queue that has no key spreads all of its messages."""
    partq.create_queue(store, "q", ORDERS, partitions=4)
    partq.append(orders(spark, 0, 10_000), store, "q")
    assert_even([r["count"] for r in read(spark, store).groupBy("_partition").count().collect()])


def assert_even(counts: list[int]) -> None:
    """10,000 messages over 4 partitions, as chance would have it, give or take six standard deviations."""
    assert sum(counts) == 10_000 and len(counts) == 4
    assert all(abs(count - 2_500) < 260 for count in counts)


@pytest.mark.usefixtures("written_by")
def test_order_by(spark: SparkSession, store: str) -> None:
    """Q4: inside a batch the named columns give the order, equal ones keep the order in which they were read."""
    partq.create_queue(store, "q", "k string, at timestamp, n bigint", key="k", partitions=3)
    df = spark.range(0, 300, 1, 4).selectExpr(
        "concat('k', id % 5) k", "timestamp_seconds(1000 - id div 50) at", "(id * 7919) % 300 n"
    )
    partq.append(df, store, "q", order_by=["at", "n"])
    for rows in by_key(read(spark, store).collect()).values():
        assert [(r.at, r.n) for r in rows] == sorted((r.at, r.n) for r in rows)
    partq.create_queue(store, "ties", "k string, at timestamp, n bigint", key="k", partitions=3)
    partq.append(df.selectExpr("k", "at", "monotonically_increasing_id() n"), store, "ties", order_by="at")
    for rows in by_key(read(spark, store, "ties").collect()).values():
        assert [(r.at, r.n) for r in rows] == sorted((r.at, r.n) for r in rows)
    with pytest.raises(partq.InvalidArgumentError, match="order_by column 'x'"):
        partq.append(df, store, "q", order_by="x")


def by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r._partition, r._offset)):
        found[row.k].append(row)
    return found


@pytest.mark.usefixtures("written_by")
@pytest.mark.parametrize(
    ("partitions", "files"),
    [
        (3, 5),
        (300, 5),
        *(pytest.param(*given, marks=pytest.mark.long) for given in ((1, 5), (3, 1), (3, 2), (3, 13))),
    ],
)
def test_order_as_read(spark: SparkSession, store: str, partitions: int, files: int) -> None:
    """Q4: without order_by the order in which Spark reads the rows is kept, whatever the number of input partitions."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=partitions)
    for batch in range(2):
        partq.append(orders(spark, batch * 260, 260, keys=6, files=files), store, "q")
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(520))
    assert_dense(rows)
    assert_ordered(rows)


@pytest.mark.usefixtures("written_by")
def test_order_of_a_cached_dataframe(spark: SparkSession, store: str) -> None:
    """Q4: Spark knows where cached rows lie, and a coalesce of theirs puts partitions together that are no neighbours."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=3)
    cached = orders(spark, 0, 300, keys=6, files=20).cache()
    try:
        cached.count()
        partq.append(cached, store, "q")
    finally:
        cached.unpersist()
    assert_ordered(read(spark, store).collect())


def test_order_over_restarts_and_files(spark: SparkSession, store: str) -> None:
    """Q4: order_by brings files that Spark packs by size back into order."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    source = str(Path(store).parent / "in")
    for i, count in enumerate((10, 200, 50, 400)):
        orders(spark, i * 1000, count, keys=3, files=1).write.mode("append").json(source)
    partq.append(spark.read.schema(ORDERS).json(source), store, "q", order_by="n")
    rows = read(spark, store).collect()
    assert len(rows) == 660
    assert_ordered(rows)


def test_append_without_ids_always_adds(spark: SparkSession, store: str) -> None:
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    for _ in range(2):
        assert partq.append(orders(spark, 0, 10, files=1), store, "q") == 10
    assert partq.append(orders(spark, 0, 0), store, "q") == 0
    assert partq.describe_queue(store, "q").depth == 20


def test_files_too_old_are_written_again(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: a write that took so long that vacuum may have deleted its files writes them again; nothing is lost or twice."""

    partq.create_queue(store, "q", ORDERS, key="k", partitions=3, vacuum_grace_ms=7_200_000)
    write_files, clock = sink.write_files, {"now": 0.0, "jobs": 0}

    def late(*arguments: Any, **given: Any) -> Any:
        written = write_files(*arguments, **given)
        clock["jobs"] += 1
        if clock["jobs"] == 1:  # the first job takes two hours
            clock["now"] += 7_200
        return written

    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: clock["now"])
    monkeypatch.setattr(sink, "write_files", late)
    added = partq.append(orders(spark, 0, 50, files=1), store, "q", sink_id="s", batch_id=0)
    monkeypatch.undo()
    assert added == 50
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(50))
    assert_dense(rows)
    assert len(list(Path(store).rglob("partition=*/*.parquet"))) > 3


@pytest.mark.usefixtures("written_by")
def test_task_retries_leave_no_trace(spark: SparkSession, store: str) -> None:
    """Q5: files of tasks that failed are never committed (here: nothing of the whole batch)."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    bad = orders(spark, 0, 100, files=2).selectExpr("k", "if(n = 77, raise_error('no'), n) n")
    with pytest.raises(Exception, match="no"):
        partq.append(bad, store, "q", sink_id="s", batch_id=0)
    assert partq.describe_queue(store, "q").depth == 0
    assert partq.append(orders(spark, 0, 100), store, "q", sink_id="s", batch_id=0) == 100
    assert numbers(read(spark, store).collect()) == list(range(100))


def test_zone_of_the_workers_does_not_matter(spark: SparkSession, store: str) -> None:
    """Q6: `_enqueued_at` is the instant of the commit."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=1)
    before = dt.datetime.now(dt.UTC)
    partq.append(orders(spark, 0, 3), store, "q")
    after = dt.datetime.now(dt.UTC)
    (row,) = read(spark, store).selectExpr("unix_micros(_enqueued_at) us").distinct().collect()
    assert before.timestamp() * 1e6 - 1 <= row.us <= after.timestamp() * 1e6 + 1
