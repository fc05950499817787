"""Messages of a key are deleted while Spark's queries read the queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

import spark_partq as partq
from tests.helpers import eventually, read, running

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.mark.long
def test_a_query_goes_on_across_a_resize_and_a_restart(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """A table that is written exactly once has each message that is left once, at its offset."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    rows = spark.range(0, 300).selectExpr("concat('k', id % 3) k", "id v")
    partq.append(rows.where("v < 100"), store, "q")
    seen: list[Row] = []
    query = running(spark, store, tmp_path / "checkpoint", seen, group="g")
    eventually(lambda: len(seen) == 100, "the first messages")
    query.stop()
    partq.append(rows.where("v >= 100 and v < 200"), store, "q")
    partq.scale(store, "q", 3)
    before = {(row._partition, row._offset): row.v for row in read(spark, store).collect()}
    assert partq.delete_messages(store, "q", {"k": "k1"}) == 67
    left = {(row._partition, row._offset): row.v for row in read(spark, store).collect()}
    assert left == {place: v for place, v in before.items() if v % 3 != 1}
    partq.append(rows.where("v >= 200"), store, "q")
    partq.delete_messages(store, "q", {"k": "k2"})
    again: list[Row] = []
    query = running(spark, store, tmp_path / "checkpoint", again, group="g")
    wanted = sorted([v for v in range(100, 200) if v % 3 == 0] + [v for v in range(200, 300) if v % 3 != 2])
    # The last micro-batch before the stop may come again, without what was deleted.
    eventually(lambda: len([row for row in again if row.v >= 100]) == len(wanted), "what is left")
    query.stop()
    assert sorted(row.v for row in again if row.v >= 100) == wanted
    assert all(row.v % 3 != 1 for row in again if row.v < 200)
    found = [
        spark.read.format("delta").load(f"{store}/queues/q/partitions/partition={n}").where("k = 'k2'").count()
        + len(DeltaTable(f"{store}/queues/q/partitions/partition={n}").to_pyarrow_table(filters=[("k", "=", "k2")]))
        for n in range(3)
    ]
    assert found == [0, 0, 0]
