"""K4: the eager protocol step by step, also while members come and go."""

from __future__ import annotations

import pytest

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group.choice import choose
from spark_partq.core.group.events import DeadlinePassed
from spark_partq.core.group.facts import GroupFact, Kind, Protocol, Status
from spark_partq.core.group.observer import Observer
from tests.core.group.groups import Decided, at
from tests.core.group.protocols import COMPUTED, RANGE, STICKY, computed, eager, revoking


def test_everything_is_revoked_before_anything_is_assigned() -> None:
    """K4: in the order of facts, and the assignment is computed by whoever sees the last release."""
    group = eager("a", delay_ms=1_000)
    group.join("b", assignors=RANGE)
    assert group.state.status is Status.HOLDDOWN and group.draining() == []
    group.over()
    assert group.kinds() == ["StatusChanged", *["HandoffStarted"] * 6]
    assert {fact.to_flow for fact in group.facts[1:]} == {None}
    assert group.state.assignment_due and group.state.revoking
    for partition in range(5):
        group.release(partition)
        assert group.kinds() == ["Released"]
    group.release(5)
    assert group.kinds() == ["Released", "AssignmentComputed", *["Granted"] * 6, "StatusChanged"]
    assert computed(group) == [("range", "eager")]
    assert group.owned() == {"a/0": [0, 1, 2], "b/0": [3, 4, 5]}
    assert group.state.status is Status.READY and not group.state.assignment_due


def test_a_partition_that_comes_back_continues_its_lineage() -> None:
    """K4, H4: what its owner has planned stays its own, though everybody had given up everything."""
    group = eager("a")
    group.ack(0, 3, 8)
    group.join("b", assignors=RANGE)
    group.release()
    own = group.state.partitions[at(0)]
    assert (own.flow, own.epoch, own.lineage_epoch, own.start, own.delivered) == ("a/0", 2, 1, 3, 8)
    assert group.state.partitions[at(3)].lineage_epoch == 2  # b's


def test_the_deadline_of_a_revocation() -> None:
    """H4: who does not release in time loses it, whoever gets it, marked; the others wait no longer."""
    group = eager("a")
    group.ack(5, 2, 6)
    group.join("b", assignors=RANGE)
    group.release(0, 1, 2, 3)
    old = group.state.partitions[at(5)]
    group.deadline(4)
    assert group.kinds() == ["Unassigned"] and group.facts[0].forced
    group.deadline(5)
    unassigned = group.facts[0]
    assert (unassigned.forced, unassigned.offset, unassigned.delivered, unassigned.epoch) == (True, 2, 6, old.epoch + 1)
    assert group.kinds()[1] == "AssignmentComputed"
    own = group.state.partitions[at(5)]
    assert (own.flow, own.start, own.delivered) == ("b/0", 2, 6)
    assert group.state.status is Status.READY
    assert group.do(DeadlinePassed(at(5), old.handoff)) == []


def test_an_eager_revocation_has_a_deadline() -> None:
    """K4, H4: an observer times it like any other handoff, though its receiver is not known."""
    group = eager("a")
    group.join("b", assignors=RANGE)
    assert group.state.revoking
    observer = Observer()
    assert observer.due(group.state, group.acks, 0) == []
    due = observer.due(group.state, group.acks, 1_000)
    assert due == [DeadlinePassed(at(n), group.state.partitions[at(n)].handoff) for n in range(6)]


def test_several_that_end_at_once_are_settled_once() -> None:
    """K4: releases and deadlines of one decision make one assignment."""
    group = eager("a")
    group.join("b", assignors=RANGE)
    late = DeadlinePassed(at(5), group.state.partitions[at(5)].handoff)
    group.do(*[group.drained(p) for p in range(5)], late)
    assert group.kinds()[:8] == [*["Released"] * 5, "Unassigned", "AssignmentComputed", "Granted"]
    assert group.times(COMPUTED) == 1


def test_no_handoff_time_revokes_and_assigns_at_once() -> None:
    """K4, H4: in one decision, and in this order."""
    group = eager("a", handoff_ms=0)
    group.join("b", assignors=RANGE)
    order = ["StatusChanged", *["HandoffStarted", "Unassigned"] * 6, "AssignmentComputed", *["Granted"] * 6]
    assert group.kinds() == ["MemberJoined", *order, "StatusChanged"]
    assert group.owned() == {"a/0": [0, 1, 2], "b/0": [3, 4, 5]}


def test_a_standby_of_an_eager_group() -> None:
    """R3: with `balanced`, whatever the protocol, an excess consumer stops nobody."""
    both = ("balanced", "range")
    group = Decided(2)
    group.join("a", flows=2, assignors=both)
    group.join("b", assignors=both)
    assert group.kinds() == ["MemberJoined"] and choose(group.state.members.values())[1] is Protocol.EAGER
    group.join("a", flows=1, assignors=both)
    assert group.owned() == {"a/0": [0], "b/0": [1]} and group.times(COMPUTED) == 0


def test_sticky_keeps_what_everybody_had() -> None:
    """K1, K4: all is revoked, and yet only what balance needs moves."""
    group = eager("a", "b", assignors=STICKY)
    had = group.owned()
    group.join("c", assignors=STICKY)
    assert group.draining() == list(range(6))
    group.release()
    kept = group.owned()
    assert all(len(kept[flow]) == 2 and set(kept[flow]) <= set(had[flow]) for flow in ("a/0", "b/0"))


def test_nothing_is_due_while_something_is_revoked() -> None:
    """K4: nobody asks again and again for what cannot be computed yet."""
    group = revoking("a", "b")
    assert Observer().due(group.state, group.acks, 0) == []


@pytest.mark.parametrize(
    "fact",
    [
        GroupFact(COMPUTED, body='{"assignor": "range", "protocol": "eager"}'),
        GroupFact(Kind.HANDOFF_STARTED, "orders", *at(0), epoch_before=1, epoch=1, lineage_epoch=1, flow="a/0"),
        GroupFact(COMPUTED, body='{"assignor": "range", "protocol": "lazy"}'),
    ],
    ids=str,
)
def test_facts_that_stand_where_nothing_is_due(fact: GroupFact) -> None:
    group = eager("a")
    with pytest.raises(CorruptTableError):
        group.state.replay(fact)


# ---- members that come and go while everything is revoked
def test_a_member_leaves_in_the_middle() -> None:
    """K4: its partitions wait for nobody, and nothing begins anew."""
    group = revoking("a", "b", "c")
    began = group.state.status_seq
    group.release(0, 1, 2)
    group.leave("b", expired=True)
    assert group.kinds() == [
        "MemberLeft", *["Unassigned"] * 3, "AssignmentComputed", *["Granted"] * 6, "StatusChanged",
    ]  # fmt: skip
    assert group.owned() == {"a/0": [0, 1, 2], "c/0": [3, 4, 5]}
    assert began < group.state.status_seq and group.state.status is Status.READY


def test_the_one_who_caused_it_leaves() -> None:
    """K4: the others get back what there is."""
    group = revoking("a", "b")
    group.release(0)
    group.leave("b")
    assert group.kinds() == ["MemberLeft"]
    group.release()
    assert group.owned() == {"a/0": list(range(6))}


def test_all_leave() -> None:
    """K4: nothing is due any more."""
    group = revoking("a", "b")
    group.leave("a")
    group.leave("b")
    assert group.owned() == {"-": list(range(6))}
    assert group.state.status is Status.READY and not group.state.assignment_due


@pytest.mark.parametrize("delay_ms", [0, 1_000])
def test_a_member_joins_in_the_middle(delay_ms: int) -> None:
    """K4: it is in the assignment that is still to be computed; no holddown, no new time for anybody."""
    group = eager("a", delay_ms=delay_ms)
    group.join("b", assignors=RANGE)
    group.over()
    handoffs = {partition_id: own.handoff for partition_id, own in group.state.partitions.items()}
    group.join("c", assignors=RANGE)
    assert group.kinds() == ["MemberJoined"]
    assert {partition_id: own.handoff for partition_id, own in group.state.partitions.items()} == handoffs
    group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}


def test_a_member_restarts_in_the_middle() -> None:
    """K4, K6: it has nothing left to give up; what it left out of its replay is never again in its lineage."""
    group = revoking("a", "b", "c")
    group.ack(0, 2, 5)
    group.join("a", assignors=RANGE)
    assert group.times(Kind.UNASSIGNED) == 6  # three given up, and three lineages ended
    lineages = {p: group.state.partitions[at(p)].lineage_epoch for p in (0, 1, 2)}
    group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}
    own = group.state.partitions[at(0)]
    assert (own.start, own.delivered, own.lineage_epoch) == (2, 5, lineages[0])


def test_the_last_one_to_release_restarts() -> None:
    """K4: what it gets back in the same decision is in its lineage, so it replays it."""
    group = revoking("a", "b", assignors=STICKY)
    group.join("a", assignors=STICKY)
    assert group.state.status is Status.READY
    kept = [p for p in group.owned()["a/0"] if p < 3]
    assert kept and all(group.state.partitions[at(p)].lineage_epoch == 1 for p in kept)


def test_the_eager_member_leaves_in_the_middle() -> None:
    """K5, K7: the group is cooperative now: what shall stay is not given up any longer."""
    group = Decided(6)
    group.join("a", assignors=("cooperative-sticky",))
    group.join("b", assignors=("cooperative-sticky", "range"))
    assert group.state.revoking
    group.release(0, 1)
    group.leave("b")
    assert computed(group) == [("cooperative-sticky", "cooperative")]
    kept = [(fact.partition, fact.flow) for fact in group.facts if fact.kind == Kind.HANDOFF_CANCELLED]
    assert kept == [(number, "a/0") for number in range(2, 6)]
    assert group.owned() == {"a/0": list(range(6))} and group.state.status is Status.READY


def test_an_eager_member_joins_while_partitions_move() -> None:
    """K4, K7: handoffs under way have no receiver any more, and no new time."""
    group = Decided(6)
    group.join("a", assignors=("cooperative-sticky",))
    group.join("b", assignors=("cooperative-sticky",))
    moving = {p: group.state.partitions[at(p)].handoff for p in group.draining()}
    assert len(moving) == 3
    group.join("c", assignors=("range", "cooperative-sticky"))
    assert group.draining() == list(range(6))
    own = group.state.partitions
    assert all((own[at(p)].to_flow, own[at(p)].handoff) == (None, seq) for p, seq in moving.items())
    group.release()
    assert computed(group) == [("cooperative-sticky", "eager")]
    assert group.counts() == [2, 2, 2]
