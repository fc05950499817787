"""The queue that the tests of the readers read."""

from __future__ import annotations

import datetime as dt

import spark_partq as partq
from tests.helpers import put

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
