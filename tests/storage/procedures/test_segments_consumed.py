"""Consumers and retention over files that are put together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.inspect.watch import StoreWatch
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.slices import slices
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


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The files of messages that are opened meanwhile."""
    found, open_input = list[str](), DiskFiles.open_input

    def counted(files: DiskFiles, path: str) -> Any:
        found.extend([path] if "/part-" in path else [])
        return open_input(files, path)

    with mock.patch.object(DiskFiles, "open_input", counted):
        yield found


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
    query.leave()
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
    query.leave()


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
    query.leave()
    assert [row[1] for row in found] == [2, 3] and position(store, "g", 0) == 4


def test_a_lifetime_does_not_open_what_was_read(store: str) -> None:
    """The plans of new messages look at no segment behind them, though some of its messages are too old by now, and others are not."""
    make(store, partitions=1)
    for n in range(4):
        commit(store, "a", ago(5) + n * 300_000_000)
    query = Query(store, "a")
    assert query.next() and merged(store) == 3
    partq.alter_queue(store, "q", message_ttl_ms=int(time.time() * 1000) - (ago(5) + 450_000_000) // 1000)
    with opened_files() as files:
        for n in range(3):
            commit(store, "b", ago(0) + n)
            assert query.next() == {0: (4 + n, 5 + n)}
    query.leave()
    assert files == []


def test_a_watch_reads_the_times_of_a_segment_once(old: str) -> None:
    query = Query(old, "a")
    assert query.next() and merged(old)
    watch = StoreWatch(Store(old))
    with opened_files() as files:
        ages = [watch.look().queues[0].oldest_s[0] for _ in range(3)]
    assert len(files) == 1 and ages == sorted(ages) and ages[0] > 3_000
    query.leave()


def test_a_watch_tells_the_rest_of_a_damaged_segment(old: str) -> None:
    """The queue cannot be told, and why; other queues and the groups are."""
    query = Query(old, "a")
    assert query.next() and merged(old)
    partq.create_queue(old, "other", "v bigint")
    (table,) = opened(old).partitions
    Path(old, table.folder, table.index.path(0)).write_bytes(b"x")
    sample = StoreWatch(Store(old)).look()
    assert [(key, error.error_class) for key, error in sample.failed.items()] == [(("queue", "q"), "CORRUPT_TABLE")]
    assert [queue.name for queue in sample.queues] == ["other"]
    assert [group.description.group for group in sample.groups] == ["g"]
    query.leave()


@pytest.mark.parametrize("deleted", [0, 1])
def test_a_part_of_a_segment_is_read_as_far_as_it_goes(store: str, deleted: int) -> None:
    """Also without one of its messages: micro-batches of it read none behind them, but to the end of a batch."""
    make(store, partitions=1)
    for n in range(2):
        commit(store, ("x" if n == 0 else "a") + "b" * 99_999, ago(3) + n)
    assert merged(store) == 1
    if deleted:
        assert partq.delete_messages(store, "q", {"k": "x"}) == 1
    (table,), decoded = opened(store).partitions, list[int]()
    iter_batches = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, *about: Any, **more: Any) -> Iterator[Any]:
        for batch in iter_batches(file, *about, **more):
            decoded.append(batch.num_rows)
            yield batch

    with mock.patch.object(pq.ParquetFile, "iter_batches", counted):
        for start, end in itertools.pairwise([0, 1_000, 2_000, 100_000]):
            decoded.clear()
            (part,) = slices(opened(store).state, 0, table.index, start, end)
            assert len(rows_of(opened(store), part)) == end - start - (deleted if start == 0 else 0)
            assert sum(decoded) <= end + 65_536
