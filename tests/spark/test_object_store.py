"""A store in an S3 bucket instead of a folder: the whole way of a message, against a server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.s3server import BUCKET, running


@pytest.fixture
def bucket() -> Iterator[tuple[str, dict[str, str]]]:
    """The URI of a store in a fresh bucket, and the storage options that reach it."""
    with running() as server:
        yield f"s3://{BUCKET}/store", server.options


def test_a_message_s_way(spark: SparkSession, bucket: tuple[str, dict[str, str]], tmp_path: object) -> None:
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

    seen: list[int] = []

    def collect(rows: DataFrame, batch_id: int) -> None:
        seen.extend(row.id for row in rows.select("id").collect())

    stream = spark.readStream.format("partq").option("path", store).option("queue", "orders").options(**options)
    query = (
        stream.option("group", "billing")
        .option("maxRowsPerTrigger", 40)
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == list(range(90))
    (report,) = partq.maintain(store, storage_options=storage)
    assert report.removed_messages == 90
    assert partq.describe_queue(store, "orders", storage_options=storage).depth == 0
    partq.delete_queue(store, "orders", storage_options=storage)


def test_a_bucket_that_is_not_there(bucket: tuple[str, dict[str, str]]) -> None:
    """An unreachable store is one clear error, not a traceback of a client library."""
    with pytest.raises(partq.PartqError, match="STORE_UNAVAILABLE"):
        partq.list_queues("s3://elsewhere/store", storage_options=bucket[1])
