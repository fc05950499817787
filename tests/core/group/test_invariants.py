"""The invariants of a group: each of them can be broken, and says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.events import Promoted
from spark_partq.core.group.facts import GroupFact, Kind, Status
from spark_partq.core.group.invariants import check, check_assignment, check_balance, check_state
from spark_partq.core.group.state import GroupState
from spark_partq.core.invariants import InvariantError
from tests.core.group.groups import Decided, at

Change = Callable[[GroupState], object]


# ---- groups
def ready() -> Decided:
    """a and b have two partitions each."""
    group = Decided(4)
    group.join("a", flows=2)
    group.leave("a")
    group.join("a")
    group.join("b")
    group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3]} and group.state.status is Status.READY
    return group


def moving() -> Decided:
    """Partitions 2 and 3 are on their way from a to b."""
    group = Decided(4)
    group.join("a")
    group.join("b")
    assert group.draining() == [2, 3] and group.state.status is Status.REBALANCING
    return group


def eager() -> Decided:
    """Everything that a has is revoked, and the assignment is to come."""
    group = Decided(4)
    group.join("a", assignors=("range",))
    group.join("b", assignors=("range",))
    assert group.draining() == [0, 1, 2, 3] and group.state.assignment_due
    return group


def waiting() -> Decided:
    """In the holddown: b is gone, and nobody has 2 and 3."""
    group = Decided(4, delay_ms=1_000)
    group.join("a")
    group.over() if group.state.status is Status.HOLDDOWN else None
    group.join("b")
    group.over()
    group.release()
    group.leave("b")
    assert group.owned() == {"a/0": [0, 1], "-": [2, 3]} and group.state.status is Status.HOLDDOWN
    return group


def owned(partition: int, **changes: Any) -> Change:
    """The ownership of a partition is another."""

    def change(state: GroupState) -> None:
        state.partitions[at(partition)] = replace(state.partitions[at(partition)], **changes)

    return change


def attribute(**changes: Any) -> Change:
    return lambda state: [setattr(state, name, value) for name, value in changes.items()]


def member(name: str, **changes: Any) -> Change:
    def change(state: GroupState) -> None:
        state.members[name] = replace(state.members[name], **changes)

    return change


# ---- states
BROKEN_STATES: list[tuple[str, Callable[[], Decided], Change]] = [
    ("partition 3 of other: the group does not know the queue", ready, lambda s: s.partitions.update({("other", 3): s.partitions.pop(at(3))})),
    ("partition 0 of id: lineage epoch 9 is past epoch", ready, owned(0, lineage_epoch=9)),
    ("partition 0 of id: delivered 3 lies before start 4", ready, owned(0, start=4, delivered=3)),
    ("nobody owns it, yet it drains", waiting, owned(2, to_flow="a/0")),
    ("nobody owns it, yet it drains", waiting, owned(2, handoff=0)),
    ("its owner c/0 is gone", ready, owned(0, flow="c/0")),
    ("its owner is another process than the member", ready, owned(0, incarnation="a0")),
    ("its owner a/0 does not read the queue", ready, member("a", queues=("others",))),
    ("a handoff without a number has no deadline", ready, owned(0, to_flow="b/0")),
    ("it is revoked, and no assignment is to come", moving, owned(2, to_flow=None)),
    ("it drains to c/0, which is gone", moving, owned(2, to_flow="c/0")),
    ("it drains to b/0, which does not read the queue", moving, member("b", queues=("others",))),
    ("it drains to its own owner", moving, owned(2, to_flow="a/0")),
    ("a floor of a partition that the group does not have", ready, attribute(floors={at(7): 0})),
    ("R7: Ready, yet a handoff is under way", moving, attribute(status=Status.READY)),
    ("R7: Rebalancing, yet no handoff is under way", ready, attribute(status=Status.REBALANCING, assigned_seq=10**6)),
    ("R1: not balanced", ready, owned(2, flow="a/0", incarnation="a2")),
    ("R1: partition 2 of id has no live target in status Ready", ready, owned(2, flow=None)),
    ("R8: partition 0 of id has no live target while Rebalancing", moving, owned(0, flow=None)),
]  # fmt: skip


@pytest.mark.parametrize(("why", "group", "change"), BROKEN_STATES)
def test_a_state_that_must_not_be(why: str, group: Callable[[], Decided], change: Change) -> None:
    state, acks = group().state.copy(), Acks()
    check_state(state, acks)
    change(state)
    with pytest.raises(InvariantError, match=re.escape(why)):
        check_state(state, acks)


def test_only_the_owner_acknowledges(monkeypatch: pytest.MonkeyPatch) -> None:
    """W2: a position that counts what a former process acknowledged."""
    group = ready()
    own = group.state.partitions[at(0)]
    group.acks.add(AckRow(own.incarnation, 1, *at(0), own.epoch, 3, 3))
    group.acks.add(AckRow(own.incarnation, 1, *at(0), own.epoch - 1, 7, 7))
    check_state(group.state, group.acks)
    for wrong in (7, 2):
        monkeypatch.setattr(GroupState, "position", lambda *_, wrong=wrong: wrong)
        with pytest.raises(InvariantError, match="only its epoch and incarnation may acknowledge"):
            check_state(group.state, group.acks)


# ---- balance
def test_one_more_is_balanced_and_two_are_not() -> None:
    """R1."""
    state = ready().state.copy()
    state.partitions.pop(at(3))
    check_balance(state)
    state.partitions.pop(at(2))
    with pytest.raises(InvariantError, match=r"R1: not balanced: \{'a/0': 2, 'b/0': 0\}"):
        check_balance(state)


@pytest.mark.parametrize(
    "unlike", [{"weight": 2.0}, {"assignors": ("weighted", "balanced")}], ids=["weight", "assignor"]
)
def test_only_members_that_are_alike_have_equal_numbers(unlike: dict[str, Any]) -> None:
    state = ready().state.copy()
    for number in (2, 3):
        state.partitions.pop(at(number))
    member("b", **unlike)(state)
    check_balance(state)


# ---- assignments
@pytest.mark.parametrize(
    ("why", "group", "body"),
    [
        ("K7: not everybody supports range", ready, {"assignor": "range", "protocol": "cooperative"}),
        ("K7: the protocol is eager", ready, {"assignor": "balanced", "protocol": "eager"}),
        ("K7: the protocol is cooperative", eager, {"assignor": "range", "protocol": "cooperative"}),
        ("K4: 4 partitions are still owned when an eager", eager, {"assignor": "range", "protocol": "eager"}),
    ],
)
def test_an_assignment_that_must_not_be(why: str, group: Callable[[], Decided], body: dict[str, str]) -> None:
    with pytest.raises(InvariantError, match=why):
        check_assignment(group().state, body)


def test_a_cooperative_assignment_leaves_what_is_owned() -> None:
    check_assignment(ready().state, {"assignor": "balanced", "protocol": "cooperative"})


# ---- steps
def decided(group: Decided, act: Callable[[Decided], object]) -> tuple[GroupState, list[GroupFact]]:
    before = group.state.copy()
    act(group)
    return before, group.facts


def grant_3(**changes: Any) -> tuple[Callable[[], Decided], Callable[[Decided], object], str, dict[str, Any]]:
    """b is granted partition 3; the fact has these changes."""

    def group() -> Decided:
        moved = moving()
        moved.ack(3, 4, 6)
        own = moved.state.partitions[at(3)]
        moved.acks.add(AckRow(own.incarnation, 2, *at(3), own.epoch, 6, 6))
        return moved

    return group, lambda g: g.release(3), Kind.GRANTED, changes


def forced_3(**changes: Any) -> tuple[Callable[[], Decided], Callable[[Decided], object], str, dict[str, Any]]:
    """The deadline of partition 3 passes: of what a was given up to 6, it acknowledged 4."""

    def group() -> Decided:
        moved = moving()
        moved.ack(3, 4, 6)
        return moved

    return group, lambda g: g.deadline(3), Kind.GRANTED, changes


def left_0(**changes: Any) -> tuple[Callable[[], Decided], Callable[[Decided], object], str, dict[str, Any]]:
    """a is gone without a word: nobody has partition 0, of which it acknowledged 4."""

    def group() -> Decided:
        known = Decided(4, delay_ms=1_000)
        known.join("a")
        known.join("b")
        known.over()
        known.release()
        known.ack(0, 4, 6)
        return known

    return group, lambda g: g.leave("a", expired=True), Kind.UNASSIGNED, changes


def started_2(**changes: Any) -> tuple[Callable[[], Decided], Callable[[Decided], object], str, dict[str, Any]]:
    def group() -> Decided:
        known = Decided(4)
        known.join("a")
        return known

    return group, lambda g: g.join("b"), Kind.HANDOFF_STARTED, changes


BROKEN_STEPS = [
    ("partition 3 of id: granted from 5, but its position is 6", grant_3(offset=5)),
    ("H4: partition 3 of id: delivered is 7 instead of 6", grant_3(delivered=7)),
    ("partition 3 of id: granted to c/0, which is gone", grant_3(flow="c/0")),
    ("partition 3 of id: granted to a former process", grant_3(incarnation="b0")),
    ("partition 3 of id: granted to a former process", grant_3(instance="c")),
    ("W2: partition 3 of id: granted under epoch 1 after 1", grant_3(epoch=1, lineage_epoch=1)),
    ("partition 3 of id: lineage epoch 1 instead of 2", grant_3(lineage_epoch=1)),
    ("partition 3 of id: granted from 6, but its position is 4", forced_3(offset=6)),
    ("H4: partition 3 of id: delivered is 4 instead of 6", forced_3(delivered=4)),
    ("partition 0 of id: left at 5, but its position is 4", left_0(offset=5)),
    ("H4: partition 0 of id: delivered is 5 instead of 6", left_0(delivered=5)),
    ("H4: the lineage of partition 0 of id survives its deadline", left_0(forced=True, lineage_epoch=0)),
    ("partition 2 of id: handed off to c/0, which is gone", started_2(to_flow="c/0")),
    ("partition 2 of id: handed off to None, which is gone", started_2(to_flow=None)),
]


@pytest.mark.parametrize(("why", "step"), BROKEN_STEPS, ids=[why for why, _ in BROKEN_STEPS])
def test_a_step_that_must_not_be(why: str, step: tuple[Any, ...]) -> None:
    """Replay lets them pass, for a table may have them; nobody may decide them."""
    group, act, kind, changes = step
    acting = group()
    before, facts = decided(acting, act)
    place = next(i for i, fact in enumerate(facts) if fact.kind == kind)
    broken = [*facts[:place], replace(facts[place], **changes), *facts[place + 1 :]]
    with pytest.raises(InvariantError, match=re.escape(why)):
        check(before, acting.state, broken, acting.acks)


def test_a_holddown_needs_a_delay() -> None:
    """R5."""
    group = waiting()
    before = ready().state
    with pytest.raises(InvariantError, match="R5: a holddown without a delay"):
        check(before, group.state, [GroupFact(Kind.STATUS_CHANGED, status=Status.HOLDDOWN, flows=2)], group.acks)


def test_nothing_is_handed_off_or_given_away_in_the_holddown() -> None:
    """R5."""
    group = waiting()
    own = group.state.partitions[at(0)]
    started = GroupFact(
        Kind.HANDOFF_STARTED, "orders", *at(0), flow="a/0", to_flow="a/0", epoch_before=own.epoch, epoch=own.epoch
    )
    with pytest.raises(InvariantError, match="R5: a handoff of partition 0 of id starts in the holddown"):
        check(group.state, group.state, [started], group.acks)
    free, a = group.state.partitions[at(2)], group.state.members["a"]
    granted = GroupFact(
        Kind.GRANTED, "orders", *at(2), offset=free.start, delivered=free.delivered, epoch_before=free.epoch,
        epoch=free.epoch + 1, lineage_epoch=free.epoch + 1, flow="a/0", forced=False, instance="a", incarnation=a.incarnation,
    )  # fmt: skip
    with pytest.raises(InvariantError, match="R5: partition 2 of id is given away in the holddown"):
        check(group.state, group.state, [granted], group.acks)


def test_a_floor_is_not_past_the_position() -> None:
    """Q8: but a promotion may raise it to the first message that there is."""
    group = ready()
    own = group.state.partitions[at(0)]
    fact = GroupFact(
        Kind.FLOOR, "orders", *at(0), offset=5, epoch=own.epoch, epoch_before=own.epoch, lineage_epoch=own.lineage_epoch
    )
    with pytest.raises(InvariantError, match="Q8: the floor of partition 0 of id lies past its position 0"):
        check(group.state, group.state, [fact], group.acks)
    after = group.state.copy()
    after.replay(fact)
    check(group.state, after, [fact], group.acks, [Promoted("id", {0: 5}, {})])
    with pytest.raises(InvariantError, match="Q8"):
        check(group.state, after, [fact], group.acks, [Promoted("id", {0: 4}, {})])


# ---- from one state to the next
BROKEN_PROGRESS: list[tuple[str, Change]] = [
    ("partition 0 of id: the epoch went from", owned(0, epoch=0, lineage_epoch=0)),
    ("partition 0 of id: the position went from 4 to 0", owned(0, start=0)),
    ("partition 0 of id: delivered went back", owned(0, delivered=5)),
    ("W2: partition 0 of id has a new owner under the same epoch", owned(0, flow="b/0", incarnation="b4")),
    ("H2: partition 0 of id changed though neither its owner nor its target did", owned(0, last_flow="b/0")),
    ("H1: the handoff of partition 2 of id got new time", owned(2, to_flow="b/1", handoff=99)),
    ("the group knows an older orders than before", lambda s: s.queues.update(id=replace(s.queues["id"], revision=0))),
    ("partition 1 of id: the floor sank", lambda s: s.floors.update({at(1): 1})),
    ("partition 1 of id: the floor sank", lambda s: s.floors.pop(at(1))),
]


@pytest.mark.parametrize(("why", "change"), BROKEN_PROGRESS, ids=[why for why, _ in BROKEN_PROGRESS])
def test_what_never_goes_back(why: str, change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the replay of a fact did it."""
    group = moving()
    before = group.state.copy()
    member("b", flows=2)(before)
    owned(0, start=4, delivered=6)(before)
    owned(1, start=3, delivered=3)(before)
    before.floors[at(1)] = 2
    before.queues["id"] = replace(before.queues["id"], revision=1)
    check(before, before.copy(), [], group.acks)
    fact = GroupFact(Kind.QUEUE_ADDED)
    after = before.copy()
    change(after)
    monkeypatch.setattr(GroupState, "replay", lambda state, _: change(state))
    with pytest.raises(InvariantError, match=re.escape(why)):
        check(before, after, [fact], group.acks)


def test_a_state_is_what_its_facts_say() -> None:
    group = ready()
    after = group.state.copy()
    after.seq += 1
    with pytest.raises(InvariantError, match="not what its facts say"):
        check(group.state, after, [], group.acks)


# ---- deletion
def test_a_deletion_leaves_nothing() -> None:
    """W2: but the epochs."""
    group = ready()
    for name in "ab":
        group.leave(name)
    deleted = GroupFact(Kind.GROUP_DELETED, body=json.dumps({}))
    before, after = group.state, GroupState(group.state.seq + 1, deletions=1, last_epoch=9, format=group.state.format)
    check(before, after, [deleted], group.acks)
    broken = [
        ("committed with other facts", before, after, [deleted, deleted]),
        ("an active group is deleted", ready().state, after, [deleted]),
        ("something outlives its group", before, replace(after, deletions=2), [deleted]),
        ("something outlives its group", before, replace(after, seq=after.seq + 1), [deleted]),
        ("W2: epochs begin anew", before, replace(after, last_epoch=0), [deleted]),
    ]
    for why, was, now, facts in broken:
        with pytest.raises(InvariantError, match=why):
            check(was, now, facts, group.acks)
