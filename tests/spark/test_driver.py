"""The driver's side of queries in a real session: what it opens, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.helpers import driver, finished, put

pytestmark = pytest.mark.usefixtures("stopped_queries")


def listeners(spark: SparkSession) -> int:
    streams: Any = spark.streams
    return len(streams._jsqm.listListeners())


def test_a_session_is_listened_to_once(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """H6: not by a session that only writes, and not again by the session of each micro-batch."""
    session = spark.newSession()
    before = listeners(session)
    partq.create_queue(store, "q", "v bigint", partitions=1)
    for _ in range(2):
        partq.register(session)
    session.read.format("partq").option("path", store).option("queue", "q").load().collect()
    put(store, 0, range(3))
    seen: list[dict[str, partq.FlowChange]] = []

    def note(batch: DataFrame, _: int) -> None:
        batch.collect()
        seen.append(partq.flow_changes(batch.sparkSession, "g"))
        assert listeners(batch.sparkSession) == 0

    source = session.readStream.format("partq").option("path", store).option("queue", "q").option("group", "g")
    messages = source.option("maxRowsPerTrigger", 1).load()
    writer = messages.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(seen) == 3 and [flow.gained for flow in seen[0].values()] == [(("q", 0),)]
    assert all(flow.gained == flow.lost == () for changes in seen[1:] for flow in changes.values())
    assert listeners(session) == before + 1


def test_a_session_that_was_not_registered_is_when_a_listener_comes(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    session = spark.newSession()
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(3))
    told: list[list[tuple[str, int]]] = []

    class Listener(partq.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
            told.append(partitions)

    partq.add_listener(session, "g2", Listener())
    source = session.readStream.format("partq").option("path", store).option("queue", "q").option("group", "g2")
    writer = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert told == [[("q", 0)]]


def test_plans_show_no_storage_options(
    spark: SparkSession, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(3))
    options = {"path": store, "queue": "q", "group": "g3", "storageOptions.azure_storage_sas_key": "HUNTER2XYZ"}
    batch = spark.read.format("partq").options(**options).load()
    batch.explain("extended")
    batch.explain("formatted")
    plans: Any = batch._jdf
    stream = spark.readStream.format("partq").options(**options).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query: Any = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    unread: Any = stream._jdf
    plan = unread.queryExecution().toString()
    assert "azure_storage_sas_key" in plan
    shown = capsys.readouterr().out + plans.queryExecution().toString() + plan + query._jsq.explainInternal(True)
    assert "HUNTER2XYZ" not in shown + str(query.recentProgress) and "partq" in shown
    for path in [*tmp_path.rglob("*")]:
        assert not path.is_file() or b"HUNTER2XYZ" not in path.read_bytes()


PROGRAM = """
import sys
import spark_partq as partq

store, checkpoint = sys.argv[1:]
spark = partq.session("calls", "local[1]")
partq.register(spark)
gateway = spark.sparkContext._gateway

def is_open():
    return getattr(gateway, "_callback_server", None) is not None

partq.create_queue(store, "q", "v bigint", partitions=1)
print(partq.append(spark.range(3).selectExpr("id v"), store, "q"), is_open())
print(spark.read.format("partq").option("path", store).option("queue", "q").load().count(), is_open())
stream = spark.readStream.format("partq").option("path", store).option("queue", "q").load().writeStream
writer = stream.foreachBatch(lambda df, _: print(df.count())).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
print(is_open())
"""


@pytest.mark.long
def test_batches_need_no_server_for_calls_from_the_jvm(store: str, tmp_path: Path) -> None:
    """Spark opens it for `foreachBatch`."""
    out = finished(driver(PROGRAM, store, str(tmp_path / "c")))
    assert out.splitlines() == ["3 False", "3 False", "3", "True"]
