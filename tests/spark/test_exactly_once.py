"""The examples of docs/exactly-once.md, across a crash after the commit, a lost checkpoint, a resize and a handoff."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from delta.exceptions.captured import ConcurrentAppendException
from delta.tables import DeltaMergeBuilder
from deltalake import DeltaTable
from pgserver import PostgresServer, get_server
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq
from spark_partq.spark.sink import QueueSink
from tests.helpers import eventually

pytestmark = pytest.mark.usefixtures("stopped_queries")

PAGE = Path(__file__).parents[2] / "docs" / "exactly-once.md"
TOTALS = "customer STRING, queue_id STRING, number INT, total DOUBLE, next BIGINT"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    server = get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
    yield server
    server.cleanup()


class Orders:
    """Messages, some without a customer, and what their results must be."""

    def __init__(self, spark: SparkSession, store: str) -> None:
        self._spark, self._store, self.count = spark, store, 0

    def send(self, count: int) -> None:
        columns = (
            "concat('o', id) order_id",
            "'c' || nullif(id % 7, 6) customer",
            "cast(id as double) amount",
        )
        rows = self._spark.range(self.count, self.count + count).selectExpr(*columns)
        partq.append(rows, self._store, "orders")
        self.count += count

    @property
    def ids(self) -> list[str]:
        return sorted(f"o{i}" for i in range(self.count))

    @property
    def totals(self) -> dict[str | None, float]:
        return {f"c{c}" if c < 6 else None: float(sum(range(c, self.count, 7))) for c in range(7)}


def examples(spark: SparkSession, store: str, tmp_path: Path, uri: str) -> dict[str, Any]:
    """What the page's programs define; the queries of the first two are `into_table` and `into_queue`, which start them."""
    names: dict[str, Any] = {"spark": spark, "connect": lambda: psycopg.connect(uri)}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 4
    # The table, not the queue of that name.
    placed = [
        re.sub(r'"(billed|totals|checkpoints/\w+)"(?!, exactly)', lambda m: repr(str(tmp_path / m[1])), b)
        for b in blocks
    ]
    table, into, *others = [block.replace('"store"', repr(store)) for block in placed]
    for name, block in (("into_table", table), ("into_queue", into)):
        code = compile(block, str(PAGE), "exec")
        names[name] = lambda code=code: exec(code, names)
    for block in others:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def dying(call: Any) -> Any:
    """A sink whose driver dies after it has written."""

    def write(sink: QueueSink, batch: DataFrame, batch_id: int) -> None:
        call(sink, batch, batch_id)
        raise InterruptedError("the driver is gone")

    return write


@pytest.fixture
def conflicts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The first two merges lose against another application, with the error that delta-spark then raises."""
    lost: list[bool] = []
    execute = DeltaMergeBuilder.execute

    def merge(builder: DeltaMergeBuilder) -> Any:
        if len(lost) < 2:
            lost.append(True)
            raise ConcurrentAppendException(desc="another application was faster", stackTrace="")
        return execute(builder)

    monkeypatch.setattr(DeltaMergeBuilder, "execute", merge)
    return lost


@pytest.mark.long
def test_examples(
    spark: SparkSession, store: str, tmp_path: Path, database: PostgresServer, conflicts: list[bool]
) -> None:
    partq.create_queue(
        store,
        "orders",
        "order_id string, customer string, amount double",
        key="customer",
        partitions=3,
        rebalance_delay_ms=0,
    )
    orders = Orders(spark, store)
    orders.send(30)
    queue = spark.readStream.format("partq").option("path", store).option("queue", "orders")
    partq.create_queue(store, "billed", "order_id string, customer string, amount double", key="customer", partitions=2)
    names = examples(spark, store, tmp_path, database.get_uri())

    def run(example: str) -> None:
        names[example]()
        (query,) = spark.streams.active
        query.processAllAvailable()
        query.stop()

    def in_queue() -> list[str]:
        read = spark.read.format("partq").option("path", store).option("queue", "billed").load()
        return sorted(row.order_id for row in read.select("order_id").collect())

    run("into_table")
    billed = DeltaTable(str(tmp_path / "billed")).to_pyarrow_table()
    assert sorted(billed.column("order_id").to_pylist()) == sorted(set(orders.ids) - {"o0"})  # its amount is 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueSink, "__call__", dying(QueueSink.__call__))
        with pytest.raises(StreamingQueryException, match="the driver is gone"):
            run("into_queue")
    for query in spark.streams.active:
        query.stop()
    assert in_queue() == sorted(set(orders.ids) - {"o0"})

    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'totals'}` ({TOTALS}) USING delta")
    with psycopg.connect(database.get_uri()) as db:
        db.execute(names["SCHEMA"])
    crashes = iter([True])

    def both(batch: DataFrame, batch_id: int) -> None:
        names["bill"](batch, batch_id)
        names["add_up"](batch, batch_id)
        if next(crashes, False):
            raise InterruptedError("the driver is gone")

    def started(instance: str, checkpoint: str, group: str = "totals") -> Any:
        rows = queue.option("group", group).option("instanceId", instance).load()
        return rows.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / checkpoint)).start()

    def counted() -> int:
        with psycopg.connect(database.get_uri()) as db:
            (count,) = db.execute("select count(*) from bills").fetchone() or (0,)
        return int(count)

    def in_result(what: str) -> None:
        eventually(lambda: counted() >= orders.count, what)

    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        started("a", "a").awaitTermination()
    partq.scale(store, "orders", 5)
    orders.send(30)
    a = started("a", "fresh")
    in_result("what the first query reads again, and what came after the resize")
    b = started("b", "b")
    eventually(lambda: len(partq.describe_group(store, "totals").members) == 2, "a second member")
    orders.send(40)
    in_result("what both read")
    a.stop()
    orders.send(20)
    in_result("what the second reads")
    b.processAllAvailable()
    b.stop()

    with psycopg.connect(database.get_uri()) as db:
        assert sorted(row[0] for row in db.execute("select order_id from bills")) == orders.ids
    totals = (
        spark.read.format("delta")
        .load(str(tmp_path / "totals"))
        .groupBy("customer")
        .agg(sf.sum("total").alias("total"))
    )
    assert {row.customer: row.total for row in totals.collect()} == orders.totals
    assert len(conflicts) == 2

    shutil.rmtree(tmp_path / "checkpoints")  # what comes again is given in other micro-batches
    partq.scale(store, "billed", 3)
    run("into_queue")
    assert in_queue() == sorted(set(orders.ids) - {"o0"})
