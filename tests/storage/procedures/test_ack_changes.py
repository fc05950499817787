"""A query that acknowledged by hand is started again, from its checkpoint, and acknowledges by micro-batch (H5): nothing is lost."""

from __future__ import annotations

import math

import pytest

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.group.events import Leave
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.store import Store
from tests.helpers import opened, position
from tests.scaled import Sink, make
from tests.storage.procedures.test_gate import Query, given, resized


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("manual", [True, False])
def test_what_the_application_had_not_acknowledged_comes_again(store: str, manual: bool, stopped: bool) -> None:
    make(store, 1)
    Sink(store).write(0, [(f"k{n}", n) for n in range(8)])
    a = Query(store, "a")
    assert a.turn() == {0: (0, 8)}
    a.planner.membership.stopping.set()
    if stopped:
        a.planner.membership.decide(lambda: [Leave("a", a.planner.membership.incarnation)])
    b = Query(store, "a", a.done, manual_acknowledgement=manual)
    assert b.turn() == {0: (0, 8)} and b.turn() == {}
    assert position(store, "g", 0) == (0 if manual else 8)
    b.planner.leave()


def test_a_replay_begins_at_the_position(store: str) -> None:
    """Its query is killed in the second micro-batch; of the first one nothing was acknowledged."""
    make(store, 1)
    sink = Sink(store)
    sink.write(0, [(f"k{n}", n) for n in range(8)])
    a = Query(store, "a")
    assert a.turn() == {0: (0, 8)}
    start = a.done
    sink.write(1, [(f"k{n}", n) for n in range(8)])
    assert a.turn() == {0: (8, 16)}
    a.planner.membership.stopping.set()
    b = Query(store, "a", start, manual_acknowledgement=False)
    pieces = [piece for task in b.planner.tasks(start, a.done) for piece in task]
    assert min(p.slice.base_offset + p.slice.first_row for p in pieces) == 0 and all(p.redelivered for p in pieces)
    b.done = a.done
    assert b.turn() == {0: (0, 16)} and b.turn() == {}
    assert position(store, "g", 0) == 16
    b.planner.leave()


def test_by_micro_batch_and_by_hand_and_by_micro_batch(store: str) -> None:
    """A micro-batch that failed, planned without acknowledgement by hand, comes to a query that has it; it acknowledges a part, and stops."""
    make(store, 1)
    Sink(store).write(0, [(f"k{n}", n) for n in range(10)])
    a = Query(store, "a", manual_acknowledgement=False)
    assert a.turn() == {0: (0, 10)}
    a.planner.membership.stopping.set()
    b = Query(store, "a", a.done)
    assert given(b.planner.tasks(StreamOffset("g", "a", {}, {}), a.done)) == {}
    assert b.turn() == {0: (0, 10)}  # it comes in the next micro-batch, which is marked
    epoch = b.done.ranges["q", 0].epoch
    assert acknowledge(Store(store), "g", {("q", 0): 2}, {("q", 0): epoch}) == []
    b.planner.membership.stopping.set()
    for done in (a.done, b.done):  # whether Spark had planned the next one
        c = Query(store, "a", done, manual_acknowledgement=False)
        assert c.turn() == {0: (2, 10)}
        c.planner.membership.stopping.set()
    c.planner.leave()


def test_the_end_of_a_micro_batch_that_was_planned_by_hand_acknowledges_nothing(store: str) -> None:
    """Its replay ends at the cuts of a resize; Spark reports the micro-batch as a whole."""
    make(store, 2)
    a = Query(store, "a")
    resized(store, [a])
    start = a.done
    planned = a.planner.next(start, Limits())
    assert planned is not None
    a.planner.membership.stopping.set()
    b = Query(store, "a", planned, manual_acknowledgement=False)
    turns = [given(b.planner.tasks(start, planned))]
    b.planner.membership.batch_finished(planned)
    b.planner.membership.acknowledge_batch(math.inf)
    while found := b.turn():
        turns.append(found)
    reached = {number: end for turn in turns for number, (_, end) in turn.items()}
    assert reached == {table.partition: table.next_offset for table in opened(store).partitions}
    b.planner.leave()
