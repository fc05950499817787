"""The rebalancer's decisions: events in, facts out.

``decide`` is pure and any driver may run it: it reads the control table up to some version, computes the facts, and commits
them as the next version or not at all, in which case it looks and decides again. Every event may come late or more than
once: one that no longer applies gives no facts.

A membership change triggers a *holddown* (R5), a change of the queues does not. Then the group's assignor computes who shall
own what. With the cooperative protocol (K5) what nobody owns is granted at once and what moves is handed off: its owner stops
planning it, acknowledges what it was given, and releases it to its new owner in one commit. All handoffs run at the same time.
With the eager protocol (K4) everything is handed off to nobody first; the commit that sees the last partition released computes
the assignment, of the members that are there by then, and grants it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from spark_partq.core import assignors
from spark_partq.core.assignors import BUILTIN, Assignor
from spark_partq.core.assignors.balanced import is_balanced
from spark_partq.core.errors import AssignorError, GroupMismatchError, UnknownAssignorError
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.choice import choose, common_assignors
from spark_partq.core.group.events import (
    AssignmentDue,
    DeadlinePassed,
    Drained,
    Event,
    HolddownOver,
    Join,
    Leave,
    LoadsMeasured,
    QueuesChanged,
    RaiseFloors,
)
from spark_partq.core.group.facts import (
    GroupFact,
    Kind,
    Member,
    Ownership,
    PartitionState,
    Protocol,
    QueueInGroup,
    Status,
)
from spark_partq.core.group.state import GroupState, View, alike
from spark_partq.core.ids import Flow, PartitionId, instance_of

_ENDS_A_HANDOFF = (Drained, DeadlinePassed)
Loads = Mapping[PartitionId, float]


def decide(
    state: GroupState,
    acks: Acks,
    events: Sequence[Event],
    by: str = "",
    *,
    assignor: Callable[[str], Assignor] = BUILTIN.__getitem__,
    loads: Loads | None = None,
) -> list[GroupFact]:
    """The facts that follow from the events, in order.

    Parameters
    ----------
    state, acks
        As of one look: a newer control table voids the decision, newer acknowledgements do not.
    by : str
        Who decides, for the history.
    assignor : function
        Finds an assignor by its name.
    loads : dict
        How much each partition weighs, for assignors that heed it.

    Raises
    ------
    GroupMismatchError
        If a ``Join`` disagrees with the group's other members.
    AssignorError, UnknownAssignorError
        If the group's assignor fails, or is not installed here, and nothing else was to be decided.
    """
    decision = _Decision(state.copy(), acks, by, assignor, loads)
    joins = any(isinstance(event, Join) for event in events)
    failed: AssignorError | UnknownAssignorError | None = None
    for i, event in enumerate(events):
        try:
            decision.happen(event)
            if isinstance(event, _ENDS_A_HANDOFF) and not isinstance(
                next(iter(events[i + 1 :]), None), _ENDS_A_HANDOFF
            ):
                decision.handoffs_ended()
        except (AssignorError, UnknownAssignorError) as error:
            # Whoever leaves or releases must be able to. The assignment stays due, and whoever takes it up next hears why not.
            failed = error
            if joins:
                raise
    if failed is not None and not decision.facts:
        raise failed
    return decision.facts


class _Decision:
    """Facts so far, and the state as it is after them."""

    def __init__(
        self,
        state: GroupState,
        acks: Acks,
        by: str,
        assignor: Callable[[str], Assignor],
        loads: Loads | None,
    ) -> None:
        self.state, self.acks, self.by, self.assignor, self.loads = state, acks, by, assignor, loads
        self.facts: list[GroupFact] = []
        self.moved = False  # handoffs have ended, and what follows from that is not decided yet

    def happen(self, event: Event) -> None:
        match event:
            case Join():
                self.join(event)
            case Leave():
                self.leave(event)
            case HolddownOver():
                self.holddown_over(event)
            case Drained():
                self.drained(event)
            case DeadlinePassed():
                self.deadline_passed(event)
            case QueuesChanged():
                self.queues_changed(event)
            case AssignmentDue():
                self._settle()
            case LoadsMeasured():
                self.loads_measured()
            case RaiseFloors():
                self.raise_floors(event)

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
        before, (chosen, view), count_decides = self.state.flows, self._shape(), self._count_decides()
        changed = self._add_queues(event.queues, event.starts, f"{member.instance} reads it")
        old = self.state.members.get(member.instance)  # a queue that became exclusive has unbound it
        cause = f"{member.instance} joined with {_count(member.flows, 'flow')}"
        if old is not None:
            cause = f"{member.instance} started again while its session was alive"
        self.emit(
            GroupFact(
                Kind.MEMBER_JOINED, instance=member.instance, incarnation=member.incarnation, host=member.host,
                flows=member.flows, body=_json(**member.body()), cause=cause, by=self.by,
            )
        )  # fmt: skip
        dropped = old.flow_names[member.flows :] if old is not None else []
        left = [self._strip(flow, f"{flow} did not come back when {member.instance} started again") for flow in dropped]
        if old is not None:
            for flow in member.flow_names:
                self._take_up(flow, cause)
        if changed or (not before and self.state.status is Status.READY):
            # New partitions wait for nobody; nor does the first member: nothing can be spared by waiting.
            self._rebalance(cause)
        elif count_decides and self._count_decides() and self._unchanged(chosen, view):
            for flow, partitions in zip(dropped, left, strict=True):
                self._replace(partitions, len(before), f"{flow} did not come back when {member.instance} started again")
                before.remove(flow)
            if len(before) < min(len(self.state.flows), len(self.state.subscribed_partitions)):
                self._trigger(len(before), cause)
        elif (chosen, view) != self._shape():
            self._trigger(len(before), cause)
        self._settle_holddown()
        self._settle()
        self._end_lines(member)

    def _unchanged(self, chosen: tuple[str, Protocol] | None, view: View) -> bool:
        """Whether the flows that were there are what they were, and the group is assigned as it was."""
        now_chosen, now = self._shape()
        return chosen in (None, now_chosen) and all(now.get(flow, seen) == seen for flow, seen in view.items())

    def _take_up(self, flow: Flow, cause: str) -> None:
        """A flow is back as a new process while its session was alive: what it had goes on, or where it was going."""
        for where, own in sorted(self.state.partitions.items()):
            if own.to_flow == flow and not self.state.subscribed(flow, where):
                self._emit_partition(Kind.HANDOFF_CANCELLED, where, cause, flow=own.flow)
            if own.flow == flow:
                if own.target is None or not self.state.subscribed(own.target, where):
                    self._end(Kind.UNASSIGNED, where, cause)
                else:
                    self._grant(where, own.target, cause, forced=own.target != flow)

    def _end_lines(self, member: Member) -> None:
        """What the instance had and does not get back now is left out of its replay, so it must never again be in line."""
        for where, own in sorted(self.state.partitions.items()):
            if (
                own.flow is None
                and own.lineage_epoch < own.epoch
                and instance_of(own.last_flow or "") == member.instance
            ):
                self._emit_partition(
                    Kind.UNASSIGNED, where, f"{member.instance} is back without it", offset=self.state.position(where, self.acks),
                    delivered=self.state.delivered(where, self.acks), epoch=own.epoch + 1, lineage_epoch=own.epoch + 1,
                    flow=own.last_flow, instance=member.instance,
                )  # fmt: skip

    # ---- queues
    def queues_changed(self, event: QueuesChanged) -> None:
        before = {queue_id: queue.name for queue_id, queue in self.state.queues.items()}
        wanted = set(self.state.subscribed_partitions)
        for queue_id in event.gone:
            self._remove_queue(queue_id, "the queue was deleted")
        self._add_queues(event.queues, event.starts, "found by its members")
        changed = wanted.symmetric_difference(self.state.subscribed_partitions)
        if changed:
            after = {queue_id: queue.name for queue_id, queue in self.state.queues.items()}
            names = {after.get(queue_id) or before[queue_id] for queue_id, _ in changed}
            self._rebalance(f"the partitions of {', '.join(sorted(names))} changed")

    def _unbind_all(self, queue: QueueInGroup, what: str) -> None:
        """All who read it bind again, so that nobody goes on by the rules that held before (S6)."""
        for member in sorted(self.state.members.values(), key=lambda m: m.instance):
            if member.subscribes(queue.name):
                self._unbind(member, f"queue {queue.name} {what}: all clients bind again")

    def _add_queues(self, queues: Mapping[str, QueueInGroup], starts: Mapping[PartitionId, int], cause: str) -> bool:
        """Make known what is new of the queues; True if there are other partitions than before."""
        known = set(self.state.partitions)
        for queue_id, queue in sorted(queues.items()):
            for old_id, old in list(self.state.queues.items()):
                if old.name == queue.name and old_id != queue_id:
                    self._remove_queue(old_id, "the queue was deleted and made anew")
            now = self.state.queues.get(queue_id)
            if now is None or (now.revision <= queue.revision and now != queue):
                # Also if nothing but its revision is new, lest a look from in between counts later.
                if now is not None and now.exclusive != queue.exclusive:
                    self._unbind_all(queue, "became exclusive" if queue.exclusive else "became partitioned")
                body = _json(**{name: value for name, value in asdict(queue).items() if name != "name"})
                self.emit(GroupFact(Kind.QUEUE_ADDED, queue.name, queue_id, body=body, cause=cause, by=self.by))
                self._remove_partitions(queue_id, queue)
        for where, start in sorted(starts.items()):
            queue = self.state.queues[where[0]]
            if where not in self.state.partitions and where[1] in queue.numbers:
                last, position = self.state.removed.get(where, (-1, 0))
                self._emit_partition(
                    Kind.PARTITION_ADDED, where, "new to the group",
                    offset=max(start, position), epoch=last + 1, lineage_epoch=last + 1,
                )  # fmt: skip
        return set(self.state.partitions) != known

    def _remove_partitions(self, queue_id: str, queue: QueueInGroup) -> None:
        """Forget the partitions that the queue has no longer; their owners lose them at once (S2)."""
        for where in sorted(self.state.partitions):
            if where[0] == queue_id and where[1] not in queue.numbers:
                cause = f"queue {queue.name} has no partition {where[1]} any more"
                if self.state.partitions[where].flow is not None:
                    self._end(Kind.UNASSIGNED, where, cause)
                self._emit_partition(Kind.PARTITION_REMOVED, where, cause, offset=self.state.position(where, self.acks))

    def _remove_queue(self, queue_id: str, cause: str) -> None:
        queue = self.state.queues.get(queue_id)
        if queue is not None:
            self.emit(GroupFact(Kind.QUEUE_REMOVED, queue.name, queue_id, cause=cause, by=self.by))

    # ---- leaving
    def leave(self, event: Leave) -> None:
        member = self.state.members.get(event.instance)
        if member is None or member.incarnation != event.incarnation:
            return
        cause = f"the session of {event.instance} expired" if event.expired else f"{event.instance} left"
        before, chosen, count_decides = (
            len(self.state.flows),
            choose(self.state.members.values()),
            self._count_decides(),
        )
        left = self._unbind(member, cause)
        rest = self.state.members.values()
        if count_decides and (not rest or choose(rest)[0] == chosen[0]):
            for i, partitions in enumerate(left):
                self._replace(partitions, before - i, cause)
        else:
            self._trigger(before, cause)
        self._settle_holddown()
        self._settle()

    def _unbind(self, member: Member, cause: str) -> list[list[PartitionId]]:
        """A process is a member no longer; what each of its flows leaves."""
        self.emit(
            GroupFact(
                Kind.MEMBER_LEFT, instance=member.instance, incarnation=member.incarnation, host=member.host,
                flows=member.flows, cause=cause, by=self.by,
            )
        )  # fmt: skip
        return [self._strip(flow, cause) for flow in member.flow_names]

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
        if self.state.assignment_due:
            return
        if count <= len(self.state.subscribed_partitions):
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
        if self.state.status is Status.HOLDDOWN or self.state.assignment_due:
            return  # the delay runs from the first change; what is still to be computed will be of those who are there then
        if not self.state.rebalance_delay_ms:
            self._rebalance(cause)
        else:
            self._change(Status.HOLDDOWN, cause, flows=count)

    def _change(self, status: Status, cause: str, flows: int | None = None) -> None:
        if self.state.status is not status or (status is Status.REBALANCING and not self.state.assignment_due):
            self.emit(GroupFact(Kind.STATUS_CHANGED, status=status, flows=flows, cause=cause, by=self.by))

    def _settle_holddown(self) -> None:
        """End the holddown without any handoff if the group is again what it was before it (R5)."""
        if self.state.status is not Status.HOLDDOWN or not self.state.members or not self._as_before():
            return
        flows = self.state.flows
        cause = f"there are {_count(len(flows), 'flow')} again"
        vacant: dict[Flow, list[PartitionId]] = {}
        for where in sorted(self.state.subscribed_partitions):
            own = self.state.partitions[where]
            if own.flow is None and own.last_flow is not None:
                vacant.setdefault(own.last_flow, []).append(where)
        idle = self._idle_flows()
        returned = [flow for flow in idle if flow in vacant]
        rest = [flow for flow in idle if flow not in vacant]
        for flow in returned:
            self._grant_all(vacant.pop(flow), flow, cause)
        for partitions, flow in zip(vacant.values(), rest, strict=False):
            self._grant_all(partitions, flow, cause)
        if not self._fits():
            return
        if self.state.draining:
            self._rebalance(cause)  # an earlier rebalance goes on
        else:
            self._change(Status.READY, cause)

    def _as_before(self) -> bool:
        """Whether what an assignor sees of the group is what it was when it last computed."""
        view = self.state.view()
        if self._count_decides() and alike(self.state.basis, view):
            flows, most = len(self.state.flows), len(self.state.subscribed_partitions)
            same = min(flows, most) == min(self.state.baseline, most)  # standbys make no difference
        else:
            same = self.state.basis == view
        return same and choose(self.state.members.values()) == (self.state.assignor, self.state.protocol)

    def _shape(self) -> tuple[tuple[str, Protocol] | None, View]:
        """What decides how the group is assigned, but for the partitions."""
        members = self.state.members.values()
        return choose(members) if members else None, self.state.view()

    def _count_decides(self) -> bool:
        """Whether the number of flows alone tells if anything has to move: `balanced`, among flows that are all alike (R2, R3)."""
        members = self.state.members.values()
        return not members or (choose(members)[0] == "balanced" and alike(self.state.view()))

    def holddown_over(self, event: HolddownOver) -> None:
        if self.state.status is Status.HOLDDOWN and self.state.status_seq == event.status_seq:
            self._rebalance(f"the rebalance delay is over: {self.state.trigger}")

    # ---- rebalancing
    def _rebalance(self, cause: str) -> None:
        self._change(Status.REBALANCING, cause)
        self._settle()

    def _settle(self) -> None:
        """Take a rebalance as far as it can go now."""
        if self.state.status is not Status.REBALANCING:
            return
        if not self.state.members:
            self._change(Status.READY, "no flows are left")
            return
        if not self.state.assignment_due and not self.state.draining and not self._fits():
            self._change(Status.REBALANCING, self.state.trigger)  # a flow went that was to take something
        if self.state.assignment_due:
            assignor, protocol = choose(self.state.members.values())
            if protocol is Protocol.EAGER:
                self._revoke_all()
                if self.state.draining:
                    return
            self._assign(assignor, protocol)
        if not self.state.draining:
            self._change(Status.READY, "balanced")

    def _revoke_all(self) -> None:
        """The first phase of an eager rebalance: everybody gives up everything, and nobody knows yet who takes it."""
        for where in sorted(self.state.partitions):
            own = self.state.partitions[where]
            if own.flow is not None and own.target is not None:
                self._emit_partition(Kind.HANDOFF_STARTED, where, self.state.trigger, flow=own.flow)
                if not self.state.queues[where[0]].max_handoff_time_ms:
                    self._force(where, "max_handoff_time_ms is 0")

    def _assign(self, name: str, protocol: Protocol) -> None:
        """Compute who shall own what; grant what nobody owns, start the handoffs of what moves (steps 2 to 6 of R6)."""
        target = self._target(name, protocol)
        cause = self.state.trigger
        body: dict[str, object] = {"assignor": name, "protocol": protocol}
        if self.loads is not None and self.assignor(name).loads:
            body["loads"] = [[*where, load] for where, load in sorted(self.loads.items())]
        self.emit(GroupFact(Kind.ASSIGNMENT_COMPUTED, body=_json(**body), cause=cause, by=self.by))
        for where, flow in target.items():
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

    def _target(self, name: str, protocol: Protocol) -> dict[PartitionId, Flow]:
        """What the assignor says, of the partitions that somebody reads."""
        state = self.state
        ids = {queue.name: queue_id for queue_id, queue in state.queues.items()}
        flows = [
            assignors.Member(flow, read, flow if static else None, weight=weight)
            for flow, (read, weight, static) in state.view().items()
        ]
        # An eager rebalance has revoked everything: who had it is then what a sticky assignor goes by.
        current = {
            self._named(where): own.to_flow or own.flow or (own.last_flow if protocol is Protocol.EAGER else None)
            for where, own in state.partitions.items()
        }
        counts = Counter(queue for queue, _ in current)
        loads = None
        if self.loads is not None:
            loads = {self._named(w): load for w, load in self.loads.items() if w in state.partitions}
        found = assignors.target(self.assignor(name), flows, counts, current, loads)
        return {
            (ids[queue], index + state.queues[ids[queue]].first): flow for (queue, index), flow in sorted(found.items())
        }

    def _named(self, where: PartitionId) -> tuple[str, int]:
        """The partition as assignors know it, by the queue's name and from 0 on."""
        queue = self.state.queues[where[0]]
        return queue.name, where[1] - queue.first

    def _fits(self) -> bool:
        """Whether every partition that is read has an owner, or will have, and nothing more needs to move."""
        state = self.state
        targets = {where: state.partitions[where].target for where in state.subscribed_partitions}
        if any(flow is None or not state.subscribed(flow, where) for where, flow in targets.items()):
            return False
        return not self._count_decides() or is_balanced(targets, state.flows)

    def loads_measured(self) -> None:
        """Move partitions from flows with much to do to others, if the assignor says that it pays."""
        state = self.state
        if state.status is not Status.READY or not state.members:
            return
        name, protocol = choose(state.members.values())
        if not self.assignor(name).loads:
            return
        target = self._target(name, protocol)
        if any(state.partitions[where].target != flow for where, flow in target.items()):
            self._rebalance("the load has shifted")

    # ---- handoff
    def drained(self, event: Drained) -> None:
        own = self.state.partitions.get(event.where)
        if own is None or own.state is not PartitionState.DRAINING:
            return
        if (own.incarnation, own.epoch) != (event.incarnation, event.epoch):
            return
        if (self.state.position(event.where, self.acks) or 0) < event.end:
            return  # it says more than it acknowledged
        receiver, giver = own.to_flow, own.flow
        self._end(Kind.RELEASED, event.where, f"{giver} has acknowledged all it was given")
        if receiver is not None:
            self._grant(event.where, receiver, f"{giver} released it")
        self.moved = True

    def deadline_passed(self, event: DeadlinePassed) -> None:
        own = self.state.partitions.get(event.where)
        if own is not None and own.state is PartitionState.DRAINING and own.handoff == event.handoff:
            limit = self.state.queues[event.where[0]].max_handoff_time_ms
            self._force(event.where, f"{own.flow} did not release it within {limit} ms")
            self.moved = True

    def handoffs_ended(self) -> None:
        """Once for all that end in one decision: there may be thousands."""
        if self.moved:
            self.moved = False
            self._settle()

    def _force(self, where: PartitionId, cause: str) -> None:
        """Take a partition from its owner without waiting."""
        receiver = self.state.partitions[where].to_flow
        if receiver is None:
            # The line ends, also for who gets it back: what the application acknowledges at this moment may come too late.
            self._end(Kind.UNASSIGNED, where, cause, forced=True)
        else:
            self._grant(where, receiver, cause, forced=True)

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
            lineage_epoch=own.lineage_epoch if same_line else epoch,
            instance=member.instance, incarnation=member.incarnation, host=member.host,
        )  # fmt: skip

    def _end(self, kind: Kind, where: PartitionId, cause: str, forced: bool | None = None) -> None:
        own = self.state.partitions[where]
        self._emit_partition(
            kind, where, cause, offset=self.state.position(where, self.acks),
            delivered=self.state.delivered(where, self.acks), epoch=own.epoch + (kind is Kind.UNASSIGNED),
            lineage_epoch=own.epoch + 1 if forced else own.lineage_epoch, forced=forced,
            flow=own.flow, instance=instance_of(own.flow or ""), incarnation=own.incarnation,
        )  # fmt: skip

    def raise_floors(self, event: RaiseFloors) -> None:
        for where in sorted(self.state.partitions):
            position = self.state.position(where, self.acks) or 0
            named = where[0] == event.queue_id and (event.partitions is None or where[1] in event.partitions)
            if named and position > self.state.floors.get(where, 0):
                self._emit_partition(Kind.FLOOR, where, "what lies below is finished for good", offset=position)

    def _emit_partition(self, kind: Kind, where: PartitionId, cause: str, **columns: object) -> None:
        own = self.state.partitions.get(where) or Ownership(None, None, "", 0, 0, 0, 0)
        known = {"epoch_before": own.epoch, "epoch": own.epoch, "lineage_epoch": own.lineage_epoch, "cause": cause}
        queue = self.state.queues[where[0]].name
        self.emit(GroupFact(kind, queue, *where, **{**known, "by": self.by, **columns}))  # type: ignore[arg-type]


def _check_agreement(member: Member, others: Sequence[Member]) -> None:
    for other in others:
        if member.session_timeout_ms != other.session_timeout_ms:
            raise GroupMismatchError(
                f"{member.instance} has sessionTimeoutMs={member.session_timeout_ms}, but {other.instance} is in the group with "
                f"sessionTimeoutMs={other.session_timeout_ms}; use the same value, or wait until the other has left",
                option="sessionTimeoutMs", instance=member.instance, other=other.instance,
            )  # fmt: skip
    common = common_assignors([member, *others])
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
