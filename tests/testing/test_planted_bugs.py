"""A simulator that finds nothing proves nothing: every bug planted here is caught by it, or by a scenario."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_partq.core import assignors
from spark_partq.core.delivery import member
from spark_partq.core.delivery.member import DeliveryTracker, MembershipStatus
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import PartqError
from spark_partq.core.group import acks as acks_module
from spark_partq.core.group import choice, decide, observer
from spark_partq.core.group import state as group_module
from spark_partq.core.group.acks import AckRow, Acks, compacted
from spark_partq.core.group.events import AssignmentDue, Drained, HolddownOver
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState, Protocol, Status
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import handoff, holddown, joining, leaving, ownership, queue_changes, rebalancing
from spark_partq.core.group.steps.decision import Decision
from spark_partq.core.ids import PartitionId
from spark_partq.storage.log import Conflict
from spark_partq.testing import memory, process, simulator
from spark_partq.testing.process import Process
from spark_partq.testing.simulator import World
from tests.core.group import test_protocols as protocols
from tests.testing import test_rebalance_scenarios as stories
from tests.testing import test_scenarios as scenarios

Patch = pytest.MonkeyPatch
SEEDS = 150


def by_simulator(process: type[Process] = Process) -> None:
    for seed in range(SEEDS):
        simulator.run(seed, 600, lambda seed: World(seed, process=process))


BUGS: list[tuple[str, Callable[[Patch], Any], Callable[[], None]]] = []


def bug(caught_by: Callable[[], None] = by_simulator) -> Callable[[Callable[[Patch], Any]], Callable[[Patch], Any]]:
    def add(plant: Callable[[Patch], Any]) -> Callable[[Patch], Any]:
        BUGS.append((plant.__name__, plant, caught_by))
        return plant

    return add


# ---- who owns what
@bug()
def an_owner_too_many(patch: Patch) -> None:
    """A process plans whatever its instance owns, also when it is no longer the registered one."""

    def owned(state: GroupState, incarnation: str) -> Any:
        return {w: own for w, own in state.partitions.items() if own.flow}

    patch.setattr(member, "owned", owned)


@bug()
def a_zombie_is_not_fenced(patch: Patch) -> None:
    patch.setattr(
        member,
        "membership_status",
        lambda state, instance, incarnation: MembershipStatus(instance in state.members, False),
    )


@bug(scenarios.test_a_standby_takes_over)
def a_forgotten_standby(patch: Patch) -> None:
    patch.setattr(GroupState, "idle_flows", [])


@bug()
def balanced_off_by_one(patch: Patch) -> None:
    def lazy(current: Any, flows: Any) -> bool:
        loads = [sum(1 for f in current.values() if f == flow) for flow in flows]
        return None not in current.values() and (not loads or max(loads) - min(loads) <= 2)

    def unbalanced(_: Any, members: Any, counts: Any, current: Any, __: Any) -> Any:
        readers = {queue: [m.id for m in members if queue in m.queues] for queue in counts}
        return {w: f if f in readers[w[0]] else readers[w[0]][0] for w, f in current.items() if readers[w[0]]}

    patch.setattr(rebalancing, "is_balanced", lazy)
    patch.setattr(assignors, "target", unbalanced)


@bug()
def a_target_that_is_gone_is_kept(patch: Patch) -> None:
    revoke_flow = leaving.revoke_flow

    def careless(decision: Decision, flow: str, cause: str) -> Any:
        emit = decision.emit_partition
        decision.emit_partition = lambda kind, *a, **k: None if kind is Kind.HANDOFF_CANCELLED else emit(kind, *a, **k)  # type: ignore[method-assign]
        left = revoke_flow(decision, flow, cause)
        decision.emit_partition = emit  # type: ignore[method-assign]
        return left

    patch.setattr(leaving, "revoke_flow", careless)


@bug()
def a_rejoin_grants_nothing_anew(patch: Patch) -> None:
    patch.setattr(joining, "resume", lambda decision, flow, cause: None)


@bug()
def a_flow_that_is_gone_keeps_its_partitions(patch: Patch) -> None:
    patch.setattr(GroupState, "owned", lambda self, flow: [])


@bug()
def an_expiry_keeps_the_epoch(patch: Patch) -> None:
    emit = Decision.emit_partition

    def same_epoch(decision: Decision, kind: Kind, where: Any, cause: str, **columns: Any) -> None:
        if kind is Kind.UNASSIGNED:
            columns.pop("epoch", None)
        emit(decision, kind, where, cause, **columns)

    patch.setattr(Decision, "emit_partition", same_epoch)


@bug()
def a_grant_keeps_the_epoch_of_its_instance(patch: Patch) -> None:
    replay = GroupState._replay_partition

    def forgiving(self: GroupState, kind: Kind, fact: Any) -> None:
        own = self.partitions.get(fact.partition_id)
        if kind is Kind.GRANTED and own is not None and own.flow == fact.flow:
            self.partitions[fact.partition_id] = replace(
                own, incarnation=fact.incarnation, start=fact.offset, to_flow=None
            )
            return
        replay(self, kind, fact)

    patch.setattr(GroupState, "_replay_partition", forgiving)


# ---- holddown
@bug(scenarios.test_a_flow_that_comes_back_in_time_takes_exactly_what_it_had)
def a_holddown_that_does_not_cancel(patch: Patch) -> None:
    patch.setattr(holddown, "end_if_restored", lambda decision: None)


@bug(scenarios.test_the_delay_runs_from_the_first_change)
def a_holddown_that_later_changes_restart(patch: Patch) -> None:
    def over(self: Observer, state: GroupState) -> Any:
        if state.status is not Status.HOLDDOWN:
            return []
        if self._holddown[0] != state.seq:
            self._holddown = (state.seq, self._watched_ms)
        waited = self._watched_ms - self._holddown[1] >= state.rebalance_delay_ms
        return [HolddownOver(state.status_seq)] if waited else []

    patch.setattr(Observer, "_holddown_over", over)


@bug()
def what_is_left_is_given_away_in_the_holddown(patch: Patch) -> None:
    trigger = holddown.trigger

    def generous(decision: Decision, count: int, cause: str) -> None:
        trigger(decision, count, cause)
        flows = decision.state.flows
        for where, own in sorted(decision.state.partitions.items()):
            if own.flow is None and flows and decision.state.status is Status.HOLDDOWN:
                ownership.grant(decision, where, flows[0], cause)

    patch.setattr(holddown, "trigger", generous)


# ---- handoff
@bug(scenarios.test_a_handoff_ends_at_its_deadline)
def a_handoff_without_a_deadline(patch: Patch) -> None:
    patch.setattr(Observer, "_deadlines", lambda self, state: [])


@bug(scenarios.test_a_new_receiver_gets_no_new_time)
def a_new_receiver_gets_new_time(patch: Patch) -> None:
    replay = GroupState._replay_partition

    def renewed(self: GroupState, kind: Kind, fact: Any) -> None:
        replay(self, kind, fact)
        if kind is Kind.HANDOFF_STARTED:
            self.partitions[fact.partition_id] = replace(self.partitions[fact.partition_id], handoff=self.seq)

    patch.setattr(GroupState, "_replay_partition", renewed)


@bug()
def a_release_carries_the_querys_position(patch: Patch) -> None:
    def drained(self: DeliveryTracker, state: GroupState, acks: Acks, incarnation: str) -> list[Drained]:
        return [
            Drained(where, incarnation, own.epoch, self.planned_ends.get(where, (0, state.position(where, acks)))[1])
            for where, own in member.owned(state, incarnation).items()
            if own.state is PartitionState.DRAINING
        ]

    def release(decision: Decision, event: Drained) -> None:
        own = decision.state.partitions.get(event.partition_id)
        if own is None or own.to_flow is None or (own.incarnation, own.epoch) != (event.incarnation, event.epoch):
            return
        receiver, position = own.to_flow, GroupState.position
        GroupState.position = lambda self, where, acks: event.end  # type: ignore[method-assign,assignment]
        try:
            ownership.end(decision, Kind.RELEASED, event.partition_id, "")
            ownership.grant(decision, event.partition_id, receiver, "")
        finally:
            GroupState.position = position  # type: ignore[method-assign]
        decision.handoffs_ended = True

    patch.setattr(DeliveryTracker, "drained", drained)
    patch.setattr(handoff, "drained", release)


class Hasty(Process):
    """Releases in the background while its planner still plans on an older look."""

    def background(self) -> Iterator[None]:
        while self.alive:
            yield
            if not self.joined:
                continue
            mine, self.control, self.acks = (
                (self.control, self.acks),
                memory.MemoryControl(self.world.control),
                memory.MemoryAcks(self.world.acks),
            )
            self.control.refresh()
            self.acks.refresh()
            self.looked_at = self.world.time
            events = [*self.drained(), *self.observer.due(self.control.state, self.acks.acks, self.clock())]
            for _ in self.commit(events):
                pass
            if self.flows and self.clock() - self.beaten_at >= process.HEARTBEAT_MS:
                self.append([], {})
            self.control, self.acks = mine


@bug(lambda: by_simulator(Hasty))
def a_release_on_another_look_than_the_plan(patch: Patch) -> None:
    """Nothing to patch: the process itself is wrong."""


@bug()
def a_release_before_all_is_acknowledged(patch: Patch) -> None:
    def drained(self: DeliveryTracker, state: GroupState, acks: Acks, incarnation: str) -> list[Drained]:
        return [
            Drained(where, incarnation, own.epoch, state.position(where, acks) or 0)
            for where, own in member.owned(state, incarnation).items()
            if own.state is PartitionState.DRAINING
        ]

    patch.setattr(DeliveryTracker, "drained", drained)


@bug()
def what_drains_is_planned_on(patch: Patch) -> None:
    patch.setattr(member, "plannable", member.owned)


class Forgetful(Process):
    """Forgets what it has handed out when it joins again."""

    def stand(self) -> Iterator[None]:
        before = self.incarnation
        yield from super().stand()
        if self.incarnation != before:
            self.handed = DeliveryTracker()


@bug(lambda: scenarios.rejoin_while_a_batch_runs(Forgetful))
def a_rejoin_forgets_what_was_handed_out(patch: Patch) -> None:
    """Nothing to patch: the process itself is wrong."""


@bug()
def ready_while_a_handoff_is_under_way(patch: Patch) -> None:
    advance = rebalancing.advance

    def early(decision: Decision) -> None:
        advance(decision)
        if decision.state.status is Status.REBALANCING:
            decision.change_status(Status.READY, "")

    patch.setattr(rebalancing, "advance", early)


# ---- offsets and epochs
@bug()
def a_grant_starts_past_the_position(patch: Patch) -> None:
    emit = Decision.emit_partition

    def skipping(decision: Decision, kind: Kind, where: Any, cause: str, **columns: Any) -> None:
        if kind is Kind.GRANTED and columns["delivered"] > columns["offset"]:
            columns["offset"] += 1
        emit(decision, kind, where, cause, **columns)

    patch.setattr(Decision, "emit_partition", skipping)


@bug()
def a_batch_is_acknowledged_under_the_current_epoch(patch: Patch) -> None:
    def finished(state: GroupState, incarnation: str, done: Any) -> Any:
        mine = member.owned(state, incarnation)
        return [(where, mine[where].epoch, r.end) for where, r in done.items() if where in mine]

    patch.setattr(member, "finished", finished)


@bug()
def anybody_may_acknowledge(patch: Patch) -> None:
    def offset(self: Acks, where: Any, epoch: int, incarnation: str) -> int:
        return max((x for (w, _, _), x in self.rows.items() if w == where), default=0)

    patch.setattr(Acks, "offset", offset)


@bug()
def the_lineage_epoch_is_not_continued(patch: Patch) -> None:
    emit = Decision.emit_partition

    def broken(decision: Decision, kind: Kind, where: Any, cause: str, **columns: Any) -> None:
        if kind is Kind.GRANTED:
            columns["lineage_epoch"] = columns["epoch"]
        emit(decision, kind, where, cause, **columns)

    patch.setattr(Decision, "emit_partition", broken)


@bug()
def the_lineage_epoch_is_continued_across_owners(patch: Patch) -> None:
    emit = Decision.emit_partition

    def endless(decision: Decision, kind: Kind, where: Any, cause: str, **columns: Any) -> None:
        if kind is Kind.GRANTED:
            columns["lineage_epoch"] = decision.state.partitions[where].lineage_epoch or 1
        emit(decision, kind, where, cause, **columns)

    patch.setattr(Decision, "emit_partition", endless)


@bug(scenarios.test_a_return_without_the_partition_ends_its_lineage)
def a_lineage_survives_a_return_without_the_partition(patch: Patch) -> None:
    patch.setattr(joining, "end_lineages", lambda decision, joined: None)


@bug()
def the_delivered_mark_is_dropped(patch: Patch) -> None:
    patch.setattr(GroupState, "delivered", lambda self, where, acks: self.position(where, acks) or 0)


@bug()
def a_floor_lies_past_the_position(patch: Patch) -> None:
    emit = Decision.emit_partition

    def high(decision: Decision, kind: Kind, where: Any, cause: str, **columns: Any) -> None:
        if kind is Kind.FLOOR:
            columns["offset"] += 1
        emit(decision, kind, where, cause, **columns)

    patch.setattr(Decision, "emit_partition", high)


# ---- restarts
@bug()
def a_replay_goes_by_the_owners_name(patch: Patch) -> None:
    patch.setattr(
        member, "same_lineage", lambda own, incarnation, epoch: own is not None and own.incarnation == incarnation
    )


@bug(scenarios.test_a_replay_delivers_also_what_is_draining)
def a_replay_leaves_out_what_drains(patch: Patch) -> None:
    replayed = member.replayed

    def shy(state: GroupState, acks: Acks, incarnation: str, planned: Any, manual: bool) -> Any:
        kept = replayed(state, acks, incarnation, planned, manual)
        return {where: r for where, r in kept.items() if state.partition_state(where) is PartitionState.OWNED}

    patch.setattr(member, "replayed", shy)


@bug(scenarios.test_a_floor_holds_whatever_happens)
def a_replay_begins_below_the_floor(patch: Patch) -> None:
    def replayed(state: GroupState, acks: Acks, incarnation: str, planned: Any, manual: bool) -> Any:
        return {
            where: Range(state.partitions[where].epoch, r.start, r.end)
            for where, r in planned.items()
            if r.end > r.start and member.same_lineage(state.partitions.get(where), incarnation, r.epoch)
        }

    patch.setattr(member, "replayed", replayed)


@bug()
def the_next_batch_starts_at_the_querys_own_position(patch: Patch) -> None:
    def start(state: GroupState, acks: Acks, incarnation: str, where: Any, done: Range | None) -> int:
        return max(state.position(where, acks) or 0, done.end if done else 0)

    patch.setattr(member, "start", start)


class Confident(Process):
    """With manual acknowledgement: trusts its checkpoint after a restart."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.handed.record(self.checkpoint.ranges)


@bug(lambda: scenarios.restart_with_manual_acknowledgement(Confident))
def a_manual_restart_goes_on_after_what_was_delivered(patch: Patch) -> None:
    """Nothing to patch: the process itself is wrong."""


@bug(scenarios.test_an_acknowledgement_under_a_past_epoch_is_repeated)
def an_empty_range_is_not_acknowledged_again(patch: Patch) -> None:
    finished = member.finished

    def once(state: GroupState, incarnation: str, done: Any) -> Any:
        return finished(state, incarnation, {where: r for where, r in done.items() if r.end > r.start})

    patch.setattr(member, "finished", once)


class Picky(Process):
    """Leaves out of a batch what it has lost since it was planned."""

    def run(self, ranges: dict[PartitionId, Range], marks: dict[PartitionId, int]) -> Iterator[None]:
        yield
        self.control.refresh()
        held = {where: r for where, r in ranges.items() if self.control.state.partitions[where].flow is not None}
        yield from super().run(held, marks)


@bug(lambda: scenarios.expiry_between_plan_and_run(Picky))
def a_batch_leaves_out_what_was_lost_since(patch: Patch) -> None:
    """Nothing to patch: the process itself is wrong."""


class Unmindful(Process):
    """With manual acknowledgement: knows only the offsets of its last batch."""

    def done(self, where: PartitionId) -> Range | None:
        return self.checkpoint.ranges.get(where) if self.handed.last_planned(where) else None


@bug(lambda: scenarios.cancelled_handoff(Unmindful))
def a_cancelled_handoff_is_delivered_again(patch: Patch) -> None:
    """Nothing to patch: the process itself is wrong."""


# ---- stores
@bug(scenarios.test_compaction_keeps_what_can_still_count)
def compaction_keeps_the_newest_row(patch: Patch) -> None:
    def newest(rows: Any, live: Any) -> list[AckRow]:
        last = {row.partition_id: row for row in rows if row.partition_id is not None}
        return [*last.values(), *(AckRow(i, beat) for i, beat in Acks.of(rows).beats.items() if i in live)]

    patch.setattr(acks_module, "compacted", newest)


@bug(scenarios.test_compaction_keeps_what_can_still_count)
def compaction_keeps_the_highest_offset(patch: Patch) -> None:
    def highest(rows: Any, live: Any) -> list[AckRow]:
        best: dict[Any, AckRow] = {}
        for row in rows:
            if row.partition_id is not None and (
                row.partition_id not in best or row.offset > best[row.partition_id].offset
            ):
                best[row.partition_id] = row
        return [*best.values(), *(AckRow(i, beat) for i, beat in Acks.of(rows).beats.items() if i in live)]

    patch.setattr(acks_module, "compacted", highest)


@bug(scenarios.test_compaction_keeps_what_can_still_count)
def compaction_loses_heartbeats(patch: Patch) -> None:
    patch.setattr(acks_module, "compacted", lambda rows, live: compacted(rows, ()))


@bug()
def a_snapshot_forgets_the_lineage_epoch(patch: Patch) -> None:
    plain = group_module._plain
    patch.setattr(group_module, "_plain", lambda own: plain(replace(own, lineage_epoch=own.epoch)))


@bug()
def a_commit_is_no_compare_and_set(patch: Patch) -> None:
    append = memory.ControlLog.append

    def blind(self: memory.ControlLog, version: int, facts: Any) -> None:
        append(self, self.version, facts)

    patch.setattr(memory.ControlLog, "append", blind)


# ---- clocks
@bug(scenarios.test_a_clock_that_jumps_expels_nobody)
def an_observer_trusts_a_clock_that_jumps(patch: Patch) -> None:
    patch.setattr(observer, "MAX_STEP_MS", 10**12)


@bug(scenarios.test_nobody_expels_himself)
def an_observer_expels_itself(patch: Patch) -> None:
    due = Observer.due

    def own(self: Observer, state: GroupState, acks: Acks, now_ms: int) -> Any:
        self.incarnation = ""
        return due(self, state, acks, now_ms)

    patch.setattr(Observer, "due", own)


# ---- assignors and protocols
@bug()
def an_eager_rebalance_assigns_before_all_is_revoked(patch: Patch) -> None:
    advance = rebalancing.advance

    def hasty(decision: Decision) -> None:
        advance(decision)
        if decision.state.assignment_due and decision.state.revoking:
            rebalancing.assign(decision, *choice.choose(decision.state.members.values()))

    patch.setattr(rebalancing, "advance", hasty)


@bug(stories.test_an_eager_revocation_ends_at_its_deadline)
def an_eager_revocation_without_a_deadline(patch: Patch) -> None:
    deadlines = Observer._deadlines

    def patient(self: Observer, state: GroupState) -> Any:
        return [e for e in deadlines(self, state) if state.partitions[e.partition_id].to_flow is not None]  # type: ignore[attr-defined]

    patch.setattr(Observer, "_deadlines", patient)


@bug(protocols.test_an_eager_member_joins_while_partitions_move)
def an_eager_revocation_spares_what_is_handed_off_already(patch: Patch) -> None:
    def sparing(decision: Decision) -> None:
        for where, own in sorted(decision.state.partitions.items()):
            if own.state is PartitionState.OWNED:
                decision.emit_partition(Kind.HANDOFF_STARTED, where, decision.state.trigger, flow=own.flow)

    patch.setattr(rebalancing, "revoke_all", sparing)


@bug()
def the_lineage_goes_on_after_a_forced_revocation(patch: Patch) -> None:
    end = ownership.end

    def gentle(decision: Decision, kind: Kind, where: Any, cause: str, forced: bool | None = None) -> None:
        emit, base = decision.emit_partition, decision.state.partitions[where].lineage_epoch
        decision.emit_partition = lambda *a, **k: emit(*a, **{**k, "lineage_epoch": base})  # type: ignore[method-assign]
        end(decision, kind, where, cause, forced)
        decision.emit_partition = emit  # type: ignore[method-assign]

    patch.setattr(ownership, "end", gentle)


@bug()
def the_protocol_is_that_of_one_member_alone(patch: Patch) -> None:
    choose = choice.choose

    def alone(members: Any) -> Any:
        assignor, _ = choose(members)
        oldest = min(members, key=lambda m: m.order)
        return assignor, Protocol.COOPERATIVE if oldest.cooperative else Protocol.EAGER

    patch.setattr(choice, "choose", alone)


@bug()
def an_assignor_that_not_all_support(patch: Patch) -> None:
    choose = choice.choose

    def popular(members: Any) -> Any:
        votes = Counter(member.assignors[0] for member in members)
        return votes.most_common(1)[0][0], choose(members)[1]

    patch.setattr(choice, "choose", popular)


@bug()
def a_grant_to_a_member_that_does_not_read_the_queue(patch: Patch) -> None:
    target = assignors.target

    def to_anybody(rule: Any, members: Any, counts: Any, current: Any, loads: Any) -> Any:
        wanted = [queue for queue in counts if any(queue in m.queues for m in members)]
        return target(rule, [replace(m, queues=wanted) for m in members], counts, current, loads)

    patch.setattr(assignors, "target", to_anybody)


@bug()
def standbys_of_flows_that_differ(patch: Patch) -> None:
    """The number of flows is all that counts, whatever they read."""
    patch.setattr(choice, "alike", lambda *views: True)


@bug(protocols.test_those_who_are_left_are_alike_but_not_what_the_group_was)
def a_holddown_ends_when_those_who_are_left_are_alike(patch: Patch) -> None:
    alike = choice.alike
    patch.setattr(choice, "alike", lambda *views: alike(views[-1]))


@bug()
def a_restart_keeps_what_it_no_longer_reads(patch: Patch) -> None:
    def faithful(decision: Decision, flow: str, cause: str) -> None:
        for where in decision.state.owned(flow):
            own = decision.state.partitions[where]
            ownership.grant(decision, where, own.target or flow, cause, forced=own.target not in (flow, None))

    patch.setattr(joining, "resume", faithful)


@bug(stories.test_a_failing_assignor_holds_up_nobody)
def a_due_assignment_is_forgotten(patch: Patch) -> None:
    due = Observer.due

    def forgetful(self: Observer, state: GroupState, acks: Acks, now_ms: int) -> Any:
        return [e for e in due(self, state, acks, now_ms) if not isinstance(e, AssignmentDue)]

    patch.setattr(Observer, "due", forgetful)


@bug(stories.test_a_failing_assignor_holds_up_nobody)
def a_failing_assignor_keeps_the_dead(patch: Patch) -> None:
    """It is tried first, and nothing else is decided when it fails."""
    due = Observer.due

    def first(self: Observer, state: GroupState, acks: Acks, now_ms: int) -> Any:
        found = due(self, state, acks, now_ms)
        return [AssignmentDue()] if AssignmentDue() in found else found

    patch.setattr(Observer, "due", first)


@bug()
def what_led_to_a_failing_assignment_is_lost_with_it(patch: Patch) -> None:
    """Whoever leaves cannot, while the assignor fails, and what was released is not: the run goes on, but not on time."""
    original = decide.decide

    def strict(state: GroupState, acks: Acks, events: Any, *rest: Any, **options: Any) -> Any:
        facts = original(state, acks, events, *rest, **options)
        after = state.copy()
        for fact in facts:
            after.replay(fact)
        if after.assignment_due and not after.revoking:
            after.status = Status.READY  # as if it had been computed
            facts.append(GroupFact(Kind.STATUS_CHANGED, status=Status.READY))
        return facts

    patch.setattr(decide, "decide", strict)


# ---- queues that come and go
@bug()
def a_removed_queue_leaves_its_partitions(patch: Patch) -> None:
    replay = GroupState._replay

    def careless(self: GroupState, kind: Kind, fact: Any) -> None:
        kept = dict(self.partitions)
        replay(self, kind, fact)
        if kind is Kind.QUEUE_REMOVED:
            self.partitions = kept

    patch.setattr(GroupState, "_replay", careless)


@bug()
def a_deleted_queue_is_never_noticed(patch: Patch) -> None:
    patch.setattr(queue_changes, "remove_queue", lambda decision, queue_id, cause: None)


@bug(stories.test_queues_come_to_a_group_that_waits_for_them)
def queues_that_come_to_a_group_without_any(patch: Patch) -> None:
    changed = queue_changes.queues_changed

    def deaf(decision: Decision, event: Any) -> None:
        if decision.state.queues:
            changed(decision, event)
        else:
            queue_changes.add_queues(decision, event.queues, event.starts, "")

    patch.setattr(queue_changes, "queues_changed", deaf)


@bug(stories.test_a_queue_that_nobody_reads_any_more)
def a_queue_that_nobody_reads_is_forgotten(patch: Patch) -> None:
    join = joining.join

    def tidy(decision: Decision, event: Any) -> None:
        join(decision, event)
        for queue_id in set(decision.state.queues) - {where[0] for where in decision.state.subscribed_partitions}:
            queue_changes.remove_queue(decision, queue_id, "")

    patch.setattr(joining, "join", tidy)


@bug()
def new_partitions_wait_for_the_next_rebalance(patch: Patch) -> None:
    patch.setattr(
        queue_changes,
        "queues_changed",
        lambda decision, e: queue_changes.add_queues(decision, e.queues, e.starts, "") and None,
    )


@pytest.mark.parametrize(
    ("plant", "caught_by"), [(plant, by) for _, plant, by in BUGS], ids=[name for name, *_ in BUGS]
)
def test_it_is_caught(monkeypatch: Patch, plant: Callable[[Patch], Any], caught_by: Callable[[], None]) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, PartqError, Conflict)) as caught:
        caught_by()
    assert not re.search(r": (Attribute|Name|Type)Error", str(caught.value)), "the bug itself has a bug"
