"""Messages that say themselves how long they live."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures.consume import lifetimes
from spark_partq.storage.store import Store
from tests.helpers import new_file, opened, position
from tests.planners import Query

# A message's lifetime in ms; its place is its value. After a minute those at 1, 2, 4 and 6 are too old.
MIXED = (None, 1_000, 59_000, 120_000, 0, None, -5)
_MINUTE_S = 60

Later = Callable[[float], None]


def make(store: str, lifetimes_ms: Sequence[int | None] = MIXED, **settings: Any) -> None:
    settings = {"message_ttl_column": "ttl", **settings}
    partq.create_queue(store, "q", "v bigint, ttl int", key="v", partitions=1, rebalance_delay_ms=0, **settings)
    put(store, 0, lifetimes_ms)


def put(store: str, first: int, lifetimes_ms: Sequence[int | None]) -> None:
    values = pa.array(range(first, first + len(lifetimes_ms)), pa.int64())
    file = new_file(store, "q", 0, {"v": values, "ttl": pa.array(lifetimes_ms, pa.int32())})
    opened(store).table(0).append([file], None)


@pytest.fixture(name="later")
def _later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """later(s): it is so many seconds later than it is."""
    return clock(monkeypatch)


def clock(monkeypatch: pytest.MonkeyPatch) -> Later:
    now_ms = Store.now_ms
    return lambda seconds: monkeypatch.setattr(Store, "now_ms", lambda store: now_ms(store) + int(1000 * seconds))


def all_of(query: Query) -> list[tuple[int, int]]:
    """The micro-batches of the partition until there is nothing to do."""
    found = []
    while batch := query.next():
        found.append(batch[0])
    query.planner.leave()
    return found


def skipped(store: str) -> list[tuple[int, int, str]]:
    rows = [row for row in open_group(Store(store), "g").history() if row["kind"] == "Skipped"]
    return [(row["offset"], row["delivered"], json.loads(row["body"])["why"]) for row in rows]


@pytest.mark.parametrize("kept", ["discard", "dead_letter"])
def test_each_message_lives_as_long_as_it_says(store: str, kept: str, later: Later) -> None:
    make(store, expired_messages=kept, dead_letter_queue="dead" if kept == "dead_letter" else None)
    later(_MINUTE_S)
    assert all_of(Query(store, "a")) == [(0, 1), (3, 4), (5, 6)]
    assert skipped(store) == [(1, 3, "expired"), (4, 5, "expired"), (6, 7, "expired")]
    assert position(store, "g", 0) == len(MIXED)
    if kept == "dead_letter":
        assert [m.payload["v"] for m in partq.dead_letters(store, "q")] == [1, 2, 4, 6]


def test_in_time_all_of_it_comes_at_once(store: str) -> None:
    make(store, [None, 30_000, 60_000])
    assert all_of(Query(store, "a")) == [(0, 3)] and skipped(store) == []


def test_the_shorter_time_counts(store: str, later: Later) -> None:
    """A queue may have a time for all; a message may only shorten it."""
    make(store, [None, 1_000, 59_000, 120_000], message_ttl_ms=30_000)
    query = Query(store, "a")
    later(2)
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    later(31)
    assert query.next() == {} and skipped(store) == [(1, 4, "expired")]
    query.planner.leave()


def test_what_was_in_time_when_it_was_looked_at_can_be_late_when_it_is_next(store: str, later: Later) -> None:
    make(store, [20_000] * 5)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=2)) == {0: (0, 2)}
    later(21)
    put(store, 5, [None])
    assert all_of(query) == [(5, 6)] and skipped(store) == [(2, 5, "expired")]


def test_no_message_is_read_twice_and_few_at_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, [None] * 10)
    read: list[tuple[int, int]] = []
    slices = lifetimes.slices

    def noted(queue: str, partition: int, index: Any, start: int, end: int) -> Any:
        read.append((start, end))
        return slices(queue, partition, index, start, end)

    monkeypatch.setattr(lifetimes, "slices", noted)
    monkeypatch.setattr(lifetimes, "MOST_ROWS", 4)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    assert all_of(query) == [(1, 5), (5, 9), (9, 10)]
    looked_at = [offset for start, end in read for offset in range(start, end)]
    assert looked_at == list(range(10))


def test_the_setting_is_changed_while_a_query_runs(store: str, later: Later) -> None:
    make(store)
    query = Query(store, "a")
    later(_MINUTE_S)
    assert query.next() == {0: (0, 1)}
    partq.alter_queue(store, "q", reset=["message_ttl_column"])
    assert query.next() == {0: (1, 7)}
    partq.alter_queue(store, "q", message_ttl_column="ttl")
    put(store, 7, [-1, None])
    assert all_of(query) == [(8, 9)] and skipped(store) == [(7, 8, "expired")]


def test_a_column_that_cannot_say_it(store: str) -> None:
    """Nothing is made or changed, and the error names the columns that can."""
    for column, told in (("when", "is not there"), ("k", "is of type string"), ("_offset", "is not there")):
        with pytest.raises(
            InvalidArgumentError, match=rf"message_ttl_column='{column}': the column {told}; .*\(n, t\)"
        ):
            partq.create_queue(
                store, "q", "k string, n bigint, t tinyint", "k", message_ttl_column=column, dead_letter_queue="d"
            )
    partq.create_queue(store, "q", "k string, n bigint, t tinyint", "k", message_ttl_column="t")
    with pytest.raises(InvalidArgumentError, match="is of type string"):
        partq.alter_queue(store, "q", message_ttl_column="k", dead_letter_queue="d")
    assert partq.list_queues(store) == ["q"] and opened(store).state.settings.message_ttl_column == "t"
