"""The barrier of a resize as a planner meets it whose application acknowledges by hand (S5, H5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

import spark_partq as partq
from spark_partq import render
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.queue.partition_map import target
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.helpers import opened, position
from tests.scaled import Sink, hash_of, make, scale

KEYS = [f"k{n}" for n in range(8)]
OLD = {
    a: sum(target(hash_of(k), 2) == a for k in KEYS) for a in (0, 1)
}  # how many messages a partition of the old map has


class Query:
    """What Spark does around a planner: one micro-batch after the other."""

    def __init__(self, store: str, instance: str, done: StreamOffset | None = None, **settings: Any) -> None:
        given = {"manual_acknowledgement": True, **settings}
        self.planner = Planner(ConsumerSettings(Store(store), ("q",), instance_id=instance, **given), "g", instance)
        self.done = done or StreamOffset("g", instance, {}, {})

    def turn(self) -> dict[int, tuple[int, int]]:
        """Of each partition what the next micro-batch has, if anything."""
        end = self.planner.next(self.done, Limits())
        if end is None:
            return {}
        tasks = self.planner.tasks(self.done, end)
        self.done = end
        return given(tasks)


def given(tasks: list[Any]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for piece in (piece for task in tasks for piece in task):
        first = piece.slice.base_offset + piece.slice.first_row
        last = piece.slice.base_offset + piece.slice.last_row
        low, high = found.get(piece.slice.partition, (first, last))
        found[piece.slice.partition] = min(low, first), max(high, last)
    return found


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    """Those that the test appends are stopped after it."""
    started: list[Query] = []
    yield started
    for query in started:
        query.planner.membership.stopping.set()


def resized(store: str, started: list[Query]) -> Sink:
    """Every key has a message below the cuts, which the queries were given and have not acknowledged, and one above."""
    sink = Sink(store)
    sink.write(0, [(k, 0) for k in KEYS])
    found = [query.turn() for query in started]
    assert {n: r for turn in found for n, r in turn.items()} == {n: (0, end) for n, end in OLD.items()}
    scale(store, 3)
    sink.write(1, [(k, 9) for k in KEYS])
    return sink


def ends(store: str) -> dict[int, int]:
    """Of the partitions that have messages of the new map."""
    found = {table.partition: table.next_offset for table in opened(store).partitions}
    return {number: end for number, end in found.items() if end > OLD.get(number, 0)}


def reached(turns: list[dict[int, tuple[int, int]]]) -> dict[int, int]:
    """Up to where these micro-batches came."""
    return {number: end for turn in turns for number, (_, end) in turn.items()}


def test_the_same_process_waits_for_nothing(store: str, queries: list[Query], caplog: pytest.LogCaptureFixture) -> None:
    """What it was given counts for it, in the micro-batch after, though nothing is acknowledged; nobody is warned."""
    make(store, 2)
    queries.append(Query(store, "a", max_barrier_wait_ms=3_600_000))
    resized(store, queries)
    assert reached([queries[0].turn() for _ in range(2)]) == ends(store)
    assert [position(store, "g", n) for n in range(3)] == [0, 0, 0]
    assert not caplog.records


def test_another_process_is_waited_for_a_while(
    store: str, queries: list[Query], caplog: pytest.LogCaptureFixture
) -> None:
    """Until then describe-group says what for; then one warning says which group goes on without whose acknowledgement of what."""
    make(store, 2, max_handoff_time_ms=60_000)
    queries += [Query(store, name, max_barrier_wait_ms=most) for name, most in (("a", 3_600_000), ("b", 0))]
    waiting, hasty = queries
    for query in (waiting, hasty, waiting, hasty):  # both join, and one partition goes from the first to the second
        assert query.turn() == {}
    resized(store, queries)
    for _ in range(3):
        waiting.turn()
    described = partq.describe_group(store, "g")
    mine = {p.partition for p in described.partitions if p.flow == "b/0"}
    (own,), (other,) = set(OLD) & mine, set(OLD) - mine
    theirs = ends(store).keys() - mine
    waits = {p.partition: p.waits_for for p in described.partitions if p.partition in theirs}
    assert theirs and waits == {number: {own: OLD[own]} for number in theirs}
    assert f"waits for {own} up to {OLD[own]}" in text(described) and "acknowledges by hand" in text(described)
    turns = [hasty.turn() for _ in range(4)]
    assert reached(turns) == {number: end for number, end in ends(store).items() if number in mine}
    (told,) = [record.getMessage() for record in caplog.records if "resize" in record.getMessage()]
    assert told.startswith("group g ") and "of queue q " in told and "flow a/0 has not acknowledged" in told
    assert f"The flow was given all of partition {other} below the cut at offset {OLD[other]}" in told


def test_a_new_process_is_given_each_keys_messages_in_order(store: str, queries: list[Query]) -> None:
    """A replay leaves out messages above a cut, as those below are still to come again; the next micro-batches have all."""
    make(store, 2)
    queries.append(Query(store, "a"))
    resized(store, queries)
    before = queries[0].done
    planned = queries[0].planner.next(before, Limits())
    assert planned is not None and reached([given(queries[0].planner.tasks(before, planned))])
    queries[0].planner.membership.stopping.set()
    again = Query(store, "a", planned)
    queries.append(again)
    turns = [given(again.planner.tasks(before, planned)), *(again.turn() for _ in range(3))]
    above = [any(end > OLD.get(number, 0) for number, (_, end) in turn.items()) for turn in turns]
    first = above.index(True)
    assert first > 0 and reached(turns[:first]) == OLD
    assert reached(turns) == OLD | ends(store)


def text(found: partq.GroupDescription) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render.group(found))
    return capture.get()
