"""A member's side: what it may plan, acknowledge, replay and release."""

from __future__ import annotations

import pytest

from spark_partq.core.delivery.member import (
    DeliveryTracker,
    MembershipStatus,
    ack_rows,
    by_flow,
    finished,
    left_to_others,
    membership_status,
    owned,
    plannable,
    replayed,
    start,
)
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import FencedError
from spark_partq.core.group.acks import AckRow, Acks, Work, heartbeat
from spark_partq.core.group.events import Drained
from tests.core.group.groups import Decided, at


def drains() -> tuple[Decided, str]:
    """Two members; of a's two partitions the second drains to b. With a's incarnation."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    return group, group.state.members["a"].incarnation


def test_membership_status() -> None:
    """W2: registered, replaced by a newer process, or unknown."""
    group, a = drains()
    assert membership_status(group.state, "a", a) == MembershipStatus(registered=True, fenced=False)
    assert membership_status(group.state, "a", "older") == MembershipStatus(registered=False, fenced=True)
    assert membership_status(group.state, "c", "any") == MembershipStatus(registered=False, fenced=False)


def test_what_drains_is_not_planned() -> None:
    """H1, H2: only that partition pauses."""
    group, a = drains()
    assert set(owned(group.state, a)) == {at(0), at(1)}
    assert set(plannable(group.state, a)) == {at(0)}
    assert owned(group.state, "older") == {}
    assert by_flow(group.state, a) == {"a/0": [at(0), at(1)]}


def test_only_what_is_in_the_same_lineage_is_acknowledged() -> None:
    """Under the current epoch, what was planned in this unbroken ownership."""
    group, _ = drains()
    group.release()
    group.join("a")
    a = group.state.members["a"].incarnation
    batch = {at(0): Range(1, 0, 4), at(1): Range(1, 0, 4)}  # planned before the handoff and the restart
    assert finished(group.state, a, batch) == [(at(0), 2, 4)]
    assert finished(group.state, "older", batch) == []
    assert finished(group.state, a, {at(0): Range(9, 0, 4)}) == []


def test_an_empty_range_is_acknowledged_too() -> None:
    """All below it is finished, though an earlier acknowledgement may not have counted."""
    group, a = drains()
    assert finished(group.state, a, {at(0): Range(1, 4, 4)}) == [(at(0), 1, 4)]


def test_where_the_next_batch_starts() -> None:
    """The later of the position and the end of the last batch, if that is in its lineage."""
    group, a = drains()
    group.ack(0, 3)
    for done, expected in (
        (None, 3),
        (Range(1, 0, 5), 5),
        (Range(1, 0, 2), 3),
        (Range(0, 0, 5), 3),
        (Range(2, 0, 5), 3),
    ):
        assert start(group.state, group.acks, a, at(0), done) == expected


def test_a_replay() -> None:
    """By epoch, also while it drains; never below what is acknowledged; the rest is left out."""
    group, a = drains()
    planned = {at(0): Range(1, 2, 5), at(1): Range(1, 2, 5)}
    assert replayed(group.state, group.acks, a, planned, manual=False) == planned
    assert replayed(group.state, group.acks, a, planned, manual=True) == {w: Range(1, 0, 5) for w in planned}
    group.ack(0, 4)
    group.ack(1, 5)
    assert replayed(group.state, group.acks, a, planned, manual=False) == {at(0): Range(1, 4, 5)}
    assert replayed(group.state, group.acks, a, planned, manual=True) == {at(0): Range(1, 4, 5)}
    other = {at(0): Range(0, 2, 5), at(1): Range(1, 6, 6), at(9): Range(1, 0, 5)}
    assert replayed(group.state, group.acks, a, other, manual=False) == {at(1): Range(1, 6, 6)}
    assert replayed(group.state, group.acks, a, other, manual=True) == {}


def test_no_replay_without_a_place_in_the_group() -> None:
    """W2: what it left out would go into its commit log, and the next process of its lineage would take it for delivered."""
    group, a = drains()
    group.join("a")
    with pytest.raises(FencedError, match="start the query again"):
        replayed(group.state, group.acks, a, {at(0): Range(1, 0, 5)}, manual=False)


def test_what_a_replay_leaves_to_others() -> None:
    """Q7: what another instance planned in a lineage that goes on, whoever owns it or nobody; not what it has acknowledged."""
    group, a = drains()
    b = group.state.members["b"].incarnation
    planned = {at(0): Range(1, 2, 5), at(1): Range(1, 2, 5), at(9): Range(1, 2, 5)}
    assert left_to_others(group.state, group.acks, a, planned) == {}
    assert left_to_others(group.state, group.acks, b, planned) == {at(0): 1, at(1): 1}
    group.ack(0, 4)
    group.ack(1, 5)
    assert left_to_others(group.state, group.acks, b, planned) == {at(0): 1}
    group.leave("a")
    own = group.state.partitions[at(0)]
    assert left_to_others(group.state, group.acks, "another", {at(0): Range(own.lineage_epoch - 1, 0, 9)}) == {}


def test_a_release_waits_for_what_was_planned() -> None:
    """H1: of this ownership; what was planned in one that has ended does not count."""
    group, a = drains()
    tracker = DeliveryTracker()
    assert tracker.last_planned(group.state, a, at(0)) is None
    tracker.record({at(0): Range(1, 0, 9), at(1): Range(1, 0, 4)})
    assert tracker.last_planned(group.state, a, at(0)) == Range(1, 9, 9)
    assert tracker.drained(group.state, group.acks, a) == []
    group.ack(1, 3)
    assert tracker.drained(group.state, group.acks, a) == []
    group.ack(1, 4)
    assert tracker.drained(group.state, group.acks, a) == [Drained(at(1), a, 1, 4)]
    tracker.record({at(1): Range(0, 0, 99)})
    assert tracker.last_planned(group.state, a, at(1)) is None
    assert tracker.drained(group.state, group.acks, a) == [Drained(at(1), a, 1, 4)]
    assert DeliveryTracker().drained(group.state, Acks(), a) == [Drained(at(1), a, 1, 0)]
    assert tracker.drained(group.state, group.acks, "older") == []


def test_one_commit_of_acknowledgements() -> None:
    """What is finished, what is about to be delivered, and the heartbeat."""
    rows = ack_rows(
        "x",
        7,
        [(at(0), 2, 4), (at(1), 3, 5)],
        {at(0): Range(2, 4, 9), at(2): Range(1, 0, 3), at(3): Range(1, 2, 2)},
        {at(0): 6},
    )
    assert rows == [
        AckRow("x", 7, *at(0), 2, 4, 9, 4, 6),
        AckRow("x", 7, *at(1), 3, 5, 5),
        AckRow("x", 7, *at(2), 1, 0, 3),
    ]
    assert ack_rows("x", 8, [], {}, {}) == [AckRow("x", 8)]
    done = Work(2, 50, 700)
    assert ack_rows("x", 9, [(at(0), 2, 4)], {}, {}, done) == [AckRow("x", 9, *at(0), 2, 4, 4), heartbeat("x", 9, done)]
    assert ack_rows("x", 9, [], {}, {}, done) == [heartbeat("x", 9, done)]
