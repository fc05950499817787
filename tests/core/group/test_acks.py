"""Acknowledgements and heartbeats: what a compaction must keep, and what an observer makes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.group import acks as acks_module
from spark_partq.core.group.acks import AckRow, Acks, Work, heartbeat
from spark_partq.core.group.attempts import deliveries, is_dead
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


def test_work() -> None:
    """What heartbeats tell counts whatever their order, is no acknowledgement, and outlives a compaction as long as its member."""
    rows = [
        heartbeat("a", 3, Work(2, 50, 700)),
        heartbeat("a", 2, Work(1, 40, 600)),
        AckRow("a", 4, "q", 0, 9, 90, 99),
        heartbeat("b", 7),
        heartbeat("gone", 7, Work(1, 1, 1)),
    ]
    for order in (rows, rows[::-1]):
        acks = Acks.of(order)
        assert acks.work == {"a": Work(2, 50, 700), "gone": Work(1, 1, 1)}
        assert acks.rows == {(("q", 0), 9, "a"): 90} and acks.delivered_ends == {("q", 0): 99}
        kept = acks_module.compacted(order, ["a", "b"])
        assert len(kept) == 3
        after = Acks.of(acks_module.compacted(kept, ["a", "b"]))
        assert after.work == {"a": Work(2, 50, 700)} and after.beats == {"a": 4, "b": 7} and after.rows == acks.rows


def test_attempts() -> None:
    """Of each range the last delivery, whatever the order of the rows; those under older epochs do not count after a reset."""
    rows = [
        AckRow("a", 1, "q", 0, 3, 0, 9, 4, 2),
        AckRow("a", 1, "q", 0, 3, 0, 9, 4, 1),
        AckRow("b", 1, "q", 0, 2, 0, 9, 4, 7),  # under an older epoch
        AckRow("a", 1, "q", 0, 0, 0, 6, 4, 1),
        AckRow("a", 1, "q", 0, 3, 0, 4, 0),  # it is not counted
        AckRow("a", 1, "q", 1, 3, 0, 9, 4, 5),
    ]
    for order in (rows, rows[::-1]):
        acks = Acks.of(order)
        assert acks.attempts_since(("q", 0), 0) == {(4, 9): 2, (4, 6): 1}
        assert acks.attempts_since(("q", 0), 3) == {(4, 9): 2}
        assert acks.attempts_since(("q", 0), 4) == acks.attempts_since(("q", 2), 0) == {}
        assert acks.attempts_since(("q", 1), 3) == {(4, 9): 5}


def test_what_is_kept_of_attempts_is_no_heartbeat() -> None:
    """Nobody of that name is a process of the group."""
    rows = [AckRow("a", 3, "q", 0, 1, 0, 9, 4, 2), AckRow("a", 4)]
    for _ in range(2):
        rows = acks_module.compacted(rows, ["a"])
        acks = Acks.of(rows)
        assert acks.beats == {"a": 4} and acks.attempts_since(("q", 0), 0) == {(4, 9): 2}


_OF_P = st.builds(
    AckRow, st.sampled_from(["a", "b"]), st.integers(0, 3), st.just("q"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 6),
    st.integers(0, 8), st.integers(0, 4), st.integers(0, 3),
)  # fmt: skip
_ROWS = st.lists(_OF_P | st.builds(AckRow, st.sampled_from(["a", "b", "c"]), st.integers(0, 3)), max_size=10)


@given(_ROWS)
def test_what_rows_say_together(rows: list[AckRow]) -> None:
    """Each answer is the highest of the rows that it is about."""
    acks = Acks.of(rows)
    assert acks.beats == {i: max(r.beat for r in rows if r.incarnation == i) for i in {r.incarnation for r in rows}}
    for place in (("q", 0), ("q", 1), ("q", 2)):
        there = [row for row in rows if row.partition_id == place]
        for since in range(5):
            expected = max((row.delivered for row in there if row.epoch >= since), default=0)
            assert acks.delivered(place, since) == expected
            for who in "ab":
                own = [row.offset for row in there if (row.epoch, row.incarnation) == (since, who)]
                assert acks.offset(place, since, who) == max(own, default=0)


@given(_ROWS, st.sets(st.sampled_from("abc")))
def test_a_compaction_changes_no_answer_that_counts(rows: list[AckRow], live: set[str]) -> None:
    """Positions under the newest epoch, what was delivered under whichever, the attempts above a position, and who is alive."""
    acks, kept = Acks.of(rows), acks_module.compacted(rows, live)
    after = Acks.of(kept)
    assert set(after.beats) - {"attempt"} >= live & set(acks.beats)
    assert all(beat == acks.beats[who] for who, beat in after.beats.items() if who != "attempt")
    for place in (("q", 0), ("q", 1)):
        epochs = [row.epoch for row in rows if row.partition_id == place]
        for since in range(5):
            assert after.delivered(place, since) == acks.delivered(place, since)
        if epochs:
            positions = [acks.offset(place, max(epochs), who) for who in "ab"]
            assert [after.offset(place, max(epochs), who) for who in "ab"] == positions
            before_, after_ = acks.attempts_since(place, 0), after.attempts_since(place, 0)
            assert set(after.attempts.get(place, {}).items()) <= set(acks.attempts.get(place, {}).items())
            for offset in range(max(positions), 9):
                assert deliveries(after_, 9, offset)[0] == deliveries(before_, 9, offset)[0]
                assert is_dead(after_, offset, 2) == is_dead(before_, offset, 2)
    twice = acks_module.compacted(kept, live)
    assert len(acks_module.compacted(twice, live)) == len(twice)


def test_nothing_is_kept_of_queues_that_are_gone() -> None:
    """Else the table of a group that reads by a pattern would grow with every queue that ever was."""
    rows = [AckRow("a", n, f"q{n}", 0, n, 5, 9, 5, 2) for n in range(4)]
    kept = acks_module.compacted(rows, ["a"], {"q0", "q2"})
    assert {row.queue_id for row in kept} == {"q1", "q3"}
    assert Acks.of(kept).beats["a"] == 3
    assert Acks.of(kept).attempts == {(q, 0): {(5, 9): (n, 2)} for n, q in ((1, "q1"), (3, "q3"))}


def test_attempts_behind_a_reset_outlive_a_compaction() -> None:
    """What was acknowledged under an older epoch is no position: the group was set back, and fails at a message before that."""
    rows = [
        AckRow("old", 1, "q", 0, 1, 50, 60),
        AckRow("new", 1, "q", 0, 2, 10, 20, 10, 3),
        AckRow("new", 1, "q", 0, 2, 8, 12, 8, 1),  # a first delivery
        AckRow("new", 1, "q", 0, 2, 8, 10, 8, 2),  # all of it is acknowledged
    ]
    for kept in (acks_module.compacted(rows, []), acks_module.compacted(acks_module.compacted(rows, []), [])):
        assert Acks.of(kept).attempts_since(("q", 0), 2) == {(10, 20): 3}


def test_an_observer_is_not_disturbed_by_a_compaction() -> None:
    """R4: a heartbeat that goes back or vanishes is a sign of life, not of death."""
    group = Decided(1)
    group.join("a", session_timeout_ms=1_000)
    watch, incarnation = Observer(), group.state.members["a"].incarnation
    for i, beat in enumerate((7, 7, 0, 0)):
        assert not watch.due(group.state, Acks({incarnation: beat}), i * 600)
