"""Who owns what, from which offset on: joins, departures, holddowns and handoffs."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.group.events import Drained, HolddownOver
from spark_partq.core.group.facts import Kind, PartitionState, Status
from spark_partq.core.group.observer import MAX_STEP_MS
from spark_partq.core.group.steps import ownership
from spark_partq.testing.simulation.setup import Faults
from tests.core.delivery import test_member as members
from tests.core.group import test_decide as decisions
from tests.core.group import test_deletion as deletion
from tests.core.group import test_observer as timers
from tests.core.group import test_state as states
from tests.core.queue import test_decide as queues
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import (
    HASTY,
    HASTY_WITH_KILLS,
    ROLLING,
    as_is,
    moves,
    restarts,
    shared,
    waits,
)

DECISION, STATE, STEPS = "core.group.steps.decision:Decision", "core.group.state:GroupState", "core.group.steps"
OBSERVER = "core.group.observer:Observer"


# ---- who
@bug("core.delivery.member:owned", change=as_is(HASTY))
def an_owner_too_many(original, state, incarnation):
    """A process plans whatever anybody owns."""
    return {w: own for w, own in state.partitions.items() if own.flow}


@bug(f"{STATE}.idle_flows", test=lambda: decisions.test_a_standby_takes_exactly_the_load(1_000))
def a_forgotten_standby(original, state):
    """Flows without a partition are not seen, so the load of one that leaves waits for the holddown."""
    return []


@bug("core.assignors.api:target", shared)
def balanced_off_by_one(original, rule, members, counts, current, loads):
    """Partitions stay where they are, and those without an owner all go to the first flow."""
    readers = {queue: [m.id for m in members if queue in m.queues] for queue in counts}
    return {w: f if f in readers[w[0]] else readers[w[0]][0] for w, f in current.items() if readers[w[0]]}


@bug(f"{STEPS}.leaving:revoke_flow", change=as_is(replace(HASTY_WITH_KILLS, rebalance_delay_ms=1_000)))
def a_target_that_is_gone_is_kept(original, decision, flow, cause, *ends_lineage):
    """Handoffs to a flow that left go on."""
    emit = decision.emit_partition
    decision.emit_partition = lambda kind, *a, **k: None if kind is Kind.HANDOFF_CANCELLED else emit(kind, *a, **k)
    left = original(decision, flow, cause, *ends_lineage)
    decision.emit_partition = emit
    return left


@bug(f"{STEPS}.joining:resume", restarts)
def a_rejoin_grants_nothing_anew(original, decision, flow, cause):
    """What a process owned that started again stays with the former process."""


@bug(f"{STATE}.owned", restarts)
def a_flow_that_is_gone_keeps_its_partitions(original, state, flow):
    """Nothing is taken from a flow that leaves."""
    return []


@bug(f"{STEPS}.joining:end_lineages", test=decisions.test_a_return_without_its_partitions_ends_their_lineage)
def a_lineage_survives_a_return_without_the_partition(original, decision, joined):
    """What an instance left out of its replay still counts as its own when it gets the partition back."""


# ---- epochs and offsets
@bug(f"{DECISION}.emit_partition", restarts)
def an_expiry_keeps_the_epoch(original, decision, kind, partition_id, cause, **columns):
    """Whoever is expelled can go on acknowledging."""
    if kind is Kind.UNASSIGNED:
        columns.pop("epoch", None)
    original(decision, kind, partition_id, cause, **columns)


@bug(f"{STATE}._replay_partition", restarts)
def a_grant_keeps_the_epoch_of_its_instance(original, state, kind, fact):
    """A restart begins no new epoch."""
    own = state.partitions.get(fact.partition_id)
    if kind is Kind.GRANTED and own is not None and own.flow == fact.flow:
        state.partitions[fact.partition_id] = replace(
            own, incarnation=fact.incarnation, start=fact.offset, to_flow=None
        )
        return
    original(state, kind, fact)


@bug(f"{DECISION}.emit_partition", change=as_is(HASTY))
def a_grant_starts_past_the_position(original, decision, kind, partition_id, cause, **columns):
    """A new owner leaves out a message that was delivered and not acknowledged."""
    if kind is Kind.GRANTED and columns["delivered"] > columns["offset"]:
        columns["offset"] += 1
    original(decision, kind, partition_id, cause, **columns)


@bug(f"{DECISION}.emit_partition", moves)
def the_lineage_epoch_is_not_continued(original, decision, kind, partition_id, cause, **columns):
    """What an instance planned before it started again is not its own."""
    if kind is Kind.GRANTED:
        columns["lineage_epoch"] = columns["epoch"]
    original(decision, kind, partition_id, cause, **columns)


@bug(f"{DECISION}.emit_partition", moves)
def the_lineage_epoch_is_continued_across_owners(original, decision, kind, partition_id, cause, **columns):
    """What an owner planned is its own when the partition returns from another."""
    if kind is Kind.GRANTED:
        columns["lineage_epoch"] = decision.state.partitions[partition_id].lineage_epoch or 1
    original(decision, kind, partition_id, cause, **columns)


@bug(f"{STATE}.delivered", change=as_is(HASTY))
def the_delivered_mark_is_dropped(original, state, partition_id, acks):
    """Nobody knows what was delivered and not acknowledged."""
    return state.position(partition_id, acks) or 0


@bug("core.group.acks:Acks.offset", test=states.test_who_may_acknowledge)
def anybody_may_acknowledge(original, acks, partition_id, epoch, incarnation):
    """Acknowledgements of former owners count."""
    return max((x for (p, _, _), x in acks.rows.items() if p == partition_id), default=0)


# ---- holddown
@bug(
    f"{STEPS}.holddown:end_if_restored",
    test=decisions.test_the_flow_that_returns_takes_exactly_what_it_had,
)
def a_holddown_that_does_not_cancel(original, decision):
    """The group waits and rebalances though who left is back."""


@bug(f"{OBSERVER}._holddown_over", test=timers.test_changes_do_not_restart_the_holddown)
def a_holddown_that_later_changes_restart(original, observer, state):
    """The delay runs from the last change."""
    if state.status is not Status.HOLDDOWN:
        return []
    if observer._holddown[0] != state.seq:
        observer._holddown = (state.seq, observer._watched_ms)
    waited = observer._watched_ms - observer._holddown[1] >= state.rebalance_delay_ms
    return [HolddownOver(state.status_seq)] if waited else []


@bug(f"{STEPS}.holddown:trigger", waits)
def what_is_left_is_given_away_in_the_holddown(original, decision, count, cause):
    """Partitions of whoever left do not wait for the delay."""
    original(decision, count, cause)
    flows = decision.state.flows
    for partition_id, own in sorted(decision.state.partitions.items()):
        if own.flow is None and flows and decision.state.status is Status.HOLDDOWN:
            ownership.grant(decision, partition_id, flows[0], cause)


# ---- handoff
@bug(f"{OBSERVER}._deadlines", test=timers.test_the_deadline_of_a_handoff)
def a_handoff_without_a_deadline(original, observer, state):
    """An owner that does not release is waited for."""
    return []


@bug(f"{STATE}._replay_partition", change=as_is(ROLLING))
def a_new_receiver_gets_new_time(original, state, kind, fact):
    """A handoff whose receiver changes begins anew."""
    original(state, kind, fact)
    if kind is Kind.HANDOFF_STARTED:
        state.partitions[fact.partition_id] = replace(state.partitions[fact.partition_id], handoff=state.seq)


@bug("core.delivery.member:DeliveryTracker.drained", change=as_is(ROLLING))
def a_release_carries_the_querys_position(original, tracker, state, acks, incarnation):
    """Who receives a partition starts where its giver would have gone on, whatever is acknowledged."""
    return [
        Drained(p, incarnation, own.epoch, tracker.planned_ends.get(p, (0, state.position(p, acks)))[1])
        for p, own in state.partitions.items()
        if own.flow and own.incarnation == incarnation and own.state is PartitionState.DRAINING
    ]


@a_release_carries_the_querys_position.also(f"{STEPS}.handoff:drained")
def _grants_from_the_end(original, decision, event):
    own = decision.state.partitions.get(event.partition_id)
    if own is None or own.to_flow is None or (own.incarnation, own.epoch) != (event.incarnation, event.epoch):
        return
    receiver, state = own.to_flow, decision.state
    ownership.end(decision, Kind.RELEASED, event.partition_id, "")
    state.partitions[event.partition_id] = replace(state.partitions[event.partition_id], start=event.end)
    ownership.grant(decision, event.partition_id, receiver, "")
    decision.handoffs_ended = True


@bug("core.delivery.member:DeliveryTracker.drained", change=as_is(ROLLING))
def a_release_before_all_is_acknowledged(original, tracker, state, acks, incarnation):
    """A partition is released while a micro-batch with it runs."""
    return [
        Drained(p, incarnation, own.epoch, state.position(p, acks) or 0)
        for p, own in state.partitions.items()
        if own.flow and own.incarnation == incarnation and own.state is PartitionState.DRAINING
    ]


@bug(f"{STEPS}.rebalancing:advance", moves)
def ready_while_a_handoff_is_under_way(original, decision):
    """The group says that it has rebalanced before it has."""
    original(decision)
    if decision.state.status is Status.REBALANCING:
        decision.change_status(Status.READY, "")


@bug(f"{DECISION}.emit_partition", change=as_is(HASTY))
def a_forced_handoff_keeps_the_epoch(original, decision, kind, partition_id, cause, **columns):
    """Who lost a partition by its deadline can go on acknowledging."""
    if kind is Kind.GRANTED and columns.get("forced"):
        columns["epoch"] = decision.state.partitions[partition_id].epoch
        columns["lineage_epoch"] = decision.state.partitions[partition_id].lineage_epoch
    original(decision, kind, partition_id, cause, **columns)


@a_forced_handoff_keeps_the_epoch.also("core.group.state:_must")
def _takes_any_fact(original, condition, otherwise):
    pass


# ---- sessions
@bug("core.delivery.member:membership_status", test=members.test_membership_status)
def a_zombie_is_not_fenced(original, state, instance, incarnation):
    """A process whose instance was started again goes on."""
    found = original(state, instance, incarnation)
    return replace(found, registered=instance in state.members, fenced=False)


@bug(f"{OBSERVER}.due", test=lambda: timers.test_a_clock_that_jumps(10**9))
def an_observer_trusts_a_clock_that_jumps(original, observer, state, acks, now_ms):
    """A jump counts as time in which everybody was silent."""
    if observer._last_ms is not None:
        observer._watched_ms += max(0, now_ms - observer._last_ms - MAX_STEP_MS)
    return original(observer, state, acks, now_ms)


@bug(f"{OBSERVER}.due", test=timers.test_a_silent_member_expires)
def an_observer_expels_itself(original, observer, state, acks, now_ms):
    """A process that is too busy for its heartbeat gives itself up."""
    observer.incarnation = ""
    return original(observer, state, acks, now_ms)


@bug(f"{OBSERVER}._expired", change=as_is(replace(ROLLING, faults=Faults(kill=0.02))))
def nobody_is_ever_expelled(original, observer, state, acks):
    """What a dead member owns stays with it."""
    return []


# ---- a deletion
@bug("core.group.state:GroupState._deleted", test=deletion.test_one_that_is_created_again_has_higher_epochs)
def epochs_begin_anew_with_a_group(original, state):
    """An acknowledgement of a deleted group counts in the next one of its name."""
    return replace(original(state), last_epoch=-1)


@bug("core.group.steps.leaving:delete_group", test=deletion.test_an_active_one_is_not_deleted)
def an_active_group_is_deleted(original, decision):
    """Its members go on, and nobody waits for them."""
    decision.state.members.clear()
    original(decision)


@bug("core.queue.decide:detach_group", test=queues.test_a_group_is_attached_once_and_again_after_its_deletion)
def who_deletes_a_group_detaches_the_next_one(original, state, group, deletions):
    """The group that was created again meanwhile is not waited for."""
    return original(state, group, max(deletions, state.groups.get(group, 0) + 1))
