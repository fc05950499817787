"""A queue gets a column while Spark's queries write and read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import spark_partq as partq
from tests.helpers import eventually, flat, read, run_through, running, stream
from tests.spark.test_queue_to_queue import stored

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.mark.long
def test_a_running_query_goes_on_and_has_the_column_once_it_is_started_again(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    """Across the handoff of a restart and a resize; producers may leave the column out."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    sink = partq.queue_sink(store, "q", sink_id="s")
    old = spark.range(10).selectExpr("cast(id as string) k", "id v")
    partq.append(old, store, "q")
    seen: list[Row] = []
    query = running(spark, store, tmp_path / "checkpoint", seen, group="g")
    eventually(lambda: len(seen) == 10, "the first messages")
    frame = stream(spark, store, group="late")  # its columns are known, and it begins when there is another
    partq.add_column(store, "q", "note string")
    new = spark.range(10, 20).selectExpr("cast(id as string) k", "id v", "concat('n', id) note")
    partq.append(new, store, "q")
    sink(spark.range(20, 25).selectExpr("id v", "cast(id as string) k"), 0)
    eventually(lambda: len(seen) == 25, "the messages of after the change")
    assert {tuple(row.asDict())[:3] for row in seen} == {("k", "v", "_queue")}
    query.stop()
    partq.scale(store, "q", 3)
    partq.append(new.selectExpr("k", "v + 20 v", "note"), store, "q")
    again: list[Row] = []
    query = running(spark, store, tmp_path / "checkpoint", again, group="g")
    eventually(lambda: len(again) == 10, "the last messages")
    query.stop()
    assert {row.v: row.note for row in again} == {v + 20: f"n{v}" for v in range(10, 20)}
    notes = {row.v: row.note for row in read(spark, store).collect()}
    assert notes == {
        v: (f"n{v - 20 * (v >= 30)}" if 10 <= v < 20 or v >= 30 else None) for v in [*range(25), *range(30, 40)]
    }
    late: list[list[Row]] = []
    run_through(frame, tmp_path / "late", lambda df, _: late.append(df.collect()))
    assert sorted(row.v for row in flat(late)) == sorted(notes)
    partq.create_queue(store, "b", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    exactly_once = partq.queue_sink(store, "b", exactly_once=True)
    partq.add_column(store, "b", "note string")
    run_through(stream(spark, store, group="relay"), tmp_path / "relay", exactly_once)
    assert stored(spark, store, "b") == sorted(notes)


@pytest.mark.long
@pytest.mark.parametrize("written_by", ["driver", "job"], indirect=True)
def test_times_of_a_session_with_a_zone(spark: SparkSession, store: str, written_by: str) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    partq.create_queue(store, "q", "k string", key="k", partitions=1)
    partq.add_column(store, "q", "due timestamp")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        rows = spark.range(3).selectExpr("cast(id as string) k", "timestamp_seconds(id + 1700000000) due")
        partq.append(rows, store, "q")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = read(spark, store).selectExpr("k", "unix_seconds(due) s").collect()
    assert {row.k: row.s for row in found} == {str(n): 1_700_000_000 + n for n in range(3)}


def test_another_type_is_refused_before_anything_is_written(spark: SparkSession, store: str) -> None:
    partq.create_queue(store, "q", "k string", key="k", partitions=1)
    partq.add_column(store, "q", "note string")
    with pytest.raises(partq.SchemaMismatchError, match="note is long, not string"):
        partq.append(spark.range(3).selectExpr("cast(id as string) k", "id note"), store, "q")
    with pytest.raises(partq.SchemaMismatchError, match="missing k string"):
        partq.append(spark.range(3).selectExpr("cast(id as string) note"), store, "q")
    assert partq.describe_queue(store, "q").to_dict()["partitions"][0]["next_offset"] == 0
