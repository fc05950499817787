"""What must hold for a consumer group, whatever happens to it: checked on every commit of its control table.

The rules are written a second time here, in a different way than in the code that keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from spark_partq.core.format import FORCED_WRITES
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.events import Event, Promoted, Reset
from spark_partq.core.group.facts import GroupFact, Kind, Member, Ownership, PartitionState, Protocol, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import Flow, PartitionId
from spark_partq.core.invariants import must_hold


def check(
    before: GroupState, after: GroupState, facts: Sequence[GroupFact], acks: Acks, events: Sequence[Event] = ()
) -> None:
    """Check that the facts may lead from `before` to `after`.

    Parameters
    ----------
    acks
        The acknowledgements on which the decision was made. events The events that led to the decision. Only `Promoted` and `Reset` may
        count messages as delivered that no query was given. Only these and `Skip` may move a position past messages that were not
        acknowledged. Only `Reset` may set a position back; `Promoted` may set it back to the end.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    state = before.copy()
    promoted = [event for event in events if isinstance(event, Promoted)]
    firsts = {(event.queue_id, number): first for event in promoted for number, first in event.firsts.items()}
    ends = {(event.queue_id, number): end for event in promoted for number, end in event.ends.items()}
    reset = {place: offset for event in events if isinstance(event, Reset) for place, offset in event.positions.items()}
    released: set[PartitionId] = set()
    rejoined: set[str] = set()
    if any(fact.kind == Kind.GROUP_DELETED for fact in facts):
        new = [Kind.GROUP_CREATED] * (not before.seq)
        must_hold(
            [fact.kind for fact in facts] == [*new, Kind.GROUP_DELETED], "a deletion is committed with other facts"
        )
        must_hold(not before.members, "an active group is deleted")
        left = GroupState(
            before.seq + len(facts),
            deletions=before.deletions + 1,
            last_epoch=after.last_epoch,
            format=after.format,
            resets=before.resets,
        )
        must_hold(after == left, "something outlives its group")
        epochs = [own.epoch for own in before.partitions.values()]
        must_hold(all(epoch <= after.last_epoch for epoch in epochs), "W2: epochs begin anew")
        return
    for fact in facts:
        if fact.kind == Kind.MEMBER_JOINED and fact.instance:
            rejoined.add(fact.instance)
        if fact.kind == Kind.RELEASED:
            released.add(fact.partition_id)
        _check_fact(state, fact, acks, released, len(before.flows), ends)
        if fact.kind == Kind.FLOOR and fact.partition_id in state.partitions:
            _check_floor(state, fact, acks, firsts)
        if fact.kind == Kind.POSITION_RESET:
            _check_reset(state, fact, acks, reset, ends)
        state.replay(fact)
    if any(fact.kind in (Kind.QUEUE_ADDED, Kind.MEMBER_JOINED) for fact in facts):
        _check_forced(after)
    must_hold(state == after, "the state after the commit is not what its facts say")
    if rejoined & before.unbound:
        must_hold(
            after.status is not Status.HOLDDOWN, "R2: who was unbound for new partitions binds again with a delay"
        )
    computed = [json.loads(fact.body or "{}") for fact in facts if fact.kind == Kind.ASSIGNMENT_COMPUTED]
    everything_moves = any(body["protocol"] == Protocol.EAGER for body in computed)
    isolated = {fact.partition_id for fact in facts if fact.kind == Kind.ISOLATED}
    moved = {fact.partition_id for fact in facts if fact.kind == Kind.POSITION_RESET}
    _check_progress(before, after, acks, rejoined, everything_moves, isolated, moved, ends)
    check_state(after, acks)


def check_state(state: GroupState, acks: Acks) -> None:
    """Check one state of a group.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    live = {flow: m for m in state.members.values() for flow in m.flow_names}
    for partition_id, own in state.partitions.items():
        must_hold(partition_id[0] in state.queues, f"{_name(partition_id)}: the group does not know the queue")
        _check_ownership(state, partition_id, own, live)
        must_hold(
            state.position(partition_id, acks) == _position(state, partition_id, acks),
            f"{_name(partition_id)}: only its epoch and incarnation may acknowledge",
        )
    must_hold(set(state.floors) <= set(state.partitions), "a floor of a partition that the group does not have")
    _check_status(state)


def check_balance(state: GroupState) -> None:
    """R1: every subscribed partition has one live flow as its target, which reads its queue.

    If the assignor is `balanced` and all flows are alike, the numbers of partitions of any two flows differ by at most one.

    Raises
    ------
    InvariantError
        If not.
    """
    live = {flow: m for m in state.members.values() for flow in m.flow_names}
    loads = dict.fromkeys(live, 0)
    for partition_id, own in state.partitions.items():
        readers = [flow for flow in live if _reads(state, live[flow], partition_id)]
        if readers:
            must_hold(own.target in readers, f"R1: {_name(partition_id)} has no live target in status {state.status}")
            loads[own.target or ""] += 1
    if loads and alike(state):
        must_hold(max(loads.values()) - min(loads.values()) <= 1, f"R1: not balanced: {loads}")


def alike(state: GroupState) -> bool:
    """Whether all members read the same queues with the same weight, and list only the assignor `balanced`."""
    members = list(state.members.values())
    seen = {(tuple(q.name for q in state.queues.values() if m.subscribes(q.name)), m.weight) for m in members}
    return len(seen) == 1 and all(m.assignors == ("balanced",) for m in members)


def _reads(state: GroupState, member: Member, partition_id: PartitionId) -> bool:
    return member.subscribes(state.queues[partition_id[0]].name)


def _check_ownership(state: GroupState, partition_id: PartitionId, own: Ownership, live: dict[Flow, Member]) -> None:
    name = _name(partition_id)
    must_hold(own.lineage_epoch <= own.epoch, f"{name}: lineage epoch {own.lineage_epoch} is past epoch {own.epoch}")
    must_hold(own.delivered >= own.start, f"{name}: delivered {own.delivered} lies before start {own.start}")
    if own.flow is None:
        must_hold(own.to_flow is None and own.handoff < 0, f"{name}: nobody owns it, yet it drains")
        return
    must_hold(own.flow in live, f"{name}: its owner {own.flow} is gone")
    must_hold(own.incarnation == live[own.flow].incarnation, f"{name}: its owner is another process than the member")
    must_hold(_reads(state, live[own.flow], partition_id), f"{name}: its owner {own.flow} does not read the queue")
    if own.state is not PartitionState.DRAINING:
        must_hold(own.to_flow is None, f"{name}: a handoff without a number has no deadline")
    elif own.to_flow is None:
        must_hold(state.assignment_due, f"{name}: it is revoked, and no assignment is to come")
    else:
        must_hold(own.to_flow in live, f"{name}: it drains to {own.to_flow}, which is gone")
        must_hold(
            _reads(state, live[own.to_flow], partition_id),
            f"{name}: it drains to {own.to_flow}, which does not read the queue",
        )
        must_hold(own.to_flow != own.flow, f"{name}: it drains to its own owner")


def _check_status(state: GroupState) -> None:
    draining = any(own.state is PartitionState.DRAINING for own in state.partitions.values())
    if state.status is Status.READY:
        must_hold(not draining, "R7: Ready, yet a handoff is under way")
        if state.members:
            check_balance(state)
    elif state.status is Status.REBALANCING:
        # An assignment stays due without any handoff only while the assignor fails.
        must_hold(draining or state.assignment_due, "R7: Rebalancing, yet no handoff is under way")
        flows = {flow: m for m in state.members.values() for flow in m.flow_names}
        for partition_id, own in state.partitions.items():
            subscribed = any(_reads(state, member, partition_id) for member in flows.values())
            known = own.target in flows or state.assignment_due or not subscribed
            must_hold(known, f"R8: {_name(partition_id)} has no live target while Rebalancing")


def _check_fact(
    state: GroupState,
    fact: GroupFact,
    acks: Acks,
    released: Iterable[PartitionId],
    flows_before: int,
    ends: Mapping[PartitionId, int],
) -> None:
    """Check one fact, against the state just before it."""
    if fact.kind == Kind.STATUS_CHANGED and fact.status == Status.HOLDDOWN:
        must_hold(state.rebalance_delay_ms > 0, "R5: a holddown without a delay")
    if fact.kind == Kind.ASSIGNMENT_COMPUTED:
        check_assignment(state, json.loads(fact.body or "{}"))
    if fact.queue_id is None or fact.partition is None:
        return
    own, name = state.partitions.get(fact.partition_id), _name(fact.partition_id)
    if own is None:
        return
    position = _position(state, fact.partition_id, acks)
    delivered = max(position, own.delivered, acks.delivered_ends.get(fact.partition_id, 0))
    if fact.kind == Kind.GRANTED:
        _check_grant(state, fact, own, released, flows_before)
        must_hold(fact.offset == position, f"{name}: granted from {fact.offset}, but its position is {position}")
        must_hold(fact.delivered == delivered, f"H4: {name}: delivered is {fact.delivered} instead of {delivered}")
    elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED):
        must_hold(
            not fact.forced or fact.lineage_epoch == fact.epoch, f"H4: the lineage of {name} survives its deadline"
        )
        must_hold(fact.offset == position, f"{name}: left at {fact.offset}, but its position is {position}")
        known = {delivered, max(delivered, ends.get(fact.partition_id, 0))}
        must_hold(fact.delivered in known, f"H4: {name}: delivered is {fact.delivered} instead of {delivered}")
    elif fact.kind == Kind.ISOLATED:
        must_hold(fact.offset == position, f"{name}: begins again at {fact.offset}, but its position is {position}")
        must_hold(fact.delivered == delivered, f"H4: {name}: delivered is {fact.delivered} instead of {delivered}")
        must_hold(fact.lineage_epoch == fact.epoch, f"H4: the lineage of {name} survives that it begins again")
    elif fact.kind == Kind.SKIPPED:
        must_hold(fact.offset == position, f"{name}: {fact.offset} is left out, but its position is {position}")
    elif fact.kind == Kind.HANDOFF_STARTED:
        flows = state.flows
        must_hold(state.status is not Status.HOLDDOWN, f"R5: a handoff of {name} starts in the holddown")
        must_hold(own.flow in flows, f"{name}: handed off by {own.flow}, which is gone")
        eager = any(not m.cooperative for m in state.members.values())
        revoked = fact.to_flow is None and eager and state.assignment_due
        must_hold(fact.to_flow in flows or revoked, f"{name}: handed off to {fact.to_flow}, which is gone")


def _check_forced(state: GroupState) -> None:
    """Checked when a queue was added or a member joined. Before that, a group that an older program made may lack the feature."""
    forced = [queue.name for queue in state.queues.values() if queue.durable]
    must_hold(
        not forced or FORCED_WRITES in state.format.features,
        f"an older program may join the group and force nothing that it writes, though queue {''.join(forced[:1])} asks for that",
    )


def _check_floor(state: GroupState, fact: GroupFact, acks: Acks, firsts: Mapping[PartitionId, int]) -> None:
    position = max(_position(state, fact.partition_id, acks), firsts.get(fact.partition_id, 0))
    past = f"Q8: the floor of {_name(fact.partition_id)} lies past its position {position}"
    must_hold((fact.offset or 0) <= position, past)


def _check_reset(
    state: GroupState,
    fact: GroupFact,
    acks: Acks,
    asked: Mapping[PartitionId, int],
    ends: Mapping[PartitionId, int],
) -> None:
    own, name = state.partitions[fact.partition_id], _name(fact.partition_id)
    must_hold(not state.members, f"the position of {name} is set while somebody consumes in the group")
    must_hold((fact.epoch or 0) > own.epoch, f"W2: {name}: set under epoch {fact.epoch} after {own.epoch}")
    must_hold(fact.lineage_epoch == fact.epoch, f"H4: the lineage of {name} survives that its position is set")
    delivered = max(
        _position(state, fact.partition_id, acks), own.delivered, acks.delivered_ends.get(fact.partition_id, 0)
    )
    if fact.partition_id in ends:  # of a promoted replica
        end = ends[fact.partition_id]
        must_hold(delivered > end, f"S7: {name} is set back, though all that was delivered is there")
        at, expected = min(_position(state, fact.partition_id, acks), end), end
    else:
        at, expected = asked.get(fact.partition_id, -1), max(delivered, fact.offset or 0)
    must_hold(fact.offset == at, f"{name}: set to {fact.offset}, and nobody asked for that")
    must_hold(fact.delivered == expected, f"H4: {name}: delivered is {fact.delivered} instead of {expected}")


def check_assignment(state: GroupState, body: Mapping[str, str]) -> None:
    """K4, K7: whether an assignment may have this assignor and protocol, in the state just before it.

    Raises
    ------
    InvariantError
        If not.
    """
    members = state.members.values()
    must_hold(all(body["assignor"] in m.assignors for m in members), f"K7: not everybody supports {body['assignor']}")
    eager = any(not m.cooperative for m in members)
    must_hold((body["protocol"] == Protocol.EAGER) == eager, f"K7: the protocol is {body['protocol']}")
    owned = [partition_id for partition_id, own in state.partitions.items() if own.flow is not None]
    must_hold(not eager or not owned, f"K4: {len(owned)} partitions are still owned when an eager rebalance assigns")


def _check_grant(
    state: GroupState, fact: GroupFact, own: Ownership, released: Iterable[PartitionId], flows_before: int
) -> None:
    name = _name(fact.partition_id)
    member = state.members.get(fact.instance or "")
    must_hold(fact.flow in state.flows, f"{name}: granted to {fact.flow}, which is gone")
    must_hold(member is not None and member.incarnation == fact.incarnation, f"{name}: granted to a former process")
    must_hold((fact.epoch or 0) > own.epoch, f"W2: {name}: granted under epoch {fact.epoch} after {own.epoch}")
    same_instance = (own.last_flow or "").rpartition("/")[0] == fact.instance
    too_late = fact.forced and member is not None and member.manual  # an acknowledgement of this moment
    expected = own.lineage_epoch if same_instance and not too_late else fact.epoch
    must_hold(fact.lineage_epoch == expected, f"{name}: lineage epoch {fact.lineage_epoch} instead of {expected}")
    if own.flow is None and own.last_flow is not None and fact.partition_id not in released:
        flows = len(state.flows)
        partitions = sum(
            any(_reads(state, m, partition_id) for m in state.members.values()) for partition_id in state.partitions
        )
        missing = min(flows, partitions) != min(state.baseline, partitions)
        excess = flows_before > partitions  # R3: a standby takes over at once
        must_hold(
            state.status is not Status.HOLDDOWN or not missing or excess, f"R5: {name} is given away in the holddown"
        )


def _check_progress(
    before: GroupState,
    after: GroupState,
    acks: Acks,
    rejoined: Iterable[str],
    everything_moves: bool,
    isolated: Collection[PartitionId],
    moved: Collection[PartitionId],
    ends: Mapping[PartitionId, int],
) -> None:
    flows = after.flows
    for partition_id, old in before.partitions.items():
        new, name = after.partitions.get(partition_id), _name(partition_id)
        if new is None:
            continue
        must_hold(new.epoch >= old.epoch, f"{name}: the epoch went from {old.epoch} to {new.epoch}")
        was, now = _position(before, partition_id, acks), _position(after, partition_id, acks)
        must_hold(now >= was or partition_id in moved, f"{name}: the position went from {was} to {now}")
        delivered = before.delivered(partition_id, acks)
        if partition_id in moved:
            delivered = min(delivered, ends.get(partition_id, delivered))
        must_hold(after.delivered(partition_id, acks) >= delivered, f"{name}: delivered went back")
        if new.flow and (new.flow, new.incarnation) != (old.flow, old.incarnation):
            must_hold(new.epoch > old.epoch, f"W2: {name} has a new owner under the same epoch")
        elif old.flow and old.target and new.target == old.target and not everything_moves:
            rejoining = old.flow.rpartition("/")[0] in rejoined
            changed = new != old and partition_id not in isolated
            must_hold(rejoining or not changed, f"H2: {name} changed though neither its owner nor its target did")
        if old.to_flow in flows and new.to_flow is not None and new.epoch == old.epoch:
            must_hold(new.handoff == old.handoff, f"H1: the handoff of {name} got new time")
    for queue_id, queue in before.queues.items():
        known = after.queues.get(queue_id, queue)
        must_hold(known.revision >= queue.revision, f"the group knows an older {queue.name} than before")
    for partition_id, floor in before.floors.items():
        must_hold(
            partition_id in moved or partition_id not in after.partitions or after.floors.get(partition_id, 0) >= floor,
            f"{_name(partition_id)}: the floor sank",
        )


def _position(state: GroupState, partition_id: PartitionId, acks: Acks) -> int:
    own = state.partitions[partition_id]
    counted = [
        offset
        for claim, offset in acks.rows.items()
        if own.flow is not None and claim == (partition_id, own.epoch, own.incarnation)
    ]
    return max([own.start, state.floors.get(partition_id, 0), *counted])


def _name(partition_id: PartitionId) -> str:
    return f"partition {partition_id[1]} of {partition_id[0]}"
