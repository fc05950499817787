"""The rebalancer's decisions: events in, facts out.

``decide`` is pure and any driver may run it: it reads the control table up to some version, computes the facts, and commits
them as the next version or not at all, in which case it looks and decides again. Every event may come late or more than
once: one that no longer applies gives no facts.

A membership change triggers a *holddown* (R5). When that is over the `balanced` assignor computes who shall own what; what nobody
owns is granted at once, what somebody owns is handed off: its owner stops planning it, acknowledges what it was given, and
releases it to its new owner in one commit. All handoffs run at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from spark_partq.core.acks import Acks
from spark_partq.core.assignors.balanced import balanced, is_balanced
from spark_partq.core.errors import GroupMismatchError
from spark_partq.core.group import (
    Flow,
    GroupFact,
    GroupState,
    Held,
    Kind,
    Member,
    Ownership,
    PartitionId,
    QueueInGroup,
    Status,
    instance_of,
)


# ---- events
@dataclass(frozen=True)
class Join:
    """A process binds its flows.

    Attributes
    ----------
    queues : dict
        Queue id to what the group shall know of it.
    starts : dict
        Where each partition starts that the group never had.
    """

    member: Member
    queues: dict[str, QueueInGroup]
    starts: dict[PartitionId, int]


@dataclass(frozen=True)
class Leave:
    """A process unbinds its flows (`expired`: it was not heard of for its session timeout). To the group it is the same (R4)."""

    instance: str
    incarnation: str
    expired: bool = False


@dataclass(frozen=True)
class HolddownOver:
    """The rebalance delay has passed since the holddown that fact `status_seq` began."""

    status_seq: int


@dataclass(frozen=True)
class Drained:
    """An owner has acknowledged everything below `end` of a draining partition, and will plan no more of it."""

    where: PartitionId
    incarnation: str
    epoch: int
    end: int


@dataclass(frozen=True)
class DeadlinePassed:
    """The handoff that fact `handoff` began has taken its `max_handoff_time_ms`."""

    where: PartitionId
    handoff: int


@dataclass(frozen=True)
class RaiseFloors:
    """Maintenance is about to remove what the group has acknowledged of a queue (Q8)."""

    queue_id: str


Event = Join | Leave | HolddownOver | Drained | DeadlinePassed | RaiseFloors


def decide(state: GroupState, acks: Acks, events: Sequence[Event], by: str = "") -> list[GroupFact]:
    """The facts that follow from the events, in order.

    Parameters
    ----------
    state, acks
        As of one look: a newer control table voids the decision, newer acknowledgements do not.
    by : str
        Who decides, for the history.

    Raises
    ------
    GroupMismatchError
        If a ``Join`` disagrees with the group's other members.
    """
    decision = _Decision(state.copy(), acks, by)
    for event in events:
        match event:
            case Join():
                decision.join(event)
            case Leave():
                decision.leave(event)
            case HolddownOver():
                decision.holddown_over(event)
            case Drained():
                decision.drained(event)
            case DeadlinePassed():
                decision.deadline_passed(event)
            case RaiseFloors():
                decision.raise_floors(event)
    return decision.facts


class _Decision:
    """Facts so far, and the state as it is after them."""

    def __init__(self, state: GroupState, acks: Acks, by: str) -> None:
        self.state, self.acks, self.by = state, acks, by
        self.facts: list[GroupFact] = []

    def emit(self, fact: GroupFact) -> None:
        self.state.replay(fact)
        self.facts.append(fact)

    # ---- members
    def join(self, event: Join) -> None:
        member = event.member
        old = self.state.members.get(member.instance)
        if old is not None and old.incarnation == member.incarnation:
            return
        _check_agreement(member, [m for m in self.state.members.values() if m.instance != member.instance])
        before = self.state.flows
        changed = self._add_queues(event)
        cause = f"{member.instance} joined with {_count(member.flows, 'flow')}"
        if old is not None:
            cause = f"{member.instance} started again while its session was alive"
        self.emit(
            GroupFact(
                Kind.MEMBER_JOINED, instance=member.instance, incarnation=member.incarnation, host=member.host,
                flows=member.flows, cause=cause, by=self.by,
                body=_json(
                    session_timeout_ms=member.session_timeout_ms, assignors=member.assignors, queues=member.queues
                ),
            )
        )  # fmt: skip
        dropped = old.flow_names[member.flows :] if old is not None else []
        left = [self._strip(flow, f"{flow} did not come back when {member.instance} started again") for flow in dropped]
        if old is not None:
            for where in [w for flow in member.flow_names for w in self.state.owned(flow)]:
                # What was draining goes where it was going: nobody works on it any more.
                own = self.state.partitions[where]
                self._grant(where, own.target or "", cause, forced=own.target != own.flow)
        for flow, partitions in zip(dropped, left, strict=True):
            self._replace(partitions, len(before), f"{flow} did not come back when {member.instance} started again")
            before.remove(flow)
        if changed or (not before and self.state.status is Status.READY):
            # New partitions wait for nobody; nor does the first member: nothing can be spared by waiting.
            self._rebalance(cause)
            return
        for flow in member.flow_names[old.flows if old else 0 :]:
            if len(before) < len(self.state.partitions):
                self._trigger(len(before), cause)
            before.append(flow)
        self._settle_holddown()
        self._settle_rebalancing()
        self._end_lines(member)

    def _end_lines(self, member: Member) -> None:
        """What the instance had and does not get back now is left out of its replay, so it must never again be in line."""
        for where, own in sorted(self.state.partitions.items()):
            if own.flow is None and own.base_epoch < own.epoch and instance_of(own.last_flow or "") == member.instance:
                self._emit_partition(
                    Kind.UNASSIGNED, where, f"{member.instance} is back without it", offset=self.state.position(where, self.acks),
                    delivered=self.state.delivered(where, self.acks), epoch=own.epoch + 1, base_epoch=own.epoch + 1,
                    flow=own.last_flow, instance=member.instance,
                )  # fmt: skip

    def _add_queues(self, event: Join) -> bool:
        """Make known what is new of the queues; True if the operating partition count changed under somebody's hands."""
        known, had = set(self.state.partitions), bool(self.state.queues)
        for queue_id, queue in sorted(event.queues.items()):
            for old_id, old in list(self.state.queues.items()):
                if old.name == queue.name and old_id != queue_id:
                    self.emit(
                        GroupFact(
                            Kind.QUEUE_REMOVED,
                            old.name,
                            old_id,
                            cause="the queue was deleted and made anew",
                            by=self.by,
                        )
                    )
            if self.state.queues.get(queue_id) != queue:
                body = _json(
                    partitions=queue.partitions,
                    rebalance_delay_ms=queue.rebalance_delay_ms,
                    max_handoff_time_ms=queue.max_handoff_time_ms,
                )
                self.emit(
                    GroupFact(
                        Kind.QUEUE_ADDED, queue.name, queue_id, body=body,
                        cause=f"{event.member.instance} reads it", by=self.by,
                    )
                )  # fmt: skip
        for where, start in sorted(event.starts.items()):
            if where not in self.state.partitions:
                self._emit_partition(Kind.PARTITION_ADDED, where, "new to the group", offset=start)
        return had and set(self.state.partitions) != known

    def leave(self, event: Leave) -> None:
        member = self.state.members.get(event.instance)
        if member is None or member.incarnation != event.incarnation:
            return
        cause = f"the session of {event.instance} expired" if event.expired else f"{event.instance} left"
        before = len(self.state.flows)
        self.emit(
            GroupFact(
                Kind.MEMBER_LEFT, instance=member.instance, incarnation=member.incarnation, host=member.host,
                flows=member.flows, cause=cause, by=self.by,
            )
        )  # fmt: skip
        left = [self._strip(flow, cause) for flow in member.flow_names]
        for i, partitions in enumerate(left):
            self._replace(partitions, before - i, cause)
        self._settle_holddown()
        self._settle_rebalancing()

    def _strip(self, flow: Flow, cause: str) -> list[PartitionId]:
        """Take everything from a flow that is gone, and nothing goes to it any more."""
        for where in [w for w, own in self.state.partitions.items() if own.to_flow == flow]:
            self._emit_partition(Kind.HANDOFF_CANCELLED, where, cause, flow=self.state.partitions[where].flow)
        left = self.state.owned(flow)
        for where in left:
            self._end(Kind.UNASSIGNED, where, cause)
        return left

    def _replace(self, left: Sequence[PartitionId], count: int, cause: str) -> None:
        """A flow is gone, of `count` that the group had with it, and has left these partitions."""
        if count <= len(self.state.partitions):
            self._trigger(count, cause)
            return
        left = [where for where in left if self.state.partitions[where].flow is None]
        standby = next((f for f in self._idle_flows()), None)
        if left and standby is not None:  # R3: excess consumers, so one takes over exactly this load
            for where in left:
                self._grant(where, standby, f"{cause}; standby {standby} takes over")
        elif left:
            self._trigger(count, cause)

    def _idle_flows(self) -> list[Flow]:
        busy = {f for own in self.state.partitions.values() for f in (own.flow, own.to_flow)}
        return [flow for flow in self.state.flows if flow not in busy]

    # ---- status
    def _trigger(self, count: int, cause: str) -> None:
        """A consumer came or went; there were `count` before."""
        if self.state.status is Status.HOLDDOWN:
            return  # the delay runs from the first change
        if not self.state.rebalance_delay_ms:
            self._rebalance(cause)
        else:
            self._change(Status.HOLDDOWN, cause, flows=count)

    def _change(self, status: Status, cause: str, flows: int | None = None) -> None:
        if self.state.status is not status:
            self.emit(GroupFact(Kind.STATUS_CHANGED, status=status, flows=flows, cause=cause, by=self.by))

    def _settle_holddown(self) -> None:
        """End the holddown without any handoff if there are as many flows as before it (R5)."""
        flows, most = self.state.flows, len(self.state.partitions)
        enough = min(len(flows), most) == min(self.state.baseline, most)  # standbys make no difference
        if self.state.status is not Status.HOLDDOWN or not enough or not flows:
            return
        cause = f"there are {_count(len(flows), 'flow')} again"
        vacant: dict[Flow, list[PartitionId]] = {}
        for where, own in sorted(self.state.partitions.items()):
            if own.flow is None and own.last_flow is not None:
                vacant.setdefault(own.last_flow, []).append(where)
        idle = self._idle_flows()
        returned = [flow for flow in idle if flow in vacant]
        rest = [flow for flow in idle if flow not in vacant]
        for flow in returned:
            self._grant_all(vacant.pop(flow), flow, cause)
        for partitions, flow in zip(vacant.values(), rest, strict=False):
            self._grant_all(partitions, flow, cause)
        if is_balanced(self._targets(), flows):
            draining = any(own.held is Held.DRAINING for own in self.state.partitions.values())
            self._change(Status.REBALANCING if draining else Status.READY, cause)

    def holddown_over(self, event: HolddownOver) -> None:
        if self.state.status is Status.HOLDDOWN and self.state.status_seq == event.status_seq:
            self._rebalance(f"the rebalance delay is over: {self.state.trigger}")

    # ---- rebalancing
    def _targets(self) -> dict[PartitionId, Flow | None]:
        return {where: own.target for where, own in sorted(self.state.partitions.items())}

    def _rebalance(self, cause: str) -> None:
        """Steps 2 to 6 of R6: grant what nobody owns, start the handoffs that balance needs."""
        self._change(Status.REBALANCING, cause)
        for where, flow in balanced(self._targets(), self.state.flows).items():
            own = self.state.partitions[where]
            if own.target == flow:
                continue
            if own.flow is None:
                self._grant(where, flow, cause)
            elif own.flow == flow:
                self._emit_partition(Kind.HANDOFF_CANCELLED, where, cause, flow=flow)
            else:
                self._emit_partition(Kind.HANDOFF_STARTED, where, cause, flow=own.flow, to_flow=flow)
                if not self.state.queues[where[0]].max_handoff_time_ms:
                    self._force(where, "max_handoff_time_ms is 0")
        self._settle_rebalancing()

    def _settle_rebalancing(self) -> None:
        """Go on balancing, or end it, once every handoff has ended."""
        state = self.state
        if state.status is not Status.REBALANCING or any(o.held is Held.DRAINING for o in state.partitions.values()):
            return
        if is_balanced(self._targets(), state.flows):
            self._change(Status.READY, "balanced" if state.flows else "no flows are left")
        else:
            self._rebalance(state.trigger)

    # ---- handoff
    def drained(self, event: Drained) -> None:
        own = self.state.partitions.get(event.where)
        if own is None or own.to_flow is None or (own.incarnation, own.epoch) != (event.incarnation, event.epoch):
            return
        if (self.state.position(event.where, self.acks) or 0) < event.end:
            return  # it says more than it acknowledged
        receiver, giver = own.to_flow, own.flow
        self._end(Kind.RELEASED, event.where, f"{giver} has acknowledged all it was given")
        self._grant(event.where, receiver, f"{giver} released it")
        self._settle_rebalancing()

    def deadline_passed(self, event: DeadlinePassed) -> None:
        own = self.state.partitions.get(event.where)
        if own is not None and own.to_flow is not None and own.handoff == event.handoff:
            limit = self.state.queues[event.where[0]].max_handoff_time_ms
            self._force(event.where, f"{own.flow} did not release it within {limit} ms")
            self._settle_rebalancing()

    def _force(self, where: PartitionId, cause: str) -> None:
        self._grant(where, self.state.partitions[where].to_flow or "", cause, forced=True)

    # ---- ownership
    def _grant_all(self, partitions: Sequence[PartitionId], flow: Flow, cause: str) -> None:
        for where in partitions:
            self._grant(where, flow, cause)

    def _grant(self, where: PartitionId, flow: Flow, cause: str, forced: bool = False) -> None:
        """`flow` owns the partition from its position on; the same instance as before continues its line."""
        own = self.state.partitions[where]
        member = self.state.members[instance_of(flow)]
        epoch = own.epoch + 1
        same_line = own.last_flow is not None and instance_of(own.last_flow) == member.instance
        offset = self.state.position(where, self.acks) or 0
        delivered = self.state.delivered(where, self.acks)
        self._emit_partition(
            Kind.GRANTED, where, cause, offset=offset, delivered=delivered, epoch=epoch, flow=flow, forced=forced,
            base_epoch=own.base_epoch if same_line else epoch,
            instance=member.instance, incarnation=member.incarnation, host=member.host,
        )  # fmt: skip

    def _end(self, kind: Kind, where: PartitionId, cause: str) -> None:
        own = self.state.partitions[where]
        self._emit_partition(
            kind, where, cause, offset=self.state.position(where, self.acks),
            delivered=self.state.delivered(where, self.acks), epoch=own.epoch + (kind is Kind.UNASSIGNED),
            flow=own.flow, instance=instance_of(own.flow or ""), incarnation=own.incarnation,
        )  # fmt: skip

    def raise_floors(self, event: RaiseFloors) -> None:
        for where in sorted(self.state.partitions):
            position = self.state.position(where, self.acks) or 0
            if where[0] == event.queue_id and position > self.state.floors.get(where, 0):
                self._emit_partition(Kind.FLOOR, where, "maintenance may remove what lies below", offset=position)

    def _emit_partition(self, kind: Kind, where: PartitionId, cause: str, **columns: object) -> None:
        own = self.state.partitions.get(where) or Ownership(None, None, "", 0, 0, 0, 0)
        known = {"epoch_before": own.epoch, "epoch": own.epoch, "base_epoch": own.base_epoch, "cause": cause}
        queue = self.state.queues[where[0]].name
        self.emit(GroupFact(kind, queue, *where, **{**known, "by": self.by, **columns}))  # type: ignore[arg-type]


def _check_agreement(member: Member, others: Sequence[Member]) -> None:
    for other in others:
        for what, mine, theirs in (
            ("sessionTimeoutMs", member.session_timeout_ms, other.session_timeout_ms),
            ("queue", ", ".join(sorted(member.queues)), ", ".join(sorted(other.queues))),
        ):
            if mine != theirs:
                raise GroupMismatchError(
                    f"{member.instance} has {what}={mine}, but {other.instance} is in the group with {what}={theirs}; use the "
                    "same value, or wait until the other has left",
                    option=what, instance=member.instance, other=other.instance,
                )  # fmt: skip
    common = set(member.assignors).intersection(*(other.assignors for other in others))
    if not common:
        listed = "; ".join(f"{m.instance}: {', '.join(m.assignors)}" for m in [member, *others])
        raise GroupMismatchError(
            f"the members of the group have no assignor in common ({listed}); add one that all have",
            option="assignor", instance=member.instance,
        )  # fmt: skip


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _json(**values: object) -> str:
    return json.dumps(values, sort_keys=True)
