"""Spark's own word of queries whose results may be wrong: a fresh checkpoint, state by key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.groups import Consumer
from tests.helpers import eventually, put, run_through, stream, two_partitions

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def queue(store: str) -> str:
    return two_partitions(store, 5)


def test_a_query_with_a_fresh_checkpoint(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    said: list[tuple[str, ...]] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        said.append(partq.describe_group(queue, "g").warnings)

    run_through(stream(spark, queue, group="g"), tmp_path / "cp", take)
    for partition in range(2):
        put(queue, partition, range(5))
    run_through(stream(spark, queue, group="g"), tmp_path / "cp", take)
    assert len(said) >= 2 and not any(said)
    for partition in range(2):
        put(queue, partition, range(5))
    run_through(stream(spark, queue, group="g"), tmp_path / "fresh", take)
    (warning,) = said[-1]
    assert "began with a fresh checkpoint" in warning


@pytest.mark.long
def test_a_query_with_state_by_key(
    spark: SparkSession, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An aggregate, and a query without one that loses a partition, too."""

    def start(rows: DataFrame, name: str) -> None:
        def take(batch: DataFrame, batch_id: int) -> None:
            batch.collect()  # a state that is not computed ends the query

        writer = rows.writeStream.outputMode("update").foreachBatch(take)
        writer.option("checkpointLocation", str(tmp_path / name)).start()

    def joined(group: str) -> None:
        eventually(lambda: partq.describe_group(queue, group).lag == 0, "the first messages")
        Consumer(queue, "b", group=group)
        eventually(lambda: len({p.flow for p in partq.describe_group(queue, group).partitions}) == 2, "the handoff")

    caplog.set_level(logging.WARNING)
    start(stream(spark, queue, group="g", instanceId="a").groupBy("v").count(), "a")
    start(stream(spark, queue, group="plain", instanceId="p"), "p")
    for group in ("g", "plain"):
        eventually(lambda group=group: partq.list_groups(queue).count(group), "a member")
        joined(group)
    (warning,) = partq.describe_group(queue, "g").warnings
    assert warning.startswith("query a keeps state by key in Spark, and partition") and "once, on" in warning
    assert partq.describe_group(queue, "plain").warnings == ()
