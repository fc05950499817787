"""The examples of docs/rebalance.md run as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_partq as partq
from tests.helpers import ROOT, eventually, position

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("stopped_queries")]

PAGE = (ROOT / "docs" / "rebalance.md").read_text()
COLUMNS = "order_id string, customer string, amount double, is_last boolean"

# What the page leaves to the reader: `write` runs on executors, so it is pickled whole.
WRITE = """
def write(rows, gained):
    import json, pathlib, uuid
    found = [row._offset for row in rows]
    pathlib.Path(FOLDER, uuid.uuid4().hex).write_text(json.dumps([found, sorted(gained)]))
"""


@pytest.fixture
def names(spark: SparkSession, store: str, tmp_path: Path) -> dict[str, Any]:
    """What the page's programs know: the names in it, and a queue of 2 partitions with 20 messages."""
    partq.create_queue(store, "orders", COLUMNS, key="order_id", partitions=2, rebalance_delay_ms=0)
    send(spark, store, 0, 20)
    (tmp_path / "written").mkdir()
    seen: list[Any] = []
    found = {"partq": partq, "spark": spark, "store": store, "checkpoint": str(tmp_path / "checkpoint"), "seen": seen}
    exec(WRITE.replace("FOLDER", repr(str(tmp_path / "written"))), found)
    return {**found, "bill": lambda batch, _: seen.extend(batch.collect())}


def send(spark: SparkSession, store: str, first: int, end: int) -> None:
    """The messages of each order are two; the second is the last."""
    columns = "concat('o', id div 2) order_id", "'ada' customer", "cast(id as double) amount", "id % 2 = 1 is_last"
    partq.append(spark.range(first, end).coalesce(1).selectExpr(*columns), store, "orders")


def example(number: int, names: dict[str, Any]) -> None:
    block = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number]
    exec(compile(block, "rebalance.md", "exec"), names)


def test_all_are_run() -> None:
    assert len(re.findall(r"```python\n", PAGE)) == 6
    assert len(re.findall(r"```sql\n", PAGE)) == 1


def test_a_query_with_a_listener(
    spark: SparkSession, names: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """H6: the first example reads everything; the listener hears of a second member; the history tells what happened."""
    store, seen = names["store"], names["seen"]
    example(1, names)
    example(0, names)
    eventually(lambda: len(seen) == 20, "all messages")
    names["checkpoint"] = str(tmp_path / "second")
    first = names["query"]
    example(0, names)
    eventually(lambda: len(partq.describe_group(store, "billing").members) == 2, "two members")
    partq.scale(store, "orders", 3)
    send(spark, store, 20, 40)
    eventually(lambda: len({(row._partition, row._offset) for row in seen}) == 40, "messages after the resize")
    for query in (first, names["query"]):
        query.stop()
    said: list[str] = []

    def says(what: str) -> bool:
        said.append(capsys.readouterr().out)
        return what in "".join(said)

    assert says("now mine [('orders', 0), ('orders', 1)]") and says("is active")
    eventually(lambda: says("given up, all acknowledged [("), "what a query that is stopped says of its partitions")
    example(5, names)
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    sql = sql.replace("delta.`store/", f"delta.`{store}/").replace("`partition` = 6", "`partition` = 2")
    kinds = [row.kind for row in spark.sql(sql).collect()]
    assert "Granted" in kinds


def test_what_flows_gained(names: dict[str, Any], tmp_path: Path) -> None:
    """H6: the function knows on the executors what its flows gained with the first micro-batch."""
    example(2, names)
    example(0, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    found = [json.loads(path.read_text()) for path in (tmp_path / "written").iterdir()]
    assert sum(len(offsets) for offsets, _ in found) == 20
    assert [["orders", 0], ["orders", 1]] in [gained for _, gained in found]


def test_a_stateful_operator(spark: SparkSession, names: dict[str, Any]) -> None:
    names["queue"] = spark.readStream.format("partq").option("path", names["store"]).option("queue", "orders")
    example(3, names)
    (query,) = spark.streams.active
    query.processAllAvailable()
    assert query.exception() is None
    assert partq.describe_group(names["store"], "totals").lag == 0


def test_sequences_that_are_acknowledged_when_they_are_whole(
    spark: SparkSession, names: dict[str, Any], tmp_path: Path
) -> None:
    """H5: an order that is not whole keeps its partition's position at its first message, also for a query that comes later."""
    store = names["store"]
    send(spark, store, 20, 21)  # its last message is not there yet
    example(4, names)

    def ship(name: str) -> None:
        rows = spark.readStream.format("partq").option("path", store).option("queue", "orders").option("ack", "manual")
        query = rows.option("group", "shipping").load().writeStream.foreachBatch(names["ship"])
        query = query.option("checkpointLocation", str(tmp_path / name)).start()
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None

    ship("one")
    assert partq.describe_group(store, "shipping").lag == 1
    send(spark, store, 21, 22)
    names["started"].clear()  # as in another application, which is given the order from its beginning
    ship("two")
    assert partq.describe_group(store, "shipping").lag == 0
    assert sum(position(store, "shipping", number, "orders") or 0 for number in range(2)) == 22
