"""K1: assignors that fail, and what an assignor is told besides members and partitions: loads and weights."""

from __future__ import annotations

import json

import pytest

from spark_partq.core.errors import AssignorError, UnknownAssignorError
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import AssignmentDue, Leave, LoadsMeasured
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.state import GroupState
from tests.core.group.groups import Decided
from tests.core.group.protocols import COMPUTED, RANGE, eager


# ---- assignors that fail
def test_a_join_that_an_assignor_fails_for() -> None:
    """K1: the query that starts hears why, and nothing is decided."""
    group = Decided(2)
    group.fails = True
    with pytest.raises(AssignorError):
        group.join("a")
    assert group.state == GroupState()


def test_who_leaves_may_leave() -> None:
    """K1: the assignment stays due, whoever refreshes is told to compute it, and hears why it fails until it does not."""
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
