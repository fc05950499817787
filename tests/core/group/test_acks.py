"""Acknowledgements and heartbeats: what a compaction must keep, and what an observer makes of it."""

from __future__ import annotations

from spark_partq.core.group import acks as acks_module
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.observer import Observer
from tests.core.group.groups import Decided


def test_compaction_keeps_what_can_still_count() -> None:
    """Of each partition the rows of the highest epoch, of each member its heartbeat, of all what was handed out."""
    rows = [
        AckRow("old", 9, "q", 0, 1, 50, 60),
        AckRow("new", 3, "q", 0, 2, 7, 8),
        AckRow("twin", 1, "q", 0, 2, 2, 3),
        AckRow("idle", 4),
        AckRow("gone", 5),
        AckRow("old", 10, "q", 0, 1, 55, 60),
    ]
    kept = acks_module.compacted(rows, ["new", "idle"])
    acks = Acks.of(kept)
    assert acks.offset(("q", 0), 2, "new") == 7
    assert acks.offset(("q", 0), 2, "twin") == 2
    assert acks.beats == {"new": 3, "twin": 1, "idle": 4, "old": 10}  # under whose epoch more was handed out
    assert acks.delivered(("q", 0)) == 60
    assert acks.delivered(("q", 0), since=2) == 8
    assert len(kept) == 4


def test_an_observer_is_not_disturbed_by_a_compaction() -> None:
    """R4: a heartbeat that goes back or vanishes is a sign of life, not of death."""
    group = Decided(1)
    group.join("a", session_timeout_ms=1_000)
    watch, incarnation = Observer(), group.state.members["a"].incarnation
    for i, beat in enumerate((7, 7, 0, 0)):
        assert not watch.due(group.state, Acks({incarnation: beat}), i * 600)
