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
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SYSTEM
from tests.applications import Pool
from tests.helpers import assert_dense, eventually, in_parallel, opened, read

ORDERS = "k string, n bigint"


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


def orders(spark: SparkSession, first: int, count: int, keys: int = 40, files: int = 2) -> DataFrame:
    """Messages whose `n` rises, of many keys and some without one."""
    return spark.range(first, first + count, 1, files).selectExpr(
        f"if(id % 7 = 3, null, concat('k', id % {keys})) k", "id n"
    )


def numbers(rows: Iterable[Row]) -> list[int]:
    return sorted(r.n for r in rows)


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


def test_null_keys_are_spread(spark: SparkSession, store: str) -> None:
    """Q3: messages without a key are spread, also if they are all alike, over the batches."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=4)
    partq.append(spark.range(400).selectExpr("cast(null as string) k", "id n"), store, "q")
    counts = Counter(r._partition for r in read(spark, store).collect())
    assert len(counts) == 4 and min(counts.values()) > 60
    partq.create_queue(store, "same", ORDERS, key="k", partitions=4)
    for batch in range(24):
        same = spark.range(1).selectExpr("cast(null as string) k", "1L n")
        partq.append(same, store, "same", sink_id="s", batch_id=batch)
    counts = Counter(r._partition for r in read(spark, store, "same").collect())
    assert len(counts) == 4 and max(counts.values()) <= 14


def test_queue_without_a_key(spark: SparkSession, store: str) -> None:
    """Q3: a queue that has no key spreads all of its messages."""
    partq.create_queue(store, "q", ORDERS, partitions=4)
    partq.append(orders(spark, 0, 400), store, "q")
    counts = Counter(r._partition for r in read(spark, store).collect())
    assert len(counts) == 4 and min(counts.values()) > 60


def test_order_by(spark: SparkSession, store: str) -> None:
    """Q4: inside a batch the named columns give the order, equal ones keep the order in which they were read."""
    partq.create_queue(store, "q", "k string, at timestamp, n bigint", key="k", partitions=3)
    df = spark.range(0, 300, 1, 4).selectExpr(
        "concat('k', id % 5) k", "timestamp_seconds(1000 - id div 50) at", "(id * 7919) % 300 n"
    )
    partq.append(df, store, "q", order_by=["at", "n"])
    for rows in by_key(read(spark, store).collect()).values():
        assert [(r.at, r.n) for r in rows] == sorted((r.at, r.n) for r in rows)
    with pytest.raises(partq.InvalidArgumentError, match="order_by column 'x'"):
        partq.append(df, store, "q", order_by="x")


def by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r._partition, r._offset)):
        found[row.k].append(row)
    return found


@pytest.mark.parametrize(("partitions", "files"), [(1, 5), (3, 1), (3, 2), (3, 5), (3, 13), (300, 5)])
def test_order_as_read(spark: SparkSession, store: str, partitions: int, files: int) -> None:
    """Q4: without order_by the order in which Spark reads the rows is kept, whatever the number of input partitions."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=partitions)
    for batch in range(2):
        partq.append(orders(spark, batch * 260, 260, keys=6, files=files), store, "q")
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(520))
    assert_dense(rows)
    assert_ordered(rows)


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


@pytest.mark.parametrize(
    ("columns", "faults"),
    [
        (["k"], ["missing n long"]),
        (["k", "n", "1 x"], ["extra x integer"]),
        (["k", "cast(n as int) n"], ["n is integer, not long"]),
        (["n k", "1 x"], ["missing n long", "extra x integer", "k is long, not string"]),
        (["k", "n", "n"], ["occurs twice"]),
        (["k", "n N"], ["missing n long", "extra N long"]),
    ],
    ids=str,
)
def test_schema_mismatch(spark: SparkSession, store: str, columns: list[str], faults: list[str]) -> None:
    """Bad input: every difference is named and nothing is written."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    with pytest.raises(partq.SchemaMismatchError) as caught:
        partq.append(orders(spark, 0, 5).selectExpr(*columns), store, "q")
    assert all(fault in str(caught.value) for fault in faults)
    assert partq.describe_queue(store, "q").depth == 0
    assert not list(Path(store).rglob("partition=*/*.parquet"))


def test_columns_in_another_order(spark: SparkSession, store: str) -> None:
    """Columns are matched by name."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=1)
    partq.append(spark.sql("select 5L n, 'x' k"), store, "q")
    (row,) = read(spark, store).collect()
    assert (row.k, row.n) == ("x", 5)


def query_of(spark: SparkSession, source: str, checkpoint: str, sink: Callable[[DataFrame, int], None]) -> None:
    query = (
        spark.readStream.schema(ORDERS)
        .json(source)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_sink_ahead_of_a_new_checkpoint(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q5: a sink_id used with a new checkpoint would skip batches; it is refused, and goes on with its own one."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    source = str(tmp_path / "in")
    orders(spark, 0, 10, files=1).write.json(source)
    query_of(spark, source, str(tmp_path / "one"), partq.queue_sink(store, "q", sink_id="s"))
    with pytest.raises(StreamingQueryException, match=r"\[SINK_AHEAD\].*choose another sink_id"):
        query_of(spark, source, str(tmp_path / "two"), partq.queue_sink(store, "q", sink_id="s"))
    orders(spark, 10, 10, files=1).write.mode("append").json(source)
    query_of(spark, source, str(tmp_path / "one"), partq.queue_sink(store, "q", sink_id="s"))
    assert numbers(read(spark, store).collect()) == list(range(20))
    query_of(spark, source, str(tmp_path / "three"), partq.queue_sink(store, "q"))
    assert numbers(read(spark, store).collect()) == sorted([*range(20), *range(20)])


def test_batch_ids_of_append(spark: SparkSession, store: str) -> None:
    """Q5: an id alone, or one that is no count, is refused; an older batch than the last too."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    df = orders(spark, 0, 4, files=1)
    wrong: list[dict[str, Any]] = [{"sink_id": "s"}, {"batch_id": 0}]
    wrong += [{"sink_id": "s", "batch_id": b} for b in (-1, True, "3", 1.0, 2**63)]
    wrong += [{"sink_id": s, "batch_id": 0} for s in ("", "a/b", "..")]
    for ids in wrong:
        with pytest.raises(partq.InvalidArgumentError):
            partq.append(df, store, "q", **ids)
    assert partq.describe_queue(store, "q").depth == 0
    partq.append(df, store, "q", sink_id="s", batch_id=5)
    with pytest.raises(partq.SinkAheadError):
        partq.append(df, store, "q", sink_id="s", batch_id=4)
    with pytest.raises(partq.InvalidArgumentError, match="sink_id"):
        partq.queue_sink(store, "q")(df, 0)
    assert partq.describe_queue(store, "q").depth == 4


def test_append_without_ids_always_adds(spark: SparkSession, store: str) -> None:
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    for _ in range(2):
        assert partq.append(orders(spark, 0, 10, files=1), store, "q") == 10
    assert partq.append(orders(spark, 0, 0), store, "q") == 0
    assert partq.describe_queue(store, "q").depth == 20


def test_queue_deleted_under_a_sink(spark: SparkSession, store: str) -> None:
    """A running sink notices that its queue has gone, and that another has taken its name, before it writes."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    partq.create_queue(store, "other", ORDERS, key="k", partitions=2)
    sink = partq.queue_sink(store, "q", sink_id="s")
    sink(orders(spark, 0, 5, files=1), 0)
    partq.delete_queue(store, "q")
    with pytest.raises(partq.QueueNotFoundError, match="was deleted"):
        sink(orders(spark, 5, 5, files=1), 1)
    assert partq.list_queues(store) == ["other"]
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    with pytest.raises(partq.QueueNotFoundError, match="made anew"):
        sink(orders(spark, 5, 5, files=1), 1)
    assert partq.describe_queue(store, "q").depth == 0
    partq.queue_sink(store, "q", sink_id="s")(orders(spark, 0, 5, files=1), 0)
    assert partq.describe_queue(store, "q").depth == 5


def test_unknown_queue(spark: SparkSession, store: str) -> None:
    with pytest.raises(partq.NotAStoreError):
        partq.queue_sink(store, "q")
    partq.create_queue(store, "q", ORDERS)
    with pytest.raises(partq.QueueNotFoundError, match="its queues: q"):
        partq.append(orders(spark, 0, 1), store, "p")


def test_files_too_old_are_written_again(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: a write that took so long that vacuum may have deleted its files writes them again; nothing is lost or twice."""

    partq.create_queue(store, "q", ORDERS, key="k", partitions=3, vacuum_grace_ms=7_200_000)
    append, clock = PartitionTable.append, {"now": 0.0, "appends": 0}

    def late(self: PartitionTable, *arguments: Any) -> int | None:
        clock["appends"] += 1
        if clock["appends"] == 2:  # the second partition's commit comes two hours later
            clock["now"] += 7_200
        return append(self, *arguments)

    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: clock["now"])
    monkeypatch.setattr(PartitionTable, "append", late)
    added = partq.append(orders(spark, 0, 50, files=1), store, "q", sink_id="s", batch_id=0)
    monkeypatch.undo()
    assert added == 50
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(50))
    assert_dense(rows)
    assert len(list(Path(store).rglob("partition=*/*.parquet"))) > 3


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
