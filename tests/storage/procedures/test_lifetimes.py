"""Messages that say themselves how long they live."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures.consume import lifetimes
from spark_partq.storage.procedures.consume.left_out import LeftOut
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.helpers import new_file, opened, position
from tests.planners import Query

# A message's lifetime in ms; its place is its value. After a minute those at 1, 2, 4 and 6 are too old.
MIXED = (None, 1_000, 59_000, 120_000, 0, None, -5)
_MINUTE_S = 60

Later = Callable[[float], None]


def make(store: str, lifetimes_ms: Sequence[int | None] = MIXED, partitions: int = 1, **settings: Any) -> None:
    settings = {"message_ttl_column": "ttl", "rebalance_delay_ms": 0, **settings}
    partq.create_queue(store, "q", "v bigint, ttl int", key="v", partitions=partitions, **settings)
    if lifetimes_ms:
        put(store, 0, lifetimes_ms)


def put(store: str, first: int, lifetimes_ms: Sequence[int | None], partition: int = 0, ago_s: float = 0) -> None:
    values = pa.array(range(first, first + len(lifetimes_ms)), pa.int64())
    file = new_file(store, "q", partition, {"v": values, "ttl": pa.array(lifetimes_ms, pa.int32())})
    table = opened(store).table(partition)
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(seconds=ago_s) if ago_s else None):
        table.append([file], None)


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
    query.leave()
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
    assert query.next() == {} and skipped(store) == [(1, 4, "expired")]  # a file that is too old as a whole
    query.leave()


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

    def noted(queue: Any, partition: int, index: Any, start: int, end: int) -> Any:
        read.append((start, end))
        return slices(queue, partition, index, start, end)

    monkeypatch.setattr(lifetimes, "slices", noted)
    monkeypatch.setattr(lifetimes, "MOST_ROWS", 4)
    put(store, 10, [None] * 10)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)} and max(end for _, end in read) <= 4
    assert all_of(query) == [(1, 5), (5, 9), (9, 13), (13, 17), (17, 20)]
    looked_at = [offset for start, end in read for offset in range(start, end)]
    assert looked_at == list(range(20))


def test_for_one_message_one_file_is_read(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; and nothing is remembered of partitions that the query does not read any more."""
    make(store, [None], partitions=2)
    for n in range(1, 30):
        put(store, n, [None])
    put(store, 30, [None] * 3, partition=1)
    found = mock.Mock(side_effect=lifetimes.read_timed)
    monkeypatch.setattr(lifetimes, "read_timed", found)
    query = Query(store, "a")
    query.next(Limits(max_rows=1))
    assert found.call_count <= 2  # the first of each partition
    seen = query.planner._left_out._lifetimes
    assert len(seen._known) == 2
    seen.forget_others([])
    assert seen._known == {}
    query.leave()


def test_a_search_does_not_go_past_its_end(store: str, later: Later) -> None:
    """Also if the lifetimes of later messages are known."""
    make(store, [1_000] * 5 + [None])
    later(_MINUTE_S)
    queue, seen, now_us = opened(store), lifetimes.Lifetimes(), 1000 * Store(store).now_ms()
    table = queue.table(0)
    assert seen.first_old(queue, table, 1, 6, now_us) == 1
    assert [seen.old_end(queue, table, 1, end, now_us) for end in (4, 6)] == [4, 5]


def test_messages_that_retention_removed_are_in_nobodys_way(store: str) -> None:
    """Q8: what is too old behind them is left out as ever, and later messages come."""
    make(store, [], retention_ms=3_600_000)
    query = Query(store, "a", fail_on_data_loss=False)
    assert query.next() == {}
    put(store, 0, [None] * 5, ago_s=7_200)
    put(store, 5, [1_000] * 5, ago_s=1_800)
    partq.maintain(store)
    put(store, 10, [None] * 5)
    assert all_of(query) == [(10, 15)] and skipped(store) == [(5, 10, "expired")]


@pytest.mark.parametrize("column", ["ttl", None])
def test_what_becomes_too_old_between_micro_batches_is_not_delivered(
    store: str, column: str | None, later: Later
) -> None:
    """Also while the last micro-batch is not acknowledged yet."""
    make(store, [None] * 5, message_ttl_ms=60_000, message_ttl_column=column)
    for n in range(1, 4):
        put(store, 5 * n, [None] * 5)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=5)) == {0: (0, 5)}
    later(61)
    put(store, 20, [None])
    assert query.next(Limits(max_rows=5)) == {} and position(store, "g", 0) == 21
    query.leave()


def test_a_partition_that_must_wait_takes_nothing_from_others(store: str, later: Later) -> None:
    """H5: with manual acknowledgement its old message can be left out only when what is before it is acknowledged."""
    make(store, [None, 1_000, None], partitions=2)
    put(store, 3, [None] * 5, partition=1)
    query = Query(store, "a", manual_acknowledgement=True, instance_id="a")
    later(_MINUTE_S)
    query.planner.stop_at_current_ends()
    found = []
    while batch := query.next(Limits(max_rows=1)):
        found.append(batch)
    assert sorted(end for batch in found for number, (_, end) in batch.items() if number == 1) == [1, 2, 3, 4, 5]
    assert [batch for batch in found if 0 in batch] == [{0: (0, 1)}]
    query.leave()


def test_a_clock_that_is_wrong_makes_nothing_too_old(store: str, later: Later) -> None:
    """Q8: of a machine whose clock is a year ahead; nothing is left out."""
    make(store, [None] * 3, message_ttl_ms=30 * 86_400_000)
    query = Query(store, "a")
    later(365 * 86_400)
    with pytest.raises(partq.ClockSkewError):
        query.next()
    later(0)
    assert all_of(query) == [(0, 3)] and skipped(store) == []


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


def test_the_time_for_all_is_changed_while_a_query_runs(store: str, later: Later) -> None:
    """Also for messages that were looked at before."""
    make(store, [None] * 3, message_ttl_ms=120_000)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    partq.alter_queue(store, "q", message_ttl_ms=30_000)
    later(_MINUTE_S)
    assert all_of(query) == [] and skipped(store) == [(1, 3, "expired")]


def test_a_longer_time_for_all_is_heeded(store: str, later: Later) -> None:
    """Also for messages that were looked at before, and would be too old by now."""
    make(store, [None, None, 1_000], message_ttl_ms=30_000)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}
    partq.alter_queue(store, "q", message_ttl_ms=120_000)
    later(_MINUTE_S)
    assert all_of(query) == [(1, 2)] and skipped(store) == [(2, 3, "expired")]


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


def test_a_message_still_lives_in_the_last_microsecond(store: str) -> None:
    make(store, [1_000, None])
    queue, known = opened(store), lifetimes.Lifetimes()
    table = queue.table(0)
    last_us = int(table.index.enqueued_us[0]) + 1_000_000
    for now_us, found in ((last_us, (2, 0)), (last_us + 1, (0, 1))):
        assert (known.first_old(queue, table, 0, 2, now_us), known.old_end(queue, table, 0, 2, now_us)) == found


@pytest.mark.parametrize("kept", ["discard", "dead_letter"])
def test_a_clock_that_is_set_right_while_messages_are_looked_at(
    store: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are young seemed too old before: none is left out."""
    make(
        store, [None, 120_000, 120_000], expired_messages=kept, dead_letter_queue="dead" if kept != "discard" else None
    )
    put(store, 3, [120_000])
    query, due, now_ms = Query(store, "a"), LeftOut.due, Store.now_ms
    assert query.next(Limits(max_rows=1)) == {0: (0, 1)}

    def ahead(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "now_ms", lambda store: now_ms(store) + 3_600_000)
            return due(*arguments)

    monkeypatch.setattr(LeftOut, "due", ahead)
    with pytest.raises(partq.ClockSkewError, match=r"differ by 3,[56]\d\d s"):
        query.next()
    assert skipped(store) == []
    query.leave()
