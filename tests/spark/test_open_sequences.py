"""Applications that acknowledge at the end of a sequence, while the partition count changes under open sequences (H5, S5).

The application is that of docs/rebalance.md, 'Acknowledging by hand'. What it remembers lies in one place for all of its queries, as in a
database that several applications share.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_partq as partq
from spark_partq.core.queue.partition_map import target
from tests import queries
from tests.helpers import eventually, stream
from tests.scaled import Message, Sink, hash_of

ORDERS = [f"order{n}" for n in range(12)]
FIRST, LAST = 0, 9
Place = tuple[str, int]
Running = StreamingQuery | queries.Query


class Shop:
    """Ships an order when its last message has come, and acknowledges what lies before the orders that are open."""

    def __init__(self, store: str) -> None:
        self.store, self._lock = store, threading.Lock()
        self.open: dict[str, tuple[Place, int]] = {}  # where its first message lies
        self.read: dict[Place, int] = {}
        self.given: list[Message] = []

    def take(self, rows: list[Row]) -> None:
        with self._lock:
            for row in rows:
                place = row._queue, row._partition
                self.given.append((row.k, row.v))
                self.open.setdefault(row.k, (place, row._offset))
                self.read[place] = row._offset + 1
                if row.v == LAST:
                    del self.open[row.k]
            first = {place: [at for where, at in self.open.values() if where == place] for place in self.read}
            partq.acknowledge(self.store, "g", {p: min(first[p], default=end) for p, end in self.read.items()})


@pytest.fixture(params=["plain", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> SparkSession | None:
    """A session, or None for queries without a JVM; the queries are stopped afterwards."""
    request.getfixturevalue("stopped_queries" if request.param == "spark" else "ended_queries")
    return request.getfixturevalue("spark") if request.param == "spark" else None


def start(engine: SparkSession | None, shop: Shop, folder: Path, instance: str, **options: object) -> Running:
    """A query of group `g` that acknowledges by hand."""
    given = {"group": "g", "instanceId": instance, "ack": "manual", **options}
    if engine is None:
        return queries.Query(shop.store, folder / instance, lambda batch, _: shop.take(batch.collect()), **given)
    return (
        stream(engine, shop.store, **given)
        .writeStream.foreachBatch(lambda df, _: shop.take(df.collect()))
        .option("checkpointLocation", str(folder / instance))
        .start()
    )


def join(engine: SparkSession | None, shop: Shop, folder: Path, instance: str, **options: object) -> None:
    """Start a query and wait until it is a member; again, as a supervisor does, if its planner missed the time that Spark gives it."""
    for _ in range(3):
        query = start(engine, shop, folder, instance, **options)
        eventually(lambda: instance in _members(shop.store) or not query.isActive, "the start of a query")  # noqa: B023
        if instance in _members(shop.store):
            return
    raise AssertionError(f"{instance} does not start: {query.exception()}")


def resize_under_open_orders(shop: Shop, partitions: int) -> None:
    """Write the first messages of all orders, wait until they are given, change the count, and write the last ones."""
    sink = Sink(shop.store)
    sink.write(0, [(order, FIRST) for order in ORDERS])
    eventually(lambda: len(shop.given) == len(ORDERS), "the first messages")
    partq.scale(shop.store, "q", partitions)
    sink.write(1, [(order, LAST) for order in ORDERS])


def is_all_acknowledged(store: str) -> bool:
    found = partq.describe_group(store, "g")
    return found.lag == 0 and not any(p.waits_for for p in found.partitions)


def assert_each_order_in_order(shop: Shop) -> None:
    assert sorted(shop.given) == sorted((order, v) for order in ORDERS for v in (FIRST, LAST))
    assert all(shop.given.index((order, FIRST)) < shop.given.index((order, LAST)) for order in ORDERS)
    assert shop.open == {}


def test_one_query(engine: SparkSession | None, store: str, tmp_path: Path) -> None:
    """The ends lie above the cuts: they are given at once to the query that was given the beginnings, and not one comes twice."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    shop = Shop(store)
    join(engine, shop, tmp_path, "a", flows=2)
    resize_under_open_orders(shop, 3)
    eventually(lambda: is_all_acknowledged(store), "the end of the orders", 40)
    assert_each_order_in_order(shop)


def test_two_queries(engine: SparkSession | None, store: str, tmp_path: Path) -> None:
    """Orders whose end is another query's: it is given after maxBarrierWaitMs, and until then describe-group says what it waits for."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    shop = Shop(store)
    for instance in "ab":
        join(engine, shop, tmp_path, instance, maxBarrierWaitMs=3_000)
    eventually(lambda: set(_owners(store).values()) == {"a/0", "b/0"}, "a partition for each")
    resize_under_open_orders(shop, 3)
    owners = eventually(
        lambda: len(_owners(store)) == 3 and None not in _owners(store).values() and _owners(store), "3"
    )
    across = [k for k in ORDERS if owners[target(hash_of(k), 2)] != owners[target(hash_of(k), 3)]]
    assert across, "no order goes from one query to the other"
    waits = eventually(lambda: [p for p in partq.describe_group(store, "g").partitions if p.waits_for], "the wait", 20)
    assert all(owners[a] != p.flow for p in waits for a in p.waits_for)
    eventually(lambda: is_all_acknowledged(store), "the end of the orders", 60)
    assert_each_order_in_order(shop)


def _members(store: str) -> set[str]:
    if "g" not in partq.list_groups(store):
        return set()
    return {member.instance for member in partq.describe_group(store, "g").members}


def _owners(store: str) -> dict[int, str | None]:
    return {p.partition: p.flow for p in partq.describe_group(store, "g").partitions}
