"""A store in an S3 bucket instead of a folder: the whole way of a message, against a server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_partq as partq
from tests.helpers import flat
from tests.queries import consume
from tests.s3server import BUCKET, running


@pytest.fixture
def bucket() -> Iterator[tuple[str, dict[str, str]]]:
    """The URI of a store in a fresh bucket, and the storage options that reach it."""
    with running() as server:
        yield f"s3://{BUCKET}/store", server.options


def test_a_message_s_way(spark: SparkSession, bucket: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """Q1, Q5, Q6, Q7, Q8 on an object store."""
    store, storage = bucket
    with pytest.raises(partq.NotAStoreError):
        partq.list_queues(store, storage_options=storage)
    partq.create_queue(store, "orders", "id bigint, k string", key="k", partitions=3, storage_options=storage)
    with pytest.raises(partq.QueueAlreadyExistsError):
        partq.create_queue(store, "orders", "id bigint, k string", key="k", partitions=3, storage_options=storage)
    df = spark.range(90).selectExpr("id", "concat('k', id % 10) as k")
    for added in (90, 0):
        assert added == partq.append(df, store, "orders", sink_id="s", batch_id=0, storage_options=storage)
    options = {f"storageOptions.{name}": value for name, value in storage.items()}
    batch = spark.read.format("partq").option("path", store).option("queue", "orders").options(**options).load()
    assert sorted(row.id for row in batch.select("id").collect()) == list(range(90))

    batches = consume(store, tmp_path / "checkpoint", queue="orders", group="billing", maxRowsPerTrigger=40, **options)
    assert [len(rows) for rows in batches] == [40, 40, 10]
    assert sorted(row.id for row in flat(batches)) == list(range(90))
    (report,) = partq.maintain(store, storage_options=storage)
    assert report.removed_messages == 90
    assert partq.describe_queue(store, "orders", storage_options=storage).depth == 0
    partq.delete_queue(store, "orders", storage_options=storage)


def test_a_bucket_that_is_not_there(bucket: tuple[str, dict[str, str]]) -> None:
    """An unreachable store is one clear error, not a traceback of a client library."""
    with pytest.raises(partq.PartqError, match="STORE_UNAVAILABLE"):
        partq.list_queues("s3://elsewhere/store", storage_options=bucket[1])
