"""What a member plans, acknowledges, replays and marks."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.delivery.member import Range, owned, same_lineage
from spark_partq.core.group.facts import PartitionState
from spark_partq.storage.group.handle import Group
from spark_partq.testing.simulation.setup import Faults
from tests.core.delivery import test_member as members
from tests.storage.procedures import test_ack_changes as ack_changes
from tests.storage.procedures import test_acknowledge as acknowledging
from tests.storage.procedures import test_planner as planners
from tests.storage.procedures.test_former_owner import test_who_plans_second_marks_what_both_deliver
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import (
    BY_HAND,
    HASTY,
    HASTY_WITH_KILLS,
    ROLLING,
    ROLLING_WITH_KILLS,
    as_is,
    renamed,
)
from tests.testing.planted.stores import in_a_store

MEMBER, MEMBERSHIP = "core.delivery.member", "storage.procedures.consume.membership:Membership"
PLANNER = "storage.procedures.consume.planner:Planner"


# ---- planning
@bug(f"{MEMBER}:plannable", test=members.test_what_drains_is_not_planned)
def what_drains_is_planned_on(original, state, incarnation):
    """A partition that is being handed off is read on by its giver."""
    return owned(state, incarnation)


@bug(f"{MEMBER}:start", test=members.test_where_the_next_batch_starts)
def the_next_batch_starts_at_the_querys_own_position(original, state, acks, incarnation, partition_id, done):
    """A query goes on after its last micro-batch, though it has lost the partition since."""
    return max(state.position(partition_id, acks) or 0, done.end if done else 0)


@bug(f"{PLANNER}._offset", test=lambda: in_a_store(ack_changes.test_a_replay_begins_at_the_position))
def a_manual_checkpoint_looks_like_any_other(original, planner, ranges):
    """A query that does not acknowledge by hand any more trusts the checkpoint of the time when it did."""
    return replace(original(planner, ranges), by_hand=False)


@bug(f"{MEMBER}:DeliveryTracker.record", change=as_is(replace(BY_HAND, faults=Faults(kill=0.01))))
def a_cancelled_handoff_is_delivered_again(original, tracker, ranges):
    """With manual acknowledgement: a process remembers only what its last micro-batch had."""
    tracker.planned_ends.clear()
    original(tracker, ranges)


@bug(f"{MEMBER}:DeliveryTracker.record", change=as_is(ROLLING))
def what_was_planned_is_not_remembered(original, tracker, ranges):
    """A partition is released as if nothing of it were on its way."""


@bug(f"{PLANNER}.tasks", test=lambda: in_a_store(planners.test_session_expires_between_planning_and_delivering))
def a_batch_leaves_out_what_was_lost_since(original, planner, start, end):
    """What was planned and is lost before it runs is left out, and acknowledged if the partition comes back."""
    found = original(planner, start, end)
    planner.membership.group.refresh()
    mine = {p[1] for p in owned(planner.membership.group.state, planner.membership.incarnation)}
    return [tuple(piece for piece in pieces if piece.slice.partition in mine) for pieces in found]


@bug(
    f"{MEMBERSHIP}.release_drained", change=as_is(replace(ROLLING, local=True, faults=Faults(stall=0.02, stall_s=0.5)))
)
def a_release_on_another_view_than_the_plan(original, membership):
    """The thread that releases takes no lock: the planner still plans on an older state."""
    view = Group(membership.store, membership.name)
    view.refresh()
    membership.decide(lambda: membership._tracker.drained(view.state, view.acks, membership.incarnation), view)


# ---- acknowledging
@bug(f"{MEMBER}:finished", test=members.test_only_what_is_in_the_same_lineage_is_acknowledged)
def a_batch_is_acknowledged_under_the_current_epoch(original, state, incarnation, done):
    """A micro-batch that was planned before the partition was lost counts for the ownership of now."""
    mine = owned(state, incarnation)
    return [(p, mine[p].epoch, r.end) for p, r in done.items() if p in mine]


@bug(f"{MEMBER}:finished", test=members.test_an_empty_range_is_acknowledged_too)
def an_empty_range_is_not_acknowledged_again(original, state, incarnation, done):
    """An acknowledgement that came under a past epoch is not repeated."""
    return original(state, incarnation, {p: r for p, r in done.items() if r.end > r.start})


@bug(
    "storage.procedures.acknowledge:same_lineage",
    test=lambda: in_a_store(acknowledging.test_an_epoch_that_is_over_is_refused),
)
def an_acknowledgement_of_another_epoch_counts(original, own, incarnation, epoch):
    """With manual acknowledgement: what was delivered under an epoch that is over is acknowledged for its successor."""
    return True


# ---- after a restart
@bug(f"{MEMBER}:same_lineage", test=members.test_only_what_is_in_the_same_lineage_is_acknowledged)
def a_replay_goes_by_the_owners_name(original, own, incarnation, epoch):
    """What was planned before the partition went to others is replayed, and acknowledged."""
    return own is not None and own.incarnation == incarnation


@bug(f"{MEMBER}:replayed", test=members.test_a_replay)
def a_replay_leaves_out_what_drains(original, state, acks, incarnation, planned, manual):
    """What is being handed off is acknowledged without having been delivered."""
    kept = original(state, acks, incarnation, planned, manual)
    return {p: r for p, r in kept.items() if state.partition_state(p) is PartitionState.OWNED}


@bug(f"{MEMBER}:replayed", test=members.test_a_replay)
def a_replay_begins_below_the_floor(original, state, acks, incarnation, planned, manual):
    """A replay has everything again that its micro-batch had, though it was acknowledged and may be removed."""
    return {
        p: Range(state.partitions[p].epoch, r.start, r.end)
        for p, r in planned.items()
        if r.end > r.start and same_lineage(state.partitions.get(p), incarnation, r.epoch)
    }


@bug(f"{MEMBER}:left_to_others", matters=renamed)
def what_a_replay_leaves_out_counts_as_delivered(original, state, acks, incarnation, planned):
    """A query that is started under another name finishes a micro-batch of which it delivers nothing; under the first name it is acknowledged."""
    return {}


# ---- marks
@bug(f"{MEMBERSHIP}._acknowledge", change=as_is(HASTY))
def what_is_about_to_be_delivered_is_not_said(original, membership, acks, ranges, *attempts):
    """The planner delivers before it has committed that it does."""
    return original(membership, acks, {}, *attempts)


@bug(f"{PLANNER}._replay", change=as_is(HASTY_WITH_KILLS))
def a_replay_is_not_marked(original, planner, planned):
    """Messages that come a second time after a restart do not say so."""
    plan = original(planner, planned)
    return plan._replace(assigned={p: found._replace(delivered=0) for p, found in plan.assigned.items()})


@bug("storage.group.handle:Group.delivered", change=as_is(HASTY))
def marks_rest_on_positions(original, group, partition_id):
    """What a former owner was given and has not acknowledged is not marked."""
    return group.position(partition_id) or 0


@bug(
    f"{MEMBERSHIP}.commit_plan",
    test=lambda: in_a_store(test_who_plans_second_marks_what_both_deliver, False),
)
def who_plans_second_does_not_see_the_first(original, membership, acks, ranges, attempts={}, before=lambda: None):  # noqa: B006
    """What others planned while this process stood still, before its commit, is delivered once more without a mark."""
    before()
    return original(membership, acks, ranges, attempts)


# ---- between the planner's calls
@bug(f"{MEMBERSHIP}.acknowledge_batch", change=as_is(ROLLING_WITH_KILLS))
def a_batch_is_acknowledged_before_it_has_finished(original, membership, received_before_s):
    """The thread between the planner's calls acknowledges what was planned."""
    ends = [Range(epoch, end, end) for epoch, end in membership._tracker.planned_ends.values()]
    planned = dict(zip(membership._tracker.planned_ends, ends, strict=True))
    if planned and membership.lock.acquire(blocking=False):
        try:
            membership.group.refresh()
            membership._acknowledge(membership._unacknowledged(planned), {}, {})
        finally:
            membership.lock.release()
