"""A group that reads a queue with `durability=disk`: no program joins it that would force nothing to the disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_partq.core import format
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.events import Delete, QueuesChanged
from spark_partq.core.group.facts import Kind, QueueInGroup
from spark_partq.core.group.invariants import check, check_state
from spark_partq.core.invariants import InvariantError
from tests.core.group.groups import Decided

FORCED = (format.FORCED_WRITES,)


def durable(group: Decided) -> Decided:
    """Its queue is so from now on, and has another revision."""
    group.queue = replace(group.queue, durable=True, revision=group.queue.revision + 1)
    return group


def plain() -> Decided:
    """a reads two queues without it."""
    group = Decided(2)
    group.queue_named("bills", 1)
    group.join("a", queues=("orders", "bills"))
    assert group.state.format.features == () and Kind.FORMAT_RAISED not in group.kinds()
    return group


def upgraded() -> Decided:
    """A program that did not know the rule has added a queue that is to be forced."""
    group = plain()
    state = group.state.copy()
    state.queues["id"] = durable(group).queue
    group.state = state
    return group


def raised_once(group: Decided) -> bool:
    """The decision raised the format, before it added a queue, and says whose writes are forced."""
    facts = [fact for fact in group.facts if fact.kind == Kind.FORMAT_RAISED]
    if not facts:
        return False
    (fact,) = facts
    kinds = group.kinds()
    assert Kind.QUEUE_ADDED not in kinds[: kinds.index(Kind.FORMAT_RAISED)]
    assert json.loads(fact.body or "") == replace(format.of_new_tables(), features=FORCED).body()
    assert fact.cause == "what is written for queue orders is forced to the disk"
    assert group.state.format.features == FORCED
    return True


# ---- when it is raised
def test_the_first_member_says_it() -> None:
    group = durable(Decided(2))
    group.join("a")
    assert raised_once(group)
    assert group.kinds()[:3] == [Kind.GROUP_CREATED, Kind.FORMAT_RAISED, Kind.QUEUE_ADDED]
    group.join("b")
    assert not raised_once(group)
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group.state)))) == group.state


def test_a_member_brings_such_a_queue_to_a_group() -> None:
    group = Decided(2)
    group.queue_named("bills", 1)
    group.join("a", queues=("bills",))
    durable(group)
    group.join("b")
    assert raised_once(group)


def test_a_pattern_finds_such_a_queue() -> None:
    group = Decided(2)
    group.queue_named("bills", 1)
    group.join("a", queues=("bills",), pattern="orders|bills")
    group.do(QueuesChanged(durable(group).queues, group.starts))
    assert raised_once(group)


def test_a_queue_becomes_so() -> None:
    """The group learns of it as of every change of its queues."""
    group = durable(plain())
    group.changed()
    assert raised_once(group)
    group.changed()
    assert group.facts == []


def test_what_is_known_to_be_otherwise_since_does_not_count() -> None:
    group = plain()
    late = QueuesChanged(durable(group).queues, group.starts)
    group.queue = replace(group.queue, durable=False, revision=group.queue.revision + 1)
    group.changed()
    assert group.do(late) == [] and group.state.format.features == ()


def test_it_stays() -> None:
    """When the setting is taken back, when the queue is deleted, and when the group is."""
    group = durable(plain())
    group.changed()
    group.queue = replace(group.queue, durable=False, revision=group.queue.revision + 1)
    group.changed()
    assert not group.state.queues["id"].durable and group.state.format.features == FORCED
    group.do(QueuesChanged({}, {}, ("id",)))
    assert group.state.format.features == FORCED
    group.leave("a")
    group.do(Delete())
    assert group.state.format.features == FORCED
    durable(group).join("a")
    assert not raised_once(group)


# ---- a group that another program left without it
def test_it_is_made_up_for_by_who_joins() -> None:
    """Also by one who reads another queue."""
    group = upgraded()
    group.join("b", queues=("bills",))
    assert raised_once(group)


def test_it_is_made_up_for_when_queues_change() -> None:
    group = upgraded()
    group.do(QueuesChanged({"new": QueueInGroup("new", 1, 0, 0)}, {("new", 0): 0}))
    assert raised_once(group)


def test_nothing_is_made_up_for_once_the_queue_is_gone() -> None:
    group = upgraded()
    group.do(QueuesChanged({}, {}, ("id",)))
    assert group.kinds()[0] == Kind.QUEUE_REMOVED and group.state.format.features == ()


def test_other_decisions_are_not_refused_meanwhile() -> None:
    group = upgraded()
    group.leave("a")
    check_state(group.state, Acks())
    assert group.state.format.features == ()


# ---- the invariant
@pytest.mark.parametrize("act", ["joined", "changed"])
def test_a_group_without_it_must_not_be(act: str) -> None:
    group = plain()
    before = group.state.copy()
    if act == "joined":
        durable(group).join("b")
    else:
        durable(group).changed()
    facts = [fact for fact in group.facts if fact.kind != Kind.FORMAT_RAISED]
    after = before.copy()
    for fact in facts:
        after.replay(fact)
    with pytest.raises(
        InvariantError, match=r"an older program may join the group .* though queue orders asks for that"
    ):
        check(before, after, facts, group.acks)
