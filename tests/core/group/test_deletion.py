"""A group is deleted, and one of its name is created again (Q8)."""

from __future__ import annotations

import json

import pytest

from spark_partq.core.errors import GroupActiveError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Delete, Event, Join, Leave, QueuesChanged, RaiseFloors
from spark_partq.core.group.facts import Kind, Member, QueueInGroup
from spark_partq.core.group.invariants import check
from spark_partq.core.group.state import GroupState

QUEUES = {"id": QueueInGroup("q", 2, 0, 1000)}
JOIN = Join(Member("a", "a1", 1, 10_000, ("balanced",), ("q",), "host"), QUEUES, {("id", 0): 0, ("id", 1): 0})
LEAVE = Leave("a", "a1")


def follow(state: GroupState, *events: Event) -> GroupState:
    facts = decide(state, Acks(), events)
    after = state.copy()
    for fact in facts:
        after.replay(fact)
    check(state, after, facts, Acks(), events)
    return after


def test_nothing_is_left_of_it() -> None:
    joined = follow(GroupState(), JOIN)
    left = follow(joined, LEAVE)
    (fact,) = decide(left, Acks(), [Delete()], "somebody")
    assert (fact.kind, fact.cause, fact.by) == (Kind.GROUP_DELETED, "the group was deleted", "somebody")
    deleted = follow(left, Delete())
    assert (deleted.exists, deleted.deletions) == (False, 1)
    assert not (deleted.queues or deleted.partitions or deleted.floors or deleted.removed or deleted.basis)
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(deleted)))) == deleted


def test_one_that_is_created_again_has_higher_epochs() -> None:
    before = follow(GroupState(), JOIN, LEAVE)
    last = max(own.epoch for own in before.partitions.values())
    anew = follow(follow(before, Delete()), JOIN)
    assert anew.exists and all(own.epoch > last for own in anew.partitions.values())
    again = follow(follow(anew, LEAVE), Delete())
    assert again.deletions == 2 and again.last_epoch > last


def test_an_active_one_is_not_deleted() -> None:
    with pytest.raises(GroupActiveError, match="active: a consume in it"):
        decide(follow(GroupState(), JOIN), Acks(), [Delete()])


@pytest.mark.parametrize("late", [LEAVE, QueuesChanged(QUEUES, {("id", 0): 0}), RaiseFloors("id")])
def test_what_comes_late_does_not_make_it_anew(late: Event) -> None:
    deleted = follow(follow(GroupState(), JOIN, LEAVE), Delete())
    assert decide(deleted, Acks(), [late]) == []


def test_one_that_has_attached_and_never_joined() -> None:
    """Who would join finds that it was deleted, and attaches again."""
    facts = decide(GroupState(), Acks(), [Delete()])
    assert [fact.kind for fact in facts] == [Kind.GROUP_CREATED, Kind.GROUP_DELETED]
