"""The barrier of a resize, where members acknowledge by hand."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.delivery.member import owned
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import (
    DOWN_AND_UP,
    LONG_SEQUENCES,
    OPEN_SEQUENCES,
    OPEN_SEQUENCES_MOVED,
    as_is,
)

BARRIER = "core.delivery.barrier"


# ---- for the same process
@bug("core.delivery.member:DeliveryTracker.given", change=as_is(LONG_SEQUENCES))
def what_was_given_counts_for_a_former_owner(original, tracker, state, incarnation):
    """A process counts what it was given of a partition that is another's now."""
    return {partition_id: end for partition_id, (_, end) in tracker.planned_ends.items()}


@bug(f"{BARRIER}:counted", change=as_is(OPEN_SEQUENCES))
def what_others_own_counts_as_given(original, state, given):
    """Messages do not wait for partitions of other processes that acknowledge by hand."""
    return {**dict.fromkeys(state.partitions, 1 << 60), **original(state, given)}


@bug("storage.procedures.consume.membership:Membership.given", change=as_is(OPEN_SEQUENCES))
def what_is_to_be_given_counts_as_given(original, membership):
    """Messages above a cut are in one micro-batch with those below it, in other tasks."""
    mine = owned(membership.group.state, membership.incarnation)
    return {**original(membership), **dict.fromkeys(mine, 1 << 60)}


@bug(f"{BARRIER}:counted", change=as_is(OPEN_SEQUENCES))
def nothing_counts_as_given(original, state, given):
    """An application and the barrier wait for each other, as if there were only settled messages."""
    return {}


nothing_counts_as_given.also(f"{BARRIER}:Waits.overdue")(lambda original, *_: {})


@bug(f"{BARRIER}:by_hand", change=as_is(replace(DOWN_AND_UP, max_barrier_wait_ms=100)))
def what_was_given_counts_for_everybody(original, state, own):
    """Messages do not wait for what a member was given that acknowledges its micro-batches."""
    return own is not None and own.flow is not None


@bug(f"{BARRIER}:replayable", change=as_is(OPEN_SEQUENCES_MOVED))
def a_replay_does_not_wait_at_the_barrier(original, barriers, ranges):
    """A process that was started again is given the ends of sequences before what it has to be given again."""
    return dict(ranges)


# ---- between processes
@bug(f"{BARRIER}:Waits.overdue", change=as_is(OPEN_SEQUENCES))
def nobody_is_given_time_to_acknowledge(original, waits, state, acks, incarnation, barriers, now_ms, most_ms):
    """Messages do not wait for what another process was given a moment ago."""
    return original(waits, state, acks, incarnation, barriers, now_ms, 0)


@bug(f"{BARRIER}:Waits.overdue", change=as_is(OPEN_SEQUENCES))
def others_are_waited_for_without_an_end(original, waits, state, acks, incarnation, barriers, now_ms, most_ms):
    """Two processes wait for each other: one for an acknowledgement, the other's application for a message."""
    return {}


@bug(f"{BARRIER}:Waits.overdue", change=as_is(OPEN_SEQUENCES))
def what_was_not_handed_out_is_not_waited_for(original, waits, state, acks, incarnation, barriers, now_ms, most_ms):
    """The time runs, too, while the other process has not even been given the older messages."""
    state.handed_out = lambda partition_id, acks: 1 << 60
    try:
        return original(waits, state, acks, incarnation, barriers, now_ms, most_ms)
    finally:
        del state.handed_out


@bug(f"{BARRIER}:Waits.overdue", change=as_is(replace(OPEN_SEQUENCES_MOVED, max_barrier_wait_ms=1_000)))
def a_new_owner_is_given_no_time(original, waits, state, acks, incarnation, barriers, now_ms, most_ms):
    """The time of a former owner counts for the next one."""
    partitions = state.partitions
    state.partitions = {p: replace(own, epoch=0) for p, own in partitions.items()}
    try:
        return original(waits, state, acks, incarnation, barriers, now_ms, most_ms)
    finally:
        state.partitions = partitions
