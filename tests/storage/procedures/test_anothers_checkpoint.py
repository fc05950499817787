"""A query that is started from the checkpoint of another instance: what that instance had planned is not lost."""

from __future__ import annotations

import math
from typing import Any

import spark_partq as partq
from spark_partq.core.group.facts import Kind
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.store import Store
from tests.helpers import position, put
from tests.planners import Query


def planned_by_a(store: str, **settings: Any) -> Query:
    """A process of instance a that dies in its first micro-batch, of 10 messages."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(10))
    former = Query(store, "a", **settings)
    assert former.next() == {0: (0, 10)}
    return former


def another(store: str, instance: str, former: Query, **settings: Any) -> Query:
    """A query from the same checkpoint, in which the last micro-batch is not finished."""
    query = Query(store, instance, **settings)
    query.started, query.done = former.started, former.done
    return query


def given(query: Query) -> list[tuple[int, int, bool]]:
    pieces = [piece for task in query.planner.tasks(query.started, query.done) for piece in task]
    return [
        (p.slice.base_offset + p.slice.first_row, p.slice.base_offset + p.slice.last_row, p.redelivered) for p in pieces
    ]


def test_under_another_name_and_again_under_its_own(store: str) -> None:
    """Q7, H4: the micro-batch that was empty under the other name acknowledges nothing, and its messages come again, marked."""
    former = planned_by_a(store)
    renamed = another(store, "b", former)
    assert given(renamed) == []
    assert renamed.next() == {}
    again = another(store, "a", former)
    assert again.next() == {0: (0, 10)}
    assert given(again) == [(0, 10, True)]


def test_a_process_that_is_alive_delivers_again(store: str) -> None:
    """H4: its checkpoint was copied. The driver tells it that the copy has finished the micro-batch, at which it is still at work."""
    former = planned_by_a(store)
    assert given(another(store, "b", former)) == []
    membership = former.planner.membership
    membership.batch_finished(former.done)
    membership.acknowledge_batch(received_before_s=math.inf)
    assert position(store, "g", 0) == 0
    assert former.next() == {0: (0, 10)}
    assert given(former) == [(0, 10, True)]
    assert former.told == [("assigned", [["q", 0]]), ("lost", [["q", 0]]), ("assigned", [["q", 0]])]


def test_who_acknowledges_by_hand_goes_on(store: str) -> None:
    """H5: the end of its micro-batch acknowledges nothing, so nothing of it can be lost, and its acknowledgements count."""
    former = planned_by_a(store, manual_acknowledgement=True)
    assert given(another(store, "b", former, manual_acknowledgement=True)) == []
    group = Group(Store(store), "g")
    group.refresh()
    assert Kind.ISOLATED not in [fact["kind"] for fact in group.history()]
    epoch = former.done.ranges["q", 0].epoch
    assert acknowledge(Store(store), "g", {("q", 0): 4}, {("q", 0): epoch}) == []
