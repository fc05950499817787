"""Positions that a person sets: what comes again then, and what must not."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.group.facts import Kind
from spark_partq.testing.simulation.setup import Faults, ProducerSetup, QuerySetup, Reset, Scaling, Setup
from tests.core.delivery import test_barrier as barriers
from tests.core.group import test_resets as resets
from tests.storage.procedures import test_reset_offsets as storing
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import as_is
from tests.testing.planted.stores import in_a_store

# Consumers that are slow when the group's positions are set, and something to read before and after.
SET_BACK = Setup(
    0,
    producers=(ProducerSetup("s", "query", 8, pause_s=0.4),),
    queries=(QuerySetup("g", "g-0", work_s=1.0, max_rows=3), QuerySetup("g", "g-1", work_s=0.5)),
    reset=Reset("g", 2.5, "earliest"),
    faults=Faults(slow=0.1),
)
# The same, where what is read is removed all the time.
SET_BACK_AND_MAINTAINED = replace(SET_BACK, maintain_every_s=0.2, reset=Reset("g", 2.5, "some"))
# The same across a change of the count.
SET_BACK_AND_SCALED = replace(SET_BACK, scalings=(Scaling(1.0, 4),), reset=Reset("g", 3.0, "earliest"))


@bug("core.group.steps.decision:Decision.emit_partition", change=as_is(SET_BACK))
def a_reset_keeps_the_lineage(original, decision, kind, partition_id, cause, **columns):
    """What was planned before it still counts."""
    if kind is Kind.POSITION_RESET:
        columns["lineage_epoch"] = decision.state.partitions[partition_id].lineage_epoch
    original(decision, kind, partition_id, cause, **columns)


@bug("core.delivery.member:start", change=as_is(SET_BACK))
def a_checkpoint_outlives_a_reset(original, state, acks, incarnation, partition_id, done):
    """A query goes on where its checkpoint ends, whoever has set the position since."""
    return max(state.position(partition_id, acks) or 0, 0 if done is None else done.end)


@bug("core.group.state:GroupState._reset", change=as_is(SET_BACK_AND_MAINTAINED))
def a_floor_outlives_a_reset(original, state, partition_id, epoch, position):
    """The group does not go back below what it had settled."""
    state.reset_epochs[partition_id] = epoch


@bug("core.group.steps.decision:Decision.emit_partition", change=as_is(SET_BACK))
def a_reset_forgets_what_was_delivered(original, decision, kind, partition_id, cause, **columns):
    """What comes again is not marked."""
    if kind is Kind.POSITION_RESET:
        columns["delivered"] = columns["offset"]
    original(decision, kind, partition_id, cause, **columns)


@bug("storage.procedures.reset_offsets:first_left", change=as_is(SET_BACK_AND_MAINTAINED))
def a_reset_to_what_is_gone(original, queue, table):
    """The group is set to messages that were removed."""
    return 0


@bug("storage.procedures.reset_offsets:_planned", change=as_is(SET_BACK))
def a_reset_moves_one_too_far(original, group, queues, goal, now_us):
    """The first message that shall come again does not."""
    found = original(group, queues, goal, now_us)
    return {p: replace(reset, new=reset.new + (reset.old > reset.new)) for p, reset in found.items()}


@bug(
    "storage.procedures.consume.subscription:Subscription.barriers",
    change=as_is(SET_BACK_AND_SCALED),
)
def a_resize_is_forgotten_after_a_reset(original, subscription, state):
    """A map that the group had settled once is not asked for again, though the group was set back before it."""
    for queue in subscription.queues.values():
        if any(queue_id == queue.state.queue_id for queue_id, _ in state.reset_epochs):
            subscription._first_open[queue.state.queue_id] = queue.state.generation
    return original(subscription, state)


@bug(
    "storage.procedures.settled:settled_groups",
    test=lambda: in_a_store(storing.test_what_is_removed_is_measured_after_the_reset),
)
def a_reset_under_way_is_not_seen(original, queue):
    """Who removes messages does not make void what was announced."""
    from spark_partq.storage.inspect.backlog import groups

    return groups(queue)


@bug("core.queue.resetting:announce_reset", test=lambda: in_a_store(storing.test_a_reset_is_announced_to_the_queue))
def a_reset_is_announced_once(original, state, group, number):
    """The second reset of a group is not told."""
    return () if state.resets.get(group) else original(state, group, number)


@bug("core.group.state:GroupState.handed_out", test=barriers.test_what_came_before_a_reset_is_waited_for)
def what_was_handed_out_before_a_reset_counts(original, state, partition_id, acks):
    """Messages of a later map are let go before older ones of their keys have come again."""
    return state.delivered(partition_id, acks)


@bug("core.group.steps.resetting:reset", test=resets.test_one_that_was_void_does_nothing)
def a_void_reset_is_made(original, decision, event):
    """It rests on what was there before messages were removed."""
    original(decision, replace(event, number=decision.state.resets + 1))
