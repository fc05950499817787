"""What is left of a group's acknowledgements when some are forgotten."""

from __future__ import annotations

import datetime as dt

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.store import Store
from tests.helpers import eventually

HERE, THERE = ("id", 0), ("id", 1)


def test_heartbeats_are_not_forgotten(store: str) -> None:
    """S7: only positions in messages that a replica lacks. When a member was last heard of does not change."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    table, other = (AckTable(Store.at(store), "g", 0) for _ in range(2))
    table.append([AckRow("a", 3, *HERE, 1, 9, 9), AckRow("a", 3, *THERE, 1, 7, 7)], {"a"})
    heard_at = table.heard_at()
    eventually(lambda: dt.datetime.now(dt.UTC) > heard_at["a"], "a later moment", every_s=0.001)
    table.forget({HERE}, lambda: None)
    for reader in (table, other):
        reader.refresh()
        assert [reader.acks.offset(place, 1, "a") for place in (HERE, THERE)] == [0, 7]
        assert (reader.acks.beats, reader.heard_at()) == ({"a": 3}, heard_at)
