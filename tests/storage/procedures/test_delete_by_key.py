"""Which messages a key names when they are deleted."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.produce import Producer
from tests.helpers import opened

NOON = dt.datetime(2024, 1, 1, 12)


def made(store: str, type_: str, *keys: Any) -> None:
    partq.create_queue(store, "q", f"k {type_}, v bigint", key="k", partitions=2)
    queue = opened(store)
    rows = pa.RecordBatch.from_pylist([{"k": k, "v": v} for v, k in enumerate(keys)], arrow_schema(queue.state.schema))
    Producer(queue).write(BatchRecord("s", 0), lambda: write_rows(queue, [(0, rows)]), lambda: rows.num_rows)


@pytest.mark.parametrize(
    ("type_", "stored", "given"),
    [
        ("timestamp", NOON.replace(tzinfo=dt.UTC), NOON),
        ("timestamp_ntz", NOON, NOON.replace(tzinfo=dt.UTC)),
        ("struct<t: timestamp>", {"t": NOON.replace(tzinfo=dt.UTC)}, {"t": NOON}),
        ("array<timestamp>", [NOON.replace(tzinfo=dt.UTC)], [NOON]),
    ],
)
def test_a_moment_needs_its_zone(store: str, type_: str, stored: Any, given: Any) -> None:
    """Spark shows moments without one, in that of its session: they would be those of other messages."""
    made(store, type_, stored)
    with pytest.raises(partq.InvalidArgumentError, match="with its time zone"):
        partq.delete_messages(store, "q", {"k": given})
    assert partq.delete_messages(store, "q", {"k": stored}) == 1


def test_both_zeros_are_one_key(store: str) -> None:
    """As for the hash that places them, also in a struct."""
    made(store, "struct<x: double>", {"x": -0.0}, {"x": 0.0}, {"x": 1.0})
    assert partq.delete_messages(store, "q", {"k": {"x": 0.0}}) == 2
