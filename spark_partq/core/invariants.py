"""What must hold of a consumer group, whatever happens to it: checked on every commit of its control table.

The rules are written down once more here, in other words than in the code that keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_partq.core.acks import Acks
from spark_partq.core.group import Flow, GroupFact, GroupState, Held, Kind, Member, Ownership, PartitionId, Status


class InvariantError(AssertionError):
    """A promise about groups is broken."""


def check(before: GroupState, after: GroupState, facts: Sequence[GroupFact], acks: Acks) -> None:
    """Check that the facts may lead from `before` to `after`.

    Parameters
    ----------
    acks
        As the decider saw them.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    state = before.copy()
    released: set[PartitionId] = set()
    rejoined: set[str] = set()
    for fact in facts:
        if fact.kind == Kind.MEMBER_JOINED and fact.instance:
            rejoined.add(fact.instance)
        if fact.kind == Kind.RELEASED:
            released.add(fact.where)
        _check_fact(state, fact, acks, released, len(before.flows))
        state.replay(fact)
    _must(state == after, "the state after the commit is not what its facts say")
    _check_progress(before, after, acks, rejoined)
    check_state(after, acks)


def check_state(state: GroupState, acks: Acks) -> None:
    """Check one state of a group.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    live = {flow: m for m in state.members.values() for flow in m.flow_names}
    for where, own in state.partitions.items():
        _check_ownership(where, own, live)
        _must(
            state.position(where, acks) == _position(state, where, acks),
            f"{_name(where)}: only its epoch and incarnation may acknowledge",
        )
    _must(set(state.floors) <= set(state.partitions), "a floor of a partition that the group does not have")
    _check_status(state)


def check_balance(state: GroupState) -> None:
    """R1: every partition has one live flow as its target, every flow as many as the others, plus or minus one.

    Raises
    ------
    InvariantError
        If not.
    """
    loads = dict.fromkeys(state.flows, 0)
    for where, own in state.partitions.items():
        _must(own.target in loads, f"R1: {_name(where)} has no live target in status {state.status}")
        loads[own.target or ""] += 1
    if loads:
        _must(max(loads.values()) - min(loads.values()) <= 1, f"R1: not balanced: {loads}")


def _check_ownership(where: PartitionId, own: Ownership, live: dict[Flow, Member]) -> None:
    name = _name(where)
    _must(own.base_epoch <= own.epoch, f"{name}: base epoch {own.base_epoch} is past epoch {own.epoch}")
    _must(own.delivered >= own.start, f"{name}: delivered {own.delivered} lies before start {own.start}")
    if own.flow is None:
        _must(own.to_flow is None, f"{name}: nobody owns it, yet it drains")
        return
    _must(own.flow in live, f"{name}: its owner {own.flow} is gone")
    _must(own.incarnation == live[own.flow].incarnation, f"{name}: its owner is another process than the member")
    if own.to_flow is not None:
        _must(own.to_flow in live, f"{name}: it drains to {own.to_flow}, which is gone")
        _must(own.to_flow != own.flow, f"{name}: it drains to its own owner")
        _must(own.handoff >= 0, f"{name}: a handoff without a number has no deadline")


def _check_status(state: GroupState) -> None:
    draining = any(own.held is Held.DRAINING for own in state.partitions.values())
    if state.status is Status.READY:
        _must(not draining, "R7: Ready, yet a handoff is under way")
        if state.members:
            check_balance(state)
    elif state.status is Status.REBALANCING:
        _must(draining, "R7: Rebalancing, yet no handoff is under way")
        flows = set(state.flows)
        for where, own in state.partitions.items():
            _must(own.target in flows, f"R8: {_name(where)} has no live target while Rebalancing")


def _check_fact(
    state: GroupState, fact: GroupFact, acks: Acks, released: Iterable[PartitionId], flows_before: int
) -> None:
    """One fact, against the state just before it."""
    if fact.kind == Kind.STATUS_CHANGED and fact.status == Status.HOLDDOWN:
        _must(state.rebalance_delay_ms > 0, "R5: a holddown without a delay")
    if fact.queue_id is None or fact.partition is None:
        return
    own, name = state.partitions.get(fact.where), _name(fact.where)
    if own is None:
        return
    position = _position(state, fact.where, acks)
    delivered = max(position, own.delivered, acks.handed.get(fact.where, 0))
    if fact.kind == Kind.GRANTED:
        _check_grant(state, fact, own, released, flows_before)
        _must(fact.offset == position, f"{name}: granted from {fact.offset}, but its position is {position}")
        _must(fact.delivered == delivered, f"H4: {name}: delivered is {fact.delivered} instead of {delivered}")
    elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED):
        _must(fact.offset == position, f"{name}: left at {fact.offset}, but its position is {position}")
        _must(fact.delivered == delivered, f"H4: {name}: delivered is {fact.delivered} instead of {delivered}")
    elif fact.kind == Kind.HANDOFF_STARTED:
        flows = state.flows
        _must(state.status is not Status.HOLDDOWN, f"R5: a handoff of {name} starts in the holddown")
        _must(own.flow in flows, f"{name}: handed off by {own.flow}, which is gone")
        _must(fact.to_flow in flows, f"{name}: handed off to {fact.to_flow}, which is gone")
    elif fact.kind == Kind.FLOOR:
        _must((fact.offset or 0) <= position, f"Q8: the floor of {name} lies past its position {position}")


def _check_grant(
    state: GroupState, fact: GroupFact, own: Ownership, released: Iterable[PartitionId], flows_before: int
) -> None:
    name = _name(fact.where)
    member = state.members.get(fact.instance or "")
    _must(fact.flow in state.flows, f"{name}: granted to {fact.flow}, which is gone")
    _must(member is not None and member.incarnation == fact.incarnation, f"{name}: granted to a former process")
    _must((fact.epoch or 0) > own.epoch, f"W2: {name}: granted under epoch {fact.epoch} after {own.epoch}")
    line = own.base_epoch if (own.last_flow or "").rpartition("/")[0] == fact.instance else fact.epoch
    _must(fact.base_epoch == line, f"{name}: base epoch {fact.base_epoch} instead of {line}")
    if own.flow is None and own.last_flow is not None and fact.where not in released:
        flows, partitions = len(state.flows), len(state.partitions)
        missing = min(flows, partitions) != min(state.baseline, partitions)
        excess = flows_before > partitions  # R3: a standby takes over at once
        _must(state.status is not Status.HOLDDOWN or not missing or excess, f"R5: {name} is given away in the holddown")


def _check_progress(before: GroupState, after: GroupState, acks: Acks, rejoined: Iterable[str]) -> None:
    flows = after.flows
    for where, old in before.partitions.items():
        new, name = after.partitions.get(where), _name(where)
        if new is None:
            continue
        _must(new.epoch >= old.epoch, f"{name}: the epoch went from {old.epoch} to {new.epoch}")
        was, now = _position(before, where, acks), _position(after, where, acks)
        _must(now >= was, f"{name}: the position went from {was} to {now}")
        _must(after.delivered(where, acks) >= before.delivered(where, acks), f"{name}: delivered went back")
        if (new.flow, new.incarnation) != (old.flow, old.incarnation):
            _must(new.epoch > old.epoch, f"W2: {name} has a new owner under the same epoch")
        elif old.flow and new.target == old.target and old.flow.rpartition("/")[0] not in rejoined:
            _must(new == old, f"H2: {name} changed though neither its owner nor its target did")
        if old.to_flow in flows and new.to_flow is not None and new.epoch == old.epoch:
            _must(new.handoff == old.handoff, f"H1: the handoff of {name} got new time")
    for where, floor in before.floors.items():
        _must(where not in after.partitions or after.floors.get(where, 0) >= floor, f"{_name(where)}: the floor sank")


def _position(state: GroupState, where: PartitionId, acks: Acks) -> int:
    own = state.partitions[where]
    counted = [
        offset
        for (place, epoch, incarnation), offset in acks.rows.items()
        if own.flow is not None and (place, epoch, incarnation) == (where, own.epoch, own.incarnation)
    ]
    return max([own.start, state.floors.get(where, 0), *counted])


def _name(where: PartitionId) -> str:
    return f"partition {where[1]} of {where[0]}"


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InvariantError(otherwise)
