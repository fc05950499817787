"""The queue that the tests of the readers read, and the messages that those of the sink write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from tests.helpers import put

ORDERS = "k string, n bigint"
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def make_queue(store: str, *, minutes_apart: bool = False) -> str:
    """A store with queue `q` of 3 partitions: 20, 10 and 0 messages in files of 5. Who comes back waits for no rebalance delay.

    Parameters
    ----------
    minutes_apart : bool
        The files of a partition came a minute apart, from noon on; else now.
    """
    partq.create_queue(store, "q", "v bigint", partitions=3, rebalance_delay_ms=0)
    for partition, files in ((0, 4), (1, 2)):
        for n in range(files):
            at = NOON + dt.timedelta(minutes=n) if minutes_apart else None
            put(store, partition, range(n * 5, n * 5 + 5), at=at)
    return store


def everything() -> list[tuple[int, int]]:
    """(partition, offset) of each of its messages."""
    return [(0, i) for i in range(20)] + [(1, i) for i in range(10)]


def orders(spark: SparkSession, first: int, count: int, keys: int = 40, files: int = 2) -> DataFrame:
    """Messages whose `n` rises, of many keys and some without one."""
    return spark.range(first, first + count, 1, files).selectExpr(
        f"if(id % 7 = 3, null, concat('k', id % {keys})) k", "id n"
    )


def numbers(rows: Iterable[Row]) -> list[int]:
    return sorted(r.n for r in rows)
