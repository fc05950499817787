"""R3, R5, K6: who returns, restarts or stands by, where members differ or an assignor other than `balanced` decides."""

from __future__ import annotations

import pytest

from spark_partq.core.group.choice import choose
from spark_partq.core.group.facts import Kind, PartitionState, Status
from tests.core.group.groups import Decided
from tests.core.group.protocols import COMPUTED, RANGE, computed, eager, two_queues


# ---- a holddown that ends early
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


# ---- restarts
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
