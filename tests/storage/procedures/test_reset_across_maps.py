"""Positions that are set below the cuts of a resize: messages of later maps come after those that come again (S5)."""

from __future__ import annotations

import pytest

from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.reset_offsets import reset_offsets
from spark_partq.storage.store import Store
from tests.helpers import position
from tests.scaled import Sink, make, scale
from tests.storage.procedures.test_gate import KEYS, OLD, Query, ends, given


@pytest.mark.parametrize("named", [0, 1])
def test_a_replay_does_not_overtake_what_comes_again(store: str, named: int) -> None:
    """A micro-batch of messages above the cuts was planned before; their partitions were not named."""
    make(store, 2)
    sink = Sink(store)
    sink.write(0, [(key, 0) for key in KEYS])
    a = Query(store, "a", manual_acknowledgement=False, session_timeout_ms=1_000)
    assert a.turn() == {number: (0, end) for number, end in OLD.items()}
    scale(store, 3)
    sink.write(1, [(key, 9) for key in KEYS])
    start = a.done
    later = a.turn()
    assert later == {number: (OLD.get(number, 0), end) for number, end in ends(store).items()}
    a.planner.leave()
    reset = reset_offsets(Store(store), "g", {"q": {named: 0}})
    assert [(r.partition, r.new) for r in reset] == [(named, 0)]
    told = Group(Store(store), "g").history()
    facts = [
        (f["kind"], f["partition"]) for f in told if "reset to" in (f["cause"] or "") and f["partition"] is not None
    ]
    assert facts == [("PositionReset", named), *(("Unassigned", n) for n in sorted(later.keys() - {named}))]
    assert [position(store, "g", n) for n in range(3)] == [0 if n == named else OLD.get(n, 0) for n in range(3)]

    b = Query(store, "a", start, manual_acknowledgement=False, session_timeout_ms=1_000)
    assert given(b.planner.tasks(start, a.done)) == {}
    b.done = a.done
    assert b.turn() == {named: (0, OLD[named])}
    assert b.turn() == later
    b.planner.leave()


def test_a_replay_of_what_waits_for_nothing(store: str) -> None:
    """The partition that was set back holds no message below a cut: the others' micro-batch is the one that was planned."""
    make(store, 2)
    sink = Sink(store)
    sink.write(0, [(key, 0) for key in KEYS])
    a = Query(store, "a", manual_acknowledgement=False, session_timeout_ms=1_000)
    start = a.done
    planned = a.turn()
    a.planner.leave()
    reset_offsets(Store(store), "g", {"q": {0: 0}})
    b = Query(store, "a", start, manual_acknowledgement=False, session_timeout_ms=1_000)
    assert given(b.planner.tasks(start, a.done)) == {1: planned[1]}
    b.done = a.done
    assert b.turn() == {0: planned[0]}
    b.planner.leave()
