"""A batch whose rows are others each time that it is computed: it is in as it was first written (Q5, S5)."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from spark_partq.storage.queue.manifests import Manifests
from tests.helpers import assert_dense, driver, finished, opened, read

SCHEMA = "id bigint, event_id string"

# Writes batch 0, and is killed when it has committed one partition of four.
PROGRAM = """
import os, signal, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
import spark_partq as partq
from spark_partq.storage.queue.partition_table import PartitionTable

append = PartitionTable.append

def killed(self, *args):
    if self.partition == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return append(self, *args)

PartitionTable.append = killed
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.range(40).withColumn("event_id", sf.expr("uuid()"))
partq.append(df, sys.argv[1], "q", sink_id="s", batch_id=0)
"""


def batch(spark: SparkSession, rows: int = 40) -> DataFrame:
    return spark.range(rows).selectExpr("id", "uuid() event_id")


def first_attempt(store: str) -> set[tuple[int, str]]:
    """The rows that the first manifest names."""
    queue = opened(store)
    folder = Manifests(queue.store, "q", queue.state.queue_id)
    files = folder.read(min(folder.names())).files
    paths = [Path(store) / f"queues/q/partitions/partition={file.partition}/{file.path}" for file in files]
    return {(row["id"], row["event_id"]) for path in paths for row in pq.ParquetFile(path).read().to_pylist()}


@pytest.mark.parametrize(
    "partitions", [pytest.param(4, id="same map", marks=pytest.mark.long), pytest.param(3, id="next map")]
)
def test_a_replay_of_other_rows(spark: SparkSession, store: str, partitions: int) -> None:
    """Q5, S5: the driver is killed between two commits; the replay adds the rest of what it had written, and nothing that it computes."""
    partq.create_queue(store, "q", SCHEMA, partitions=4)
    finished(driver(PROGRAM, store), -signal.SIGKILL)
    written = first_attempt(store)
    before = {(row.id, row.event_id) for row in read(spark, store).collect()}
    assert 0 < len(before) < len(written) == 40 and before < written
    if partitions != 4:
        partq.scale(store, "q", partitions)
    assert partq.append(batch(spark, 50), store, "q", sink_id="s", batch_id=0) == 40 - len(before)
    assert partq.append(batch(spark), store, "q", sink_id="s", batch_id=0) == 0
    rows = read(spark, store).collect()
    assert sorted((row.id, row.event_id) for row in rows) == sorted(written)
    assert_dense(rows)
    assert partq.append(batch(spark, 10), store, "q", sink_id="s", batch_id=1) == 10
