"""Who writes the files of a batch: the driver those of a small one, a Spark job those of any other; the files are the same (Q3, Q4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from spark_partq.spark import sink, write_job
from spark_partq.storage.queue.handle import Queue
from tests.helpers import assert_dense, driver, finished, read
from tests.spark.messages import ORDERS, numbers, orders
from tests.spark.test_source_batch import typed


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """What Spark jobs have written, from now on."""
    found: list[DataFrame] = []
    run = write_job._run

    def noted(rows: DataFrame, task: Any) -> write_job.WrittenRows:
        found.append(rows)
        return run(rows, task)

    monkeypatch.setattr(write_job, "_run", noted)
    return found


def test_the_files_are_the_same(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the name of the zone in which Arrow would show an instant: the driver's is always UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    df = typed(spark).coalesce(1)
    for queue in ("driver", "job"):
        partq.create_queue(store, queue, df.schema, key="a_long", partitions=3)
        partq.append(df, store, queue, sink_id="s", batch_id=0)
        monkeypatch.setattr(write_job, "_SMALL_BYTES", -1)
    spark.conf.set("spark.sql.session.timeZone", zone)
    by_driver, by_job = ([pq.read_table(file) for file in files(store, queue)] for queue in ("driver", "job"))
    for one, other in zip(by_driver, by_job, strict=True):
        assert one.schema == other.schema
        for name in one.column_names:
            assert str(one[name].to_pylist()) == str(other[name].to_pylist()), name


def files(store: str, queue: str) -> list[Path]:
    return sorted((Path(store) / "queues" / queue / "partitions").rglob("*.parquet"), key=lambda f: f.parent.name)


def test_the_driver_writes_what_is_small(spark: SparkSession, store: str, jobs: list[DataFrame]) -> None:
    """Of a sink's first batch Spark's estimate tells, of the others the batch before."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=3)
    sink = partq.queue_sink(store, "q", sink_id="s")
    unknown = spark.createDataFrame(orders(spark, 0, 50).rdd, ORDERS)
    sink(unknown, 0)
    assert len(jobs) == 1, "Spark does not know how large it is"
    sink(spark.createDataFrame(orders(spark, 50, 50).rdd, ORDERS), 1)
    partq.append(orders(spark, 100, 50), store, "q")
    assert len(jobs) == 1
    assert numbers(read(spark, store).collect()) == list(range(150))


def test_a_batch_that_is_larger_than_expected(
    spark: SparkSession, store: str, jobs: list[DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job writes it, and each message is in once; then one that is small is written by a job, the next by the driver."""
    monkeypatch.setattr(write_job, "_SMALL_ROWS", 20)
    partq.create_queue(store, "q", ORDERS, key="k", partitions=3)
    sink = partq.queue_sink(store, "q", sink_id="s", order_by="n")
    by_jobs, first = [], 0
    for batch_id, count in enumerate((20, 21, 100, 20, 20, 0, 5)):
        assert partq.append(orders(spark, first, 0), store, "q") == 0
        jobs.clear()
        sink(orders(spark, first, count, files=3), batch_id)
        by_jobs.append(len(jobs))
        first += count
    assert by_jobs == [0, 1, 1, 1, 0, 0, 0]
    rows = read(spark, store).collect()
    assert numbers(rows) == list(range(first))
    assert_dense(rows)


def test_nothing_is_opened_or_planned_twice(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink opens its queue once, and plans each batch that it writes once; an append does both once."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=3)
    opened = calls(monkeypatch, Queue, "__init__")
    planned = calls(monkeypatch, sink, "partition_column")
    write = partq.queue_sink(store, "q", sink_id="s")
    for batch_id, first in enumerate((0, 50, 100, 100)):
        write(orders(spark, first, 50), batch_id)
        assert (len(opened), len(planned)) == (1, batch_id + 1)
    write(orders(spark, 100, 50), 3)  # is in the queue
    assert (len(opened), len(planned)) == (1, 4)
    for more in (1, 2):
        partq.append(orders(spark, 150, 50), store, "q")
        assert (len(opened), len(planned)) == (1 + more, 4 + more)


def calls(monkeypatch: pytest.MonkeyPatch, of: object, name: str) -> list[str]:
    """Gets the name with each call from now on."""
    found, function = list[str](), getattr(of, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        found.append(name)
        return function(*arguments, **options)

    monkeypatch.setattr(of, name, noted)
    return found


def test_what_a_task_brings_is_bounded(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row more than a small batch has is enough to see that this one is not small."""
    monkeypatch.setattr(write_job, "_SMALL_ROWS", 20)
    rows = spark.range(0, 1_000, 1, 4).selectExpr("id", f"monotonically_increasing_id() {write_job._ORDER}")
    brought: list[int] = []
    to_arrow = type(rows).toArrow

    def noted(some: DataFrame) -> pa.Table:
        found = to_arrow(some)
        brought.append(found.num_rows)
        return found

    monkeypatch.setattr(type(rows), "toArrow", noted)
    assert write_job._brought_here(rows, []) is None
    wide = write_job.WrittenRows(
        [], {}, rows_read=8, bytes_read=16 << 20
    )  # no more than eight of these are a small batch
    assert write_job._brought_here(rows, [], wide) is None
    assert write_job._brought_here(spark.range(0, 1_000, 1, 100).select("id", rows_order()), [], wide) is None
    assert brought == [4 * 21, 4 * 9, 8 * 9]


def rows_order() -> Column:
    return sf.monotonically_increasing_id().alias(write_job._ORDER)


@pytest.mark.long
def test_a_batch_that_the_driver_may_not_be_given(tmp_path: Path) -> None:
    """The batch before was small, and this one has few rows that are wide: a job writes it."""
    code = """
import sys
import spark_partq as partq
store = sys.argv[1]
spark = partq.session("wide", "local[2]", {"spark.driver.maxResultSize": "4m"})
partq.create_queue(store, "q", "v bigint, text string", partitions=2)
sink = partq.queue_sink(store, "q", sink_id="s")
for batch_id, width in enumerate((1, 100_000, 1)):
    sink(spark.range(100).selectExpr("id v", f"repeat('x', {width}) text"), batch_id)
rows = spark.read.format("partq").option("path", store).option("queue", "q").load().selectExpr("v", "length(text) n").collect()
print(sorted((row.n, row.v) for row in rows) == sorted((n, v) for n in (1, 100_000, 1) for v in range(100)))
"""
    assert finished(driver(code, str(tmp_path / "store"))).split()[-1] == "True"


@pytest.mark.parametrize("by", ["driver", "job"])
def test_structs_that_are_null(
    spark: SparkSession, store: str, jobs: list[DataFrame], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Spark knows that their parts are never null where the struct is not; Arrow alone would not take the nulls."""
    if by == "job":
        monkeypatch.setattr(write_job, "_SMALL_BYTES", -1)
    some = "if(id % 2 = 0, null, named_struct('b', concat('s', id), 'c', id))"
    columns = {"a": some, "l": f"array({some})", "m": f"map('x', {some})", "k": "map(named_struct('n', id), id)"}
    df = spark.range(4).selectExpr(*(f"{sql} as {name}" for name, sql in columns.items()))
    partq.create_queue(store, "q", df.schema, partitions=1)
    assert partq.append(df, store, "q") == 4 and bool(jobs) == (by == "job")
    found = read(spark, store).orderBy("_offset").select(*columns).collect()
    assert found == df.collect() and [row.a and row.a.c for row in found] == [None, 1, None, 3]


def test_a_small_batch_of_many_columns(spark: SparkSession, store: str, jobs: list[DataFrame]) -> None:
    """A job writes it: Spark would plan what the driver does for longer."""
    df = spark.range(4).selectExpr(*(f"id + {n} as c{n}" for n in range(write_job._SMALL_COLUMNS + 1)))
    partq.create_queue(store, "q", df.schema, partitions=1)
    assert partq.append(df, store, "q") == 4 and len(jobs) == 1
