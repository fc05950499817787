"""Values and columns that a Delta table cannot hold are refused before anything is committed: the table can be read as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from tests.helpers import put, run_through, stream

pytestmark = pytest.mark.usefixtures("stopped_queries")

VALUES = {
    "date": ("make_date(10000, 5, 1)", "make_date(2026, 5, 1)"),
    "timestamp_ntz": ("make_timestamp_ntz(67560, 5, 1, 0, 0, 0)", "make_timestamp_ntz(9999, 12, 31, 23, 59, 59)"),
    "string": ("cast(X'ff' as string)", "'ö'"),
}


@pytest.mark.parametrize("type_", VALUES)
def test_a_value_that_no_partition_can_have(spark: SparkSession, store: str, tmp_path: Path, type_: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    bad, good = VALUES[type_]
    rows = stream(spark, store, group="g").withColumn("p", sf.expr(f"if(v = 3, {bad}, {good})"))
    sink = partq.delta_sink(tmp_path / "t", partition_by="p")
    with pytest.raises(
        StreamingQueryException, match=r"message 3 of partition 0 of queue 'q' has a value in the partition column 'p'"
    ):
        run_through(rows, tmp_path / "cp", sink)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 0
    run_through(rows.filter("v <> 3"), tmp_path / "again", sink)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 4


@pytest.mark.parametrize("exists", [False, True])
def test_times_in_a_map(spark: SparkSession, store: str, tmp_path: Path, exists: bool) -> None:
    """delta-rs would not declare them, and could not read the table any more."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    rows = stream(spark, store, group="g")
    sink = partq.delta_sink(tmp_path / "t", merge_schema=True)
    if exists:
        run_through(rows, tmp_path / "before", sink)
        put(store, 0, range(5, 10))
    new = rows.withColumn("m", sf.expr("map('a', timestamp_ntz'2026-05-01 00:00:00')"))
    with pytest.raises(StreamingQueryException, match="does not declare timestamp_ntz in a map"):
        run_through(new, tmp_path / "cp", sink)
    run_through(rows, tmp_path / "again", sink)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == (10 if exists else 5)


def test_a_key_with_texts_inside_of_another_collation(spark: SparkSession, store: str) -> None:
    """Q2: it goes where the same key goes without one, also if Spark is set to hash texts by their collation."""
    partq.create_queue(store, "q", "k struct<a: string>", key="k", partitions=64)
    spark.conf.set("spark.sql.legacy.collationAwareHashFunctions", "true")
    try:
        for text in ("'Name'", "'Name' collate UTF8_LCASE", "'Name' collate UNICODE_CI"):
            partq.append(spark.sql(f"select named_struct('a', {text}) as k"), store, "q")
    finally:
        spark.conf.unset("spark.sql.legacy.collationAwareHashFunctions")
    read = spark.read.format("partq").option("path", store).option("queue", "q").load()
    assert [row["_partition"] for row in read.select("_partition").distinct().collect()] == [51]
