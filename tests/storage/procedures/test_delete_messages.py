"""Messages of a key are deleted while the queue is used: they are gone, and all others keep their offsets, whoever reads them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices
from spark_partq.storage.store import Store
from tests.clocks import no_grace
from tests.groups import Consumer
from tests.helpers import opened, position
from tests.planners import Query
from tests.scaled import Sink
from tests.storage.procedures.test_added_columns import make, put, stored

Place = tuple[int, int]  # partition and offset


def rows_at(store: str, queue: str = "q") -> dict[Place, dict[str, Any]]:
    """Every message that is there, by its place."""
    found: dict[Place, dict[str, Any]] = {}
    opened_queue = opened(store, queue)
    for number in opened_queue.state.all_partitions:
        table = opened_queue.table(number)
        table.refresh()
        for part in slices(opened_queue.state, number, table.index, table.first_offset, table.next_offset):
            for first, rows in read_slice(opened_queue.store, part, arrow_schema(opened_queue.state.schema)):
                for n, row in enumerate(rows.to_pylist(), part.base_offset + first):
                    assert (number, n) not in found
                    found[number, n] = row
    return found


def fill(store: str, *batches: str) -> None:
    """Messages of these keys, a letter each, a batch a text."""
    count = 0
    for batch, keys in enumerate(filter(None, batches)):
        put(opened(store), batch, *({"k": key, "v": count + n} for n, key in enumerate(keys)))
        count += len(keys)


def test_the_others_keep_their_offsets(store: str) -> None:
    make(store)
    fill(store, "abacad", "aaa", "bbb")
    before = rows_at(store)
    assert partq.delete_messages(store, "q", {"k": "a"}) == 6
    assert rows_at(store) == {place: row for place, row in before.items() if row["k"] != "a"}
    ends = [table.next_offset for table in opened(store).partitions]
    assert sum(ends) == 12 and partq.delete_messages(store, "q", {"k": "a"}) == 0
    put(opened(store), 9, {"k": "a", "v": 99})
    assert [row["v"] for row in stored(opened(store)) if row["k"] == "a"] == [99]
    assert partq.delete_messages(store, "q", {"k": "b"}) == 4  # files that were rewritten before


def test_it_is_a_fact_that_does_not_say_whose_they_were(store: str) -> None:
    make(store)
    fill(store, "xyx")
    assert partq.delete_messages(store, "q", {"k": "nobody"}) == 0
    assert opened(store).state.format.features == ()  # and older programs may go on
    partq.delete_messages(store, "q", {"k": "x"})
    control = opened(store).control
    assert control.state.format.features == ("deletedMessages",)
    assert [(row["kind"], json.loads(row["body"]).get("messages")) for row in control.history()[-2:]] == [
        ("FormatRaised", None),
        ("MessagesDeleted", 2),
    ]


def test_where_its_values_stay(store: str) -> None:
    """In the log's entries only, which maintenance removes when they are an hour old; not in the manifest of the sink's last batch."""
    partq.create_queue(store, "q", "person bigint, born date", key="person", partitions=1)
    put(opened(store), 0, {"person": 4711_0815, "born": dt.date(1961, 2, 3)})
    (live,) = opened(store).partitions[0]._log.snapshot.files.values()
    assert json.loads(live.stats or "")["minValues"] == {"person": 4711_0815, "born": "1961-02-03"}
    assert partq.delete_messages(store, "q", {"person": 4711_0815}) == 1
    with no_grace():
        partq.maintain(store, "q")
    texts = {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}
    traces = [path for path, text in texts.items() if b"47110815" in text or b"1961-02-03" in text]
    assert [path.parts[-2:] for path in traces] == [("_delta_log", f"{1:020d}.json")]


def test_other_readers_of_the_tables_do_not_see_them(store: str) -> None:
    make(store, partitions=1)
    fill(store, "abab", "bbb")
    partq.delete_messages(store, "q", {"k": "b"})
    table = DeltaTable(f"{store}/queues/q/partitions/partition=0")
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted((row["base_offset"] + row["_row"], row["k"]) for row in rows) == [(0, "a"), (2, "a")]
    assert table.get_add_actions(flatten=True).num_rows == 2 and table.count() == 2


def test_a_checkpoint_keeps_the_offsets(store: str) -> None:
    make(store, partitions=1)
    fill(store, *["ab"] * 4)
    partq.delete_messages(store, "q", {"k": "b"})
    before = rows_at(store)
    opened(store).partitions[0].checkpoint()
    for entry in Path(store, "queues/q/partitions/partition=0/_delta_log").glob("*.json"):
        entry.unlink()
    assert rows_at(store) == before and sorted(n for _, n in before) == [0, 2, 4, 6]
    assert DeltaTable(f"{store}/queues/q/partitions/partition=0").count() == 4


@settings(max_examples=30)
@given(
    st.lists(st.text("abcd", max_size=12), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcd"), max_size=4),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_any_range_is_what_is_left_of_it(
    tmp_path_factory: pytest.TempPathFactory, batches: list[str], deleted: list[str], start: int, end: int
) -> None:
    store = str(tmp_path_factory.mktemp("store") / "store")
    make(store, partitions=1)
    fill(store, *batches)
    for key in deleted:
        partq.delete_messages(store, "q", {"k": key})
    queue = opened(store)
    table = queue.partitions[0]
    keys = "".join(batches)
    last = min(end, len(keys))
    found = [
        (part.base_offset + first + n, row["k"])
        for part in slices(queue.state, 0, table.index, min(start, last), last)
        for first, rows in read_slice(queue.store, part, arrow_schema(queue.state.schema))
        for n, row in enumerate(rows.to_pylist())
    ]
    assert found == [(n, key) for n, key in enumerate(keys) if start <= n < last and key not in deleted]
    assert int(table.index.left.sum()) == sum(key not in deleted for key in keys)


# ---- consumers
def given_to(query: Query) -> list[tuple[int, str]]:
    """Offsets and keys of the micro-batch that was planned last, as its tasks read them."""
    queue = opened(query.store)
    schema = arrow_schema(queue.state.schema)
    return [
        (piece.slice.base_offset + first + n, row["k"])
        for pieces in query.planner.tasks(query.started, query.done)
        for piece in pieces
        for first, rows in read_slice(queue.store, piece.slice, schema)
        for n, row in enumerate(rows.to_pylist())
    ]


def test_a_consumer_goes_on_behind_them(store: str) -> None:
    make(store, partitions=1)
    fill(store, "abab")
    query = Query(store, "a")
    assert query.next() == {0: (0, 4)}
    began = query.planner.tasks(query.started, query.done)
    partq.delete_messages(store, "q", {"k": "a"})
    schema = arrow_schema(opened(store).state.schema)
    rows = [
        r["k"] for (piece,) in began for _, b in read_slice(Store(store), piece.slice, schema) for r in b.to_pylist()
    ]
    assert rows == list("abab")  # what it has begun it reads to its end
    query.leave()
    again = Query(store, "a")
    assert again.next() == {0: (0, 4)} and given_to(again) == [(1, "b"), (3, "b")]  # what it begins again lacks them
    put(opened(store), 5, {"k": "a", "v": 10}, {"k": "a", "v": 11})
    partq.delete_messages(store, "q", {"k": "a"})
    assert again.next() == {0: (4, 6)} and given_to(again) == []
    again.next()
    again.leave()
    assert position(store, "g", 0) == 6
    assert partq.describe_group(store, "g").lag == 0


def test_nobody_acknowledges_them(store: str) -> None:
    """An application that acknowledges by hand is never given them, so maintenance and resizes do not wait for it."""
    make(store, partitions=1)
    fill(store, "abcaa")
    partq.delete_messages(store, "q", {"k": "a"})
    query = Query(store, "a", manual_acknowledgement=True)
    assert query.next() == {0: (0, 5)} and given_to(query) == [(1, "b"), (2, "c")]
    query.next()
    assert position(store, "g", 0) == 1
    epochs = {("q", 0): 1}
    assert not acknowledge(Store(store), "g", {("q", 0): 2}, epochs)
    query.next()
    assert position(store, "g", 0) == 2
    assert not acknowledge(Store(store), "g", {("q", 0): 3}, epochs)
    query.next()
    assert position(store, "g", 0) == 5
    put(opened(store), 7, {"k": "d", "v": 9})
    assert query.next() == {0: (5, 6)}


def test_what_is_too_old_is_left_out_around_them(store: str) -> None:
    """A column of lifetimes: what was deleted has none."""
    partq.create_queue(
        store,
        "q",
        "k string, v bigint, ttl bigint",
        key="k",
        partitions=1,
        rebalance_delay_ms=0,
        message_ttl_column="ttl",
    )
    put(
        opened(store),
        0,
        *({"k": k, "v": n, "ttl": ttl} for n, (k, ttl) in enumerate([("a", 0), ("b", 0), ("a", 0), ("b", None)])),
    )
    partq.delete_messages(store, "q", {"k": "a"})
    query, read = Query(store, "a"), []
    while query.next():
        read += given_to(query)
    query.leave()
    assert read == [(3, "b")] and position(store, "g", 0) == 4


# ---- what else moves
def test_dead_messages_are_deleted_too(store: str) -> None:
    for name in ("q", "other"):
        make(store, name, partitions=1, dead_letter_queue="dead")
    rows = [{"k": k, "v": 1, "origin_queue": name} for name in ("q", "other") for k in "ab"]
    put(opened(store, "dead"), 0, *rows)
    put(opened(store), 0, {"k": "a", "v": 0})
    assert partq.delete_messages(store, "q", {"k": "a"}) == 2
    left = {(row["k"], row["origin_queue"]) for row in rows_at(store, "dead").values()}
    assert left == {("b", "q"), ("a", "other"), ("b", "other")} and not rows_at(store)
    put(opened(store), 1, {"k": "a", "v": 1})
    partq.delete_queue(store, "dead")
    assert partq.delete_messages(store, "q", {"k": "a"}) == 1


class Killed(BaseException):
    """Its process is gone."""


def killed_before_it_places(act: Callable[[], object]) -> None:
    """A batch is durable, and none of it is in its partitions."""
    with mock.patch.object(PartitionTable, "append", side_effect=Killed), pytest.raises(Killed):
        act()


@pytest.mark.parametrize("query_id", [None, "of a query"])
def test_what_a_sink_has_begun_is_found(store: str, query_id: str | None) -> None:
    """Its process died before it had placed the batch, and begins again after the deletion."""
    make(store)
    fill(store, "ab")
    sink = Sink(store, "s", query_id)
    killed_before_it_places(lambda: sink.write(1, [("a", 8), ("b", 9)]))
    assert partq.delete_messages(store, "q", {"k": "a"}) == 2
    left = rows_at(store)
    assert sorted(row["v"] for row in left.values()) == [1, 9]
    assert Sink(store, "s", query_id).write(1, [("a", 8), ("b", 9)]) == 0
    assert rows_at(store) == left


def test_what_comes_back_from_the_dead_message_queue_is_found(store: str) -> None:
    """A redrive died before it had placed what it puts back."""
    make(store, max_deliveries=2, dead_letter_queue="dead")
    fill(store, "ab")
    table = opened(store).table(0)
    table.refresh()
    DeadLetters(Store(store), "dead", "g").send(opened(store), table, 1, DeadMessages(0, 2, "dead", 2))
    killed_before_it_places(lambda: partq.redrive(store, "q"))
    assert partq.delete_messages(store, "q", {"k": "a"}) == 3
    partq.redrive(store, "q")
    assert {row["k"] for row in rows_at(store).values()} == {"b"}


def test_what_is_copied_out_of_the_parent_is_found(store: str) -> None:
    """The copy died before it had placed a file."""
    make(store, partitions=0)
    fill(store, "ab")
    Consumer(store, "a").leave()
    partq.scale(store, "q", 2)
    killed_before_it_places(lambda: partq.copy_stuck(store, "q"))
    assert partq.delete_messages(store, "q", {"k": "a"}) == 2
    partq.copy_stuck(store, "q")
    assert {row["k"] for row in rows_at(store).values()} == {"b"}


def test_a_parent_is_copied_without_them(store: str) -> None:
    make(store, partitions=0)
    fill(store, "abcab")
    query = Query(store, "a")  # a group that has read nothing
    query.next()
    query.leave()
    partq.scale(store, "q", 2)
    partq.delete_messages(store, "q", {"k": "a"})
    assert partq.copy_stuck(store, "q") == 3
    assert sorted(row["k"] for (number, _), row in rows_at(store).items() if number >= 0) == ["b", "b", "c"]


@pytest.mark.parametrize("jump", [False, True])
def test_a_replica_has_them_no_more(store: str, tmp_path: Path, jump: bool) -> None:
    make(store)
    fill(store, "abacad")
    replica = str(tmp_path / "replica")
    partq.replicate(store, "q", replica)
    partq.delete_messages(store, "q", {"k": "a"})
    if jump:  # the entries are gone: the replica goes on from a checkpoint
        for table in opened(store).partitions:
            table.checkpoint()
            for entry in Path(store, table.folder, "_delta_log").glob("*.json"):
                entry.unlink()
    before = rows_at(store)
    partq.replicate(store, "q", replica)
    partq.promote(replica, "q")
    assert rows_at(replica) == before and len(before) == 3
    with pytest.raises(partq.QueueFencedError):
        partq.delete_messages(store, "q", {"k": "b"})
    assert partq.delete_messages(replica, "q", {"k": "b"}) == 1


# ---- which messages
def test_every_column_of_the_key_counts_and_null_is_a_value(store: str) -> None:
    partq.create_queue(store, "q", "c string, n int, v bigint", key=["c", "n"], partitions=2)
    rows = [{"c": c, "n": n, "v": 0} for c in ("x", None) for n in (1, 2, None)]
    put(opened(store), 0, *rows)
    assert partq.delete_messages(store, "q", {"c": "x", "n": "2"}) == 1
    assert partq.delete_messages(store, "q", {"c": None, "n": 1}) == 1
    assert partq.delete_messages(store, "q", {"c": None, "n": None}) == 1
    left = {(row["c"], row["n"]) for row in rows_at(store).values()}
    assert left == {("x", 1), ("x", None), (None, 2)}


@pytest.mark.parametrize(
    ("type_", "wanted", "other"),
    [("double", math.nan, 1.0), ("array<string>", ["a"], ["a", "b"]), ("struct<a:string>", {"a": "x"}, {"a": None})],
)
def test_a_key_of_any_type_is_found(store: str, type_: str, wanted: object, other: object) -> None:
    partq.create_queue(store, "q", f"k {type_}, v int", key="k", partitions=1)
    put(opened(store), 0, {"k": wanted, "v": 0}, {"k": other, "v": 1}, {"k": None, "v": 2})
    assert partq.delete_messages(store, "q", {"k": wanted}) == 1
    assert [row["v"] for row in rows_at(store).values()] == [1, 2]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ({"c": "x"}, "has the columns c, n; give a value of each"),
        ({}, "has the columns c, n; give a value of each"),
        ({"c": "x", "n": "two"}, "'two' is no value of column 'n'"),
        ({"c": "x", "n": 2, "v": 0}, "'v' is no column of the key"),
        ({"c": "x", "n": 2**40}, "is no value of column 'n'"),
    ],
)
def test_a_key_that_is_none(store: str, key: dict[str, object], told: str) -> None:
    partq.create_queue(store, "q", "c string, n int, v bigint", key=["c", "n"], partitions=1)
    with pytest.raises(partq.InvalidArgumentError, match=told):
        partq.delete_messages(store, "q", key)
    partq.create_queue(store, "keyless", "v bigint", partitions=1)
    with pytest.raises(partq.InvalidArgumentError, match="has no key"):
        partq.delete_messages(store, "keyless", {})


@pytest.mark.parametrize("numbers", [[2, 0], [2, 2]])
@pytest.mark.parametrize("rows_of_a_group", [1, 2])
def test_a_file_that_contradicts_its_entry(store: str, numbers: list[int], rows_of_a_group: int) -> None:
    """Rows out of order, or two of one number, would be given wrong offsets."""
    make(store, partitions=1)
    fill(store, "abcb")
    partq.delete_messages(store, "q", {"k": "b"})
    table = opened(store).partitions[0]
    path = Path(store, table.folder, table.index.path(0))
    import pyarrow.parquet as pq

    rows = pq.read_table(path)
    changed = rows.set_column(rows.schema.get_field_index("_row"), "_row", pa.array(numbers))
    pq.write_table(changed, path, row_group_size=rows_of_a_group)
    with pytest.raises(partq.CorruptTableError, match="not in the order of their numbers"):
        rows_at(store)
    assert np.all(table.index.left <= table.index.rows)
