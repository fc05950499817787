"""K3-K7: which assignor and protocol, the eager protocol step by step, unequal subscriptions, queues that come and go."""

from __future__ import annotations

import json

import pytest

from spark_partq.core.errors import AssignorError, CorruptTableError, GroupMismatchError, UnknownAssignorError
from spark_partq.core.group.choice import choose, common_assignors
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import (
    AssignmentDue,
    DeadlinePassed,
    Leave,
    LoadsMeasured,
    QueuesChanged,
    RaiseFloors,
)
from spark_partq.core.group.facts import GroupFact, Kind, Member, PartitionState, Protocol, Status
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.state import GroupState
from tests.core.group.groups import Decided, at

RANGE, STICKY = ("range",), ("sticky",)
COMPUTED = Kind.ASSIGNMENT_COMPUTED


def computed(group: Decided) -> list[tuple[str, str]]:
    """Assignor and protocol of the assignments that the last decision computed."""
    bodies = [json.loads(fact.body or "") for fact in group.facts if fact.kind == COMPUTED]
    return [(body["assignor"], body["protocol"]) for body in bodies]


def eager(*names: str, assignors: tuple[str, ...] = RANGE, delay_ms: int = 0, **options: int) -> Decided:
    """A group on 6 partitions whose members have come one after the other, and that is Ready."""
    group = Decided(6, delay_ms, **options)
    for name in names:
        group.join(name, assignors=assignors)
        group.over()
        if group.draining():
            group.release()
    assert group.state.status is Status.READY
    return group


# ---- the choice
def voter(name: str, order: int, *assignors: str) -> Member:
    eager = {"range", "roundrobin", "sticky"} & set(assignors)
    return Member(name, f"{name}1", 1, 1, assignors, ("q",), cooperative=not eager, order=order)


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([["range"]], ("range", "eager")),
        ([["balanced"], ["balanced"]], ("balanced", "cooperative")),
        ([["weighted", "balanced"], ["balanced", "weighted"], ["balanced", "weighted"]], ("balanced", "cooperative")),
        ([["weighted", "balanced"], ["balanced", "weighted"]], ("weighted", "cooperative")),  # the oldest one's order
        # What not all support gets no votes, and those who prefer it vote for their next.
        ([["sticky", "range", "roundrobin"], ["roundrobin", "range"], ["range", "roundrobin"]], ("range", "eager")),
        ([["cooperative-sticky", "range"], ["range"]], ("range", "eager")),
        ([["cooperative-sticky", "range"], ["cooperative-sticky"]], ("cooperative-sticky", "eager")),
    ],
)
def test_the_assignor_that_all_support_with_the_most_votes(lists: list[list[str]], chosen: tuple[str, str]) -> None:
    """K7: and the protocol is eager as long as anybody lists an assignor that knows no other."""
    members = [voter(name, i, *listed) for i, (name, listed) in enumerate(zip("abc", lists, strict=False))]
    assert choose(members) == chosen
    assert choose(members[::-1]) == chosen  # it goes by who joined, not by how they stand in a table


def test_what_is_in_common() -> None:
    """K7: in the order of the member that joined first."""
    members = [voter("b", 2, "range", "sticky"), voter("a", 1, "weighted", "sticky", "range")]
    assert common_assignors(members) == ["sticky", "range"]


def test_a_member_with_nothing_in_common() -> None:
    """K7: it is refused, whatever single members have in common with it."""
    group = Decided(4)
    group.join("a", assignors=("range", "sticky"))
    group.join("b", assignors=("sticky", "roundrobin"))
    with pytest.raises(GroupMismatchError, match=r"GROUP_MISMATCH.*no assignor in common.*c: range, roundrobin"):
        group.join("c", assignors=("range", "roundrobin"))


@pytest.mark.parametrize("static", [False, True])
def test_two_rolling_restarts_from_eager_to_cooperative(static: bool) -> None:
    """K7: and back; nobody is ever without a common assignor, and only two rebalances are due to it."""
    group = Decided(6, 1_000)
    for name in "abc":
        group.join(name, assignors=RANGE, static=static)
        group.over()
        group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}
    both, new = ("cooperative-sticky", "range"), ("cooperative-sticky",)
    told = []
    for listed in (both, new, both, RANGE):
        for name in "abc":
            group.join(name, assignors=listed, static=static)
            assert group.kinds()[:3] == ["MemberJoined", "Granted", "Granted"]
            if group.state.status is Status.HOLDDOWN:
                group.over()
                revoked = group.times(Kind.HANDOFF_STARTED)
                if revoked:
                    group.release()
                told.append((name, listed, *computed(group), revoked))
            assert group.state.status is Status.READY
            assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}
    assert told == [
        ("c", both, ("cooperative-sticky", "eager"), 6),
        ("c", new, ("cooperative-sticky", "cooperative"), 0),
        ("a", both, ("cooperative-sticky", "eager"), 6),
        ("a", RANGE, ("range", "eager"), 6),
    ]


# ---- eager, step by step
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


# ---- members that come and go while everything is revoked
def revoking(*names: str, assignors: tuple[str, ...] = RANGE) -> Decided:
    """Everything is being revoked, as the last of these has joined."""
    group = eager(*names[:-1], assignors=assignors)
    group.join(names[-1], assignors=assignors)
    assert group.state.revoking
    return group


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
    assert group.times(Kind.HANDOFF_CANCELLED) == 4
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


def test_a_holddown_of_an_eager_group_that_ends_early() -> None:
    """R5: who is back is given what it had; nobody is asked to give up anything."""
    group = eager("a", "b", delay_ms=1_000)
    group.leave("b")
    assert group.owned() == {"a/0": [0, 1, 2], "-": [3, 4, 5]}
    group.join("b", assignors=RANGE)
    assert group.kinds() == ["MemberJoined", *["Granted"] * 3, "StatusChanged"]
    assert group.state.status is Status.READY


def test_another_member_instead_is_not_the_same_to_other_assignors() -> None:
    """R5: under `range` who comes may sort elsewhere, so the holddown goes on."""
    group = eager("a", "c", delay_ms=1_000)
    group.leave("c")
    group.join("b", assignors=RANGE)
    assert group.state.status is Status.HOLDDOWN and group.owned()["-"] == [3, 4, 5]


# ---- K6
def test_a_static_member_that_restarts_triggers_nothing() -> None:
    """K6: also under an assignor that knows no sticking, and in the middle of others."""
    group = Decided(6, 1_000)
    for name in "abc":
        group.join(name, assignors=RANGE, static=True)
        group.over()
        group.release()
    had = group.owned()
    group.join("b", assignors=RANGE, static=True)
    assert group.kinds() == ["MemberJoined", "Granted", "Granted"]
    assert group.owned() == had and group.state.status is Status.READY


def test_a_restart_that_changes_what_the_assignor_sees() -> None:
    """K6: fewer flows, another weight or other queues are no mere restart."""
    for options in ({"flows": 1}, {"weight": 2.0}, {"queues": ()}, {"assignors": ("sticky", "range")}):
        group = Decided(6, 1_000)
        group.join("a", flows=2, assignors=("range", "sticky"))
        group.join("a", **{"flows": 2, "assignors": ("range", "sticky"), **options})
        assert group.state.status is Status.HOLDDOWN, options


# ---- standbys
@pytest.mark.parametrize("options", [{}, {"static": True}])
def test_the_standby_rule_holds_for_balanced(options: dict[str, bool]) -> None:
    """R3: also where some members are static and others are not."""
    group = Decided(2)
    group.join("a", flows=2)
    group.join("b", **options)
    assert group.kinds() == ["MemberJoined"]
    group.leave("a")
    assert group.times(COMPUTED) == 1  # b takes one, and the other goes where balance needs it
    group = Decided(2)
    group.join("a")
    group.join("c", **options)
    group.release()
    group.join("b", **options)
    had = group.owned()["a/0"]
    group.leave("a")
    assert group.kinds() == ["MemberLeft", "Unassigned", "Granted"]
    assert group.owned()["b/0"] == had


@pytest.mark.parametrize("assignors", [RANGE, ("cooperative-sticky",), ("weighted",)])
def test_no_other_assignor_has_standbys(assignors: tuple[str, ...]) -> None:
    """R3: who has nothing is in every assignment, and does not take over by himself."""
    group = Decided(2, 1_000)
    group.join("a", flows=2, assignors=assignors)
    group.join("b", assignors=assignors)
    assert group.state.status is Status.HOLDDOWN
    group.over()
    if group.draining():
        group.release()
    group.leave("a")
    assert group.times(Kind.GRANTED) == 0 and group.state.status is Status.HOLDDOWN


def test_flows_that_differ_have_no_standbys() -> None:
    """R3: with other queues or another weight it is not only the number that counts."""
    for options in ({"weight": 3.0}, {"queues": ("orders", "returns")}):
        group = Decided(2, 1_000)
        group.queue_named("returns", 1)
        group.join("a", flows=2)
        if "queues" in options:
            group.changed()
        group.join("b", **options)
        assert group.state.status is not Status.READY, options


def test_who_leaves_takes_the_assignor_along() -> None:
    """R3, K7: what is left prefers another assignor, so no standby takes over by the rule of the one before."""
    group = Decided(2)
    group.join("a", assignors=("cooperative-sticky", "balanced"))
    group.join("b", flows=2, assignors=("balanced", "cooperative-sticky"))
    group.join("c", assignors=("balanced", "cooperative-sticky"))
    group.release()
    assert group.state.assignor == "balanced" and choose(group.state.members.values())[0] == "balanced"
    group.leave("c")
    assert computed(group) == [("cooperative-sticky", "cooperative")]


# ---- unequal subscriptions
def two_queues() -> Decided:
    """a reads orders (4), b reads orders and returns (2), c reads returns."""
    group = Decided(4, 1_000)
    group.queue_named("returns", 2)
    for name, queues in (("a", ("orders",)), ("b", ("orders", "returns")), ("c", ("returns",))):
        group.join(name, queues=queues)
        group.over()
        if group.draining():
            group.release()
    assert group.state.status is Status.READY
    return group


def test_each_gets_only_what_it_reads() -> None:
    """K1: and as even as that allows."""
    group = two_queues()
    held = group.holds()
    assert set(held["a/0"]) == {"orders"} and set(held["c/0"]) == {"returns"}
    assert sorted(sum(map(len, queues.values())) for queues in held.values()) == [2, 2, 2]


def test_a_queue_that_nobody_reads_any_more() -> None:
    """K3: its positions are kept, nobody owns it, and who reads it again goes on there."""
    group = Decided(2)
    group.queue_named("returns", 1)
    partition_id = ("returns", 0)
    group.join("a", queues=("orders", "returns"))
    own = group.state.partitions[partition_id]
    group.acks.rows[partition_id, own.epoch, own.incarnation] = 7
    group.join("a", queues=("orders",))
    assert group.holds() == {"a/0": {"orders": [0, 1]}, "-": {"returns": [0]}}
    assert group.state.status is Status.READY and partition_id not in group.state.subscribed_partitions
    group.do(RaiseFloors("returns"))
    assert group.state.floors[partition_id] == 7
    group.first = 100
    group.join("a", queues=("orders", "returns"))
    assert group.holds() == {"a/0": {"orders": [0, 1], "returns": [0]}}
    assert group.state.partitions[partition_id].start == 7
    # Its lineage ended with the return without it.
    assert group.state.partitions[partition_id].lineage_epoch > own.epoch


def test_a_restart_without_a_queue_keeps_nothing_of_it() -> None:
    """K6: the rest is kept; what it drained towards it stays where it is."""
    group = two_queues()
    group.join("b", queues=("orders",))
    assert group.state.status is Status.HOLDDOWN
    assert "returns" not in group.holds().get("b/0", {})
    group.over()
    while group.state.draining:
        group.release()
    assert group.holds()["c/0"] == {"returns": [0, 1]}


def test_a_receiver_that_does_not_read_the_queue_any_more() -> None:
    """K6, H1: the handoff to it is cancelled."""
    group = Decided(2, handoff_ms=9_000)
    group.queue_named("returns", 2)
    group.join("a", queues=("orders", "returns"))
    group.join("b", queues=("orders", "returns"))
    assert {own.to_flow for own in group.state.partitions.values() if own.state is PartitionState.DRAINING} == {"b/0"}
    group.join("b", queues=())
    assert not group.state.draining
    assert group.holds() == {"a/0": {"orders": [0, 1], "returns": [0, 1]}}


def test_a_holddown_with_unequal_subscriptions_ends_early() -> None:
    """R5: if each flow is what it was; the number alone tells nothing."""
    group = two_queues()
    had = group.holds()
    group.leave("c")
    group.join("d", queues=("orders",))
    assert group.state.status is Status.HOLDDOWN
    group.leave("d")
    assert group.state.status is Status.HOLDDOWN
    group.join("c", queues=("returns",))
    assert group.state.status is Status.READY
    assert group.holds() == had


def test_the_number_of_alike_flows_is_no_return_to_unequal_ones() -> None:
    """R5: as many flows as before, and all alike now, but not what they were."""
    group = Decided(2, 1_000)
    group.queue_named("returns", 2)
    group.join("a", queues=("orders",))
    group.join("b", queues=("returns",))
    group.over()
    assert group.holds() == {"a/0": {"orders": [0, 1]}, "b/0": {"returns": [0, 1]}}
    group.leave("b")
    group.join("c", queues=("orders",))
    assert group.state.status is Status.HOLDDOWN
    group.over()
    group.release()
    assert group.holds() == {"a/0": {"orders": [0]}, "c/0": {"orders": [1]}, "-": {"returns": [0, 1]}}


def test_those_who_are_left_are_alike_but_not_what_the_group_was() -> None:
    """R5: with its only reader a queue drops out of the count; that is no return to what was."""
    group = Decided(2, 1_000)
    group.queue_named("returns", 2)
    group.join("a", flows=3, queues=("orders",))
    group.join("c", flows=3, queues=("orders", "returns"))
    group.over()
    group.release()
    had = group.holds()
    group.leave("c", expired=True)
    assert group.state.status is Status.HOLDDOWN and group.times(Kind.GRANTED) == 0
    group.join("c", flows=3, queues=("orders", "returns"))
    assert group.holds() == had and group.state.status is Status.READY


# ---- queues that come and go
def test_a_pattern_finds_queues() -> None:
    """K3: created, grown, deleted; each at once, also in a holddown."""
    group = Decided(2, 1_000)
    group.join("a", queues=(), pattern="o.*|r.*")
    group.queue_named("returns", 1)
    group.queue_named("others", 1)
    group.queue_named("xyz", 1)
    group.changed()
    assert group.holds() == {"a/0": {"orders": [0, 1], "returns": [0], "others": [0]}, "-": {"xyz": [0]}}
    assert group.state.status is Status.READY
    assert {f.cause for f in group.facts if f.kind == COMPUTED} == {"the partitions of others, returns changed"}
    group.join("b", queues=(), pattern="o.*|r.*")
    assert group.state.status is Status.HOLDDOWN
    group.queue_named("returns", 3)
    group.changed()
    assert group.state.status is Status.REBALANCING
    group.release()
    assert group.counts() == [3, 3]
    del group.more["others"]
    group.changed("others")
    assert group.times(Kind.QUEUE_REMOVED) == 1 and group.state.status is not Status.HOLDDOWN
    assert group.changed("others") == []


def test_queues_come_to_a_group_that_has_none() -> None:
    """K3: whose members have been waiting for them."""
    group = Decided(1)
    queue = group.queue
    group.join("a", queues=(), pattern="none-.*")
    assert group.state.status is Status.READY
    group.queue_named("none-1", 2)
    group.queue = queue
    group.changed()
    assert group.holds()["a/0"] == {"none-1": [0, 1]}
    del group.more["none-1"]
    group.changed("none-1")
    group.queue_named("none-2", 1)
    group.changed()
    assert group.holds()["a/0"] == {"none-2": [0]}


def test_a_queue_that_nobody_reads_stops_nobody() -> None:
    """K3: whether it comes, grows or goes."""
    group = eager("a", "b")
    group.queue_named("others", 1)
    assert group.changed() and group.state.status is Status.READY
    group.queue_named("others", 2)
    assert group.changed() and group.state.status is Status.READY
    del group.more["others"]
    group.changed("others")
    assert group.kinds() == ["QueueRemoved"]


def test_new_settings_of_a_queue_move_nothing() -> None:
    group = eager("a", "b")
    group.queue_named("others", 1)
    group.queue = Decided(6, 7_000, 8_000).queue
    group.changed()
    assert group.times(Kind.STATUS_CHANGED) == 0
    assert group.state.rebalance_delay_ms == 7_000


@pytest.mark.parametrize("assignors", [RANGE, ("balanced",)])
def test_a_queue_is_deleted_while_it_drains(assignors: tuple[str, ...]) -> None:
    """K3: the rebalance ends without it."""
    group = Decided(2)
    group.queue_named("returns", 2)
    group.join("a", queues=("orders", "returns"), assignors=assignors)
    group.join("b", queues=("orders", "returns"), assignors=assignors)
    for partition in set(group.draining()):
        if group.state.partitions[at(partition)].state is PartitionState.DRAINING:
            group.release(partition)
    assert group.state.draining
    del group.more["returns"]
    group.changed("returns")
    if group.state.draining:
        group.release()
    assert group.state.status is Status.READY
    assert group.holds() == {"a/0": {"orders": [0]}, "b/0": {"orders": [1]}}


def test_a_queue_is_made_anew_in_an_eager_revocation() -> None:
    """K3: its partitions are others, of which nothing has to be given up."""
    group = revoking("a", "b")
    group.do(QueuesChanged({"again": group.queue}, {("again", p): 0 for p in range(6)}, ("id",)))
    assert group.state.status is Status.READY
    assert {w[0] for w in group.state.partitions} == {"again"}
    assert group.holds() == {"a/0": {"orders": [0, 1, 2]}, "b/0": {"orders": [3, 4, 5]}}


# ---- assignors that fail
def test_a_join_that_an_assignor_fails_for() -> None:
    """K1: the query that starts hears why, and nothing is decided."""
    group = Decided(2)
    group.fails = True
    with pytest.raises(AssignorError):
        group.join("a")
    assert group.state == GroupState()


def test_who_leaves_may_leave() -> None:
    """K1: the assignment stays due, whoever looks is told to compute it, and hears why it fails until it does not."""
    group = Decided(4)
    group.join("a")
    group.join("b")
    group.release()
    group.fails = True
    group.leave("a")
    assert group.kinds() == ["MemberLeft", "Unassigned", "Unassigned", "StatusChanged"]
    assert group.state.assignment_due
    assert AssignmentDue() in Observer().due(group.state, group.acks, 0)
    with pytest.raises(AssignorError):
        group.do(AssignmentDue())
    group.fails = False
    group.do(AssignmentDue())
    assert group.owned() == {"b/0": [0, 1, 2, 3]} and group.state.status is Status.READY
    assert group.do(AssignmentDue()) == []


def test_a_failing_assignor_keeps_no_dead_member_alive() -> None:
    """R4: whatever else is due is decided, and a session that is over ends though the assignment before it fails."""
    group = Decided(4)
    for name in "abc":
        group.join(name)
        if group.draining():
            group.release()
    group.fails = True
    group.leave("a")
    b = group.state.members["b"]
    group.do(AssignmentDue(), Leave("b", b.incarnation, expired=True))
    assert list(group.state.members) == ["c"]
    group.fails = False
    group.do(AssignmentDue())
    assert group.owned() == {"c/0": [0, 1, 2, 3]}


def test_an_assignor_that_is_not_installed_where_it_is_decided() -> None:
    """K1: a program that only watches can still end sessions and handoffs."""
    group = eager("a", "b")

    def unknown(name: str) -> None:
        raise UnknownAssignorError(f"there is no assignor {name!r}", assignor=name)

    member = group.state.members["b"]
    facts = decide(group.state, group.acks, [Leave("b", member.incarnation, expired=True)], assignor=unknown)  # type: ignore[arg-type]
    assert [fact.kind for fact in facts][:2] == [Kind.MEMBER_LEFT, Kind.UNASSIGNED]
    for fact in facts:
        group.state.replay(fact)
    group.release(0, 1, 2)
    assert group.state.status is Status.READY and group.owned() == {"a/0": list(range(6))}


@pytest.mark.parametrize("assignors", [RANGE, ("balanced",)])
@pytest.mark.parametrize("last", ["release", "deadline"])
def test_the_last_release_counts_though_the_assignor_fails(assignors: tuple[str, ...], last: str) -> None:
    """K1, H1: what is given up is given up."""
    group = Decided(2)
    group.join("a", assignors=assignors)
    group.join("b", assignors=assignors)
    group.fails = True
    for partition in group.draining():
        group.release(partition) if last == "release" else group.deadline(partition)
    assert not group.state.draining
    group.fails = False
    group.do(AssignmentDue())
    assert group.counts() == [1, 1]


def test_a_queue_comes_while_the_assignor_fails() -> None:
    """K3: it is known, and assigned when that can be computed; handoffs under way need not end first."""
    group = Decided(2)
    group.join("a", queues=(), pattern=".*")
    group.join("b", queues=(), pattern=".*")
    group.queue_named("returns", 2)
    group.fails = True
    group.changed()
    assert group.state.assignment_due and group.state.draining
    assert AssignmentDue() in Observer().due(group.state, group.acks, 0)
    group.fails = False
    group.do(AssignmentDue())
    assert not [partition_id for partition_id, own in group.state.partitions.items() if own.target is None]


def test_nothing_is_due_while_something_is_revoked() -> None:
    """K4: nobody asks again and again for what cannot be computed yet."""
    group = revoking("a", "b")
    assert Observer().due(group.state, group.acks, 0) == []


# ---- loads and weights
def test_loads() -> None:
    """K1: measured anew they may move something, and the history says which were computed with."""
    group = Decided(4)
    group.join("a", assignors=("weighted",))
    group.join("b", assignors=("weighted",))
    group.release()
    assert group.counts() == [2, 2]
    group.loads = dict.fromkeys(group.starts, 1.0)
    assert group.do(LoadsMeasured()) == []
    heavy = group.owned()["a/0"]
    group.loads = {w: 50.0 if w[1] in heavy else 1.0 for w in group.starts}
    group.do(LoadsMeasured())
    assert group.facts[0].cause == "the load has shifted"
    (fact,) = [fact for fact in group.facts if fact.kind == COMPUTED]
    assert [load for _, p, load in json.loads(fact.body or "")["loads"] if p in heavy] == [50.0] * 2
    group.release()
    assert group.do(LoadsMeasured()) == []


def test_loads_are_nothing_to_other_assignors() -> None:
    group = Decided(4)
    group.join("a")
    group.join("b")
    group.release()
    group.loads = {w: 50.0 if w[1] == 0 else 0.0 for w in group.starts}
    assert group.do(LoadsMeasured()) == []
    group.join("c")
    assert "loads" not in json.loads(next(f.body or "" for f in group.facts if f.kind == COMPUTED))


def test_weights() -> None:
    """K1: of each flow of a member."""
    group = Decided(6)
    group.join("a", weight=2.0)
    group.join("b")
    group.release()
    assert group.counts() == [4, 2]
    group.join("b", weight=2.0)  # no mere restart
    while group.draining():
        group.release()
    assert group.counts() == [3, 3]


# ---- replay
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
