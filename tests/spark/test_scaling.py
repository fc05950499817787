"""Scaling, exclusive queues and replicas as an application sees them that writes with Spark; what it reads needs no JVM (S2, S3, S6, S7)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from tests.helpers import eventually, position, read
from tests.queries import Batch, Query

pytestmark = pytest.mark.usefixtures("ended_queries")

QUICK: dict[str, Any] = {"rebalance_delay_ms": 0, "max_handoff_time_ms": 60_000}


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    return spark.range(first, last, numPartitions=1).select(
        sf.concat(sf.lit("k"), sf.col("id") % 5).alias("k"), sf.col("id").alias("v")
    )


class Consumer:
    """A query of group `g`, and what it is given."""

    def __init__(self, store: str, folder: Path, name: str = "c", **options: Any) -> None:
        self.store, self.checkpoint, self.options = store, folder / f"cp-{name}", options
        self.rows: list[Row] = []

    def start(self, once: bool = False) -> Query:
        return Query(self.store, self.checkpoint, self.take, available_now=once, group="g", **self.options)

    def take(self, batch: Batch, _: int) -> None:
        self.rows += batch.collect()

    def run(self) -> list[int]:
        """The values that are there now."""
        before = len(self.rows)
        self.start(once=True).awaitTermination()
        return [row.v for row in self.rows[before:]]


def in_order(found: list[Row]) -> bool:
    keys: dict[str, list[int]] = {}
    for row in found:
        keys.setdefault(row.k, []).append(row.v)
    return all(values == sorted(values) for values in keys.values())


def test_exclusive_and_back(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """S6: one flow is active, the other a standby; what is left when the queue becomes partitioned is stuck until it is copied;
    and back again all is drained into the order of the parent, while both queries of the group are unbound and bind again."""
    made = partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=0, **QUICK)
    assert (made.status, made.configured_partitions, made.operating_partitions) == ("Ready", 0, 0)
    partq.append(rows(spark, 0, 20), store, "q")
    consumer = Consumer(store, tmp_path, flows=2)
    assert consumer.run() == list(range(20))
    assert {row._partition for row in consumer.rows} == {-1} and len({row._flow for row in consumer.rows}) == 1
    partq.append(rows(spark, 20, 30), store, "q")
    assert partq.scale(store, "q", 8).stuck == 10
    partq.append(rows(spark, 30, 40), store, "q")
    assert sorted(consumer.run()) == list(range(30, 40))
    assert partq.copy_stuck(store, "q") == 10
    assert partq.describe_queue(store, "q").stuck == 0
    assert sorted(consumer.run()) == list(range(20, 30))
    assert in_order(consumer.rows[20:30]) and in_order(consumer.rows[30:40])
    partq.append(rows(spark, 40, 60), store, "q")
    before = len(consumer.rows)
    other = Consumer(store, tmp_path, "d")
    both = [consumer.start(), other.start()]
    # Else nobody would be waited for
    eventually(lambda: len(partq.describe_group(store, "g").members) == 2, "the consumers")
    assert partq.scale(store, "q", 0).status == "Ready"
    partq.append(rows(spark, 60, 70), store, "q")
    eventually(lambda: position(store, "g", -1) == 40, "the end of the work")
    assert len(partq.describe_group(store, "g").members) == 2 and all(query.isActive for query in both)
    for query in both:
        query.stop()
    seen = [*consumer.rows[before:], *other.rows]
    assert sorted(row.v for row in seen) == list(range(40, 70))
    assert in_order(consumer.rows[before:]) and in_order(other.rows)
    assert {row._partition for row in seen if row.v >= 60} == {-1}
    assert len({row._flow for row in seen if row.v >= 60}) == 1


def test_delete_says_what_is_lost(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """S2: the count must be confirmed, it is what is missing afterwards, and the order of the rest holds."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=5, **QUICK)
    partq.append(rows(spark, 0, 100), store, "q")
    going = read(spark, store).where("_partition >= 2").count()
    with pytest.raises(partq.InvalidArgumentError, match=f"confirm_lost={going}"):
        partq.scale(store, "q", 2, "delete")
    found = partq.scale(store, "q", 2, "delete", confirm_lost=going)
    assert (found.status, found.operating_partitions, found.lost) == ("Ready", 2, going)
    partq.append(rows(spark, 100, 150), store, "q")
    consumer = Consumer(store, tmp_path)
    assert len(consumer.run()) == 150 - going and in_order(consumer.rows)


def test_discarded_while_ingress_is_disabled(spark: SparkSession, store: str) -> None:
    """S3: an error by default; with another setting the batch is discarded and counted, once."""
    for name, setting in (("q", "including_when_shutdown"), ("p", "on")):
        partq.create_queue(store, name, "k string, v bigint", key="k", partitions=2, reject_to_sender=setting)
        partq.set_ingress(store, name, False)
    with pytest.raises(partq.IngressDisabledError):
        partq.append(rows(spark, 0, 5), store, "q", sink_id="s", batch_id=0)
    for _ in range(2):
        assert partq.append(rows(spark, 0, 5), store, "p", sink_id="s", batch_id=0) == 0
    assert [partq.describe_queue(store, name).discarded for name in ("q", "p")] == [0, 5]
    assert partq.set_ingress(store, "q", True).ingress
    assert partq.append(rows(spark, 0, 5), store, "q", sink_id="s", batch_id=0) == 5


def test_replica_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    """S7: the primary's folder is gone; the replica is promoted, consumers go on where they had acknowledged, producers too."""
    store, there = str(tmp_path / "a"), str(tmp_path / "b")
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=3, **QUICK)
    partq.append(rows(spark, 0, 30), store, "q", sink_id="s", batch_id=0)
    assert sorted(Consumer(store, tmp_path).run()) == list(range(30))
    partq.append(rows(spark, 30, 50), store, "q", sink_id="s", batch_id=1)
    assert partq.replicate(store, "q", there).total_lag == 0
    found = partq.scale(store, "q", 5)
    assert found.replicas == (there,) and partq.replicas(store, "q")[0].generation == 1
    with pytest.raises(partq.ReplicaError, match="is a replica"):
        partq.append(rows(spark, 50, 60), there, "q")
    with pytest.raises(Exception, match="is a replica"):
        Consumer(there, tmp_path, "early").run()
    assert read(spark, there).count() == 50
    shutil.move(store, tmp_path / "gone")
    assert not partq.promote(there, "q").fenced
    with pytest.raises(partq.ReplicaError, match="already"):
        partq.promote(there, "q")
    assert partq.append(rows(spark, 30, 50), there, "q", sink_id="s", batch_id=1) == 0
    assert partq.append(rows(spark, 50, 60), there, "q", sink_id="s", batch_id=2) == 10
    consumer = Consumer(there, tmp_path, "later")
    assert sorted(consumer.run()) == list(range(30, 60)) and in_order(consumer.rows)
    shutil.move(tmp_path / "gone", store)
    with pytest.raises(partq.QueueFencedError):
        partq.append(rows(spark, 60, 61), store, "q", sink_id="s", batch_id=2)
