"""Consumers and retention over files that are put together."""

from __future__ import annotations

import time

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.store import Store
from tests.helpers import opened, position
from tests.planners import Query
from tests.storage.procedures.test_added_columns import make
from tests.storage.procedures.test_make_segments import HOUR, Row, ago, commit, fill, merged, read, rows_of


@pytest.fixture
def old(store: str) -> str:
    fill(store)
    return store


def given_to(query: Query) -> list[Row]:
    """Places, keys and times of the micro-batch that was planned last, as its tasks read them."""
    queue = opened(query.store)
    tasks = query.planner.tasks(query.started, query.done)
    return [row for pieces in tasks for piece in pieces for row in rows_of(queue, piece.slice)]


def test_a_consumer_goes_on_in_the_midst(old: str) -> None:
    """What it has begun it reads to its end, and what it begins again are the same rows."""
    wanted, query = read(old), Query(old, "a")
    assert query.next(Limits(max_rows=8)) == {0: (0, 8)}
    began = query.planner.tasks(query.started, query.done)
    merged(old)
    schema = arrow_schema(opened(old).state.schema)
    rows = [
        key
        for pieces in began
        for piece in pieces
        for _, batch in read_slice(Store(old), piece.slice, schema)
        for key in batch["k"].to_pylist()
    ]
    assert rows == [row[2] for row in wanted[:8]]
    query.planner.leave()
    again = Query(old, "a")
    again.next(Limits(max_rows=8))
    found = given_to(again)
    while again.next(Limits(max_rows=5)):
        found += given_to(again)
    assert sorted(set(found)) == wanted and position(old, "g", 0) == len(wanted)


def test_a_segment_is_removed_as_a_whole(old: str) -> None:
    query, wanted = Query(old, "a"), read(old)
    query.next(Limits(max_rows=8))
    query.next(Limits(max_rows=1))  # the first eight are acknowledged
    assert merged(old) > 0
    removed: list[int] = []
    while query.next():
        removed.append(partq.maintain(old, "q")[0].removed_messages)
    removed.append(partq.maintain(old, "q")[0].removed_messages)
    table = opened(old).partitions[0]
    assert table.first_offset == table.next_offset == len(wanted)
    query.planner.leave()


def test_retention_waits_for_the_last_message(store: str) -> None:
    make(store, partitions=1)
    for n in range(4):
        commit(store, "a", ago(5) + n * 300_000_000)
    assert merged(store) == 3
    middle_ms = int(time.time() * 1000) - (ago(5) + 450_000_000) // 1000
    partq.alter_queue(store, "q", retention_ms=middle_ms)
    assert partq.maintain(store, "q")[0].removed_messages == 0
    partq.alter_queue(store, "q", retention_ms=HOUR)
    assert partq.maintain(store, "q")[0].removed_messages == 4


def test_messages_of_a_segment_that_are_too_old(store: str) -> None:
    """A lifetime counts for each message, not for its file."""
    make(store, partitions=1)
    for n in range(4):
        commit(store, "a", ago(5) + n * 300_000_000)
    assert merged(store) == 3
    middle_us = ago(5) + 450_000_000
    partq.alter_queue(store, "q", message_ttl_ms=int(time.time() * 1000) - middle_us // 1000)
    query, found = Query(store, "a"), list[Row]()
    while query.next():
        found += given_to(query)
    query.planner.leave()
    assert [row[1] for row in found] == [2, 3] and position(store, "g", 0) == 4
