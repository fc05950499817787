"""Rows that a query has kept for a later micro-batch cannot be written exactly once, also if that has no new messages (Q5)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from tests.helpers import run_through, stream

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def kept(spark: SparkSession, store: str) -> DataFrame:
    """Ten messages, a minute apart; each but the last comes in a micro-batch that the watermark alone brings about."""
    partq.create_queue(store, "q", "v bigint, at timestamp", partitions=1)
    began = dt.datetime(2026, 1, 1)
    rows = [(n, began + dt.timedelta(minutes=n)) for n in range(10)]
    partq.append(spark.createDataFrame(rows, "v bigint, at timestamp").coalesce(1), store, "q")
    messages = stream(spark, store, group="g").withWatermark("at", "0 seconds")
    of_each = messages.groupBy(sf.window("at", "1 minute"), "_queue", "_partition", "_offset").agg(
        sf.max("v").alias("v")
    )
    return of_each.select("v", "_queue", "_partition", "_offset")


@pytest.mark.parametrize("target", ["table", pytest.param("queue", marks=pytest.mark.long)])
def test_a_micro_batch_without_messages(kept: DataFrame, store: str, tmp_path: Path, target: str) -> None:
    partq.create_queue(store, "into", "v bigint", partitions=1)
    sink: Any = partq.queue_sink(store, "into", exactly_once=True)
    if target == "table":
        sink = partq.delta_sink(tmp_path / "t")
    with pytest.raises(StreamingQueryException, match=r"which is none of this micro-batch\. Nothing was written"):
        run_through(kept, tmp_path / "cp", sink)
    assert partq.describe_queue(store, "into").depth == 0


def test_positions(kept: DataFrame, tmp_path: Path) -> None:
    found = []
    with pytest.raises(StreamingQueryException, match="which is none of this micro-batch"):
        run_through(kept, tmp_path / "cp", lambda batch, _: found.append(partq.positions(batch)))
    assert found == [{}]
