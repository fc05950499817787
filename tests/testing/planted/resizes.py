"""Changes of the partition count: the barrier, what goes and comes back, drains, and what is stuck."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.queue.partition_map import PARENT, Barrier, partition_numbers
from spark_partq.core.queue.records import STUCK
from spark_partq.storage.inspect import backlog
from tests.core.group import test_resize as groups
from tests.core.queue import test_decide as queue_decisions
from tests.core.queue import test_partition_map as maps
from tests.core.queue import test_state as queues
from tests.storage.procedures import test_copy_stuck_resized as copies
from tests.storage.procedures import test_delete_messages as deletions
from tests.storage.procedures import test_removed_below_cuts as removals
from tests.storage.procedures import test_scale as scaled
from tests.storage.procedures import test_scale_measured as measured
from tests.storage.procedures import test_scale_modes as modes
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import (
    DOWN_AND_UP,
    DRAINED,
    LATE,
    LEFT_IN_THE_PARENT,
    LEFT_TO_TWO_GROUPS,
    OFTEN,
    READ_OFTEN,
    TWO_GROUPS,
    as_is,
    both,
    drained,
    read,
    resized,
    resized_and_read,
    stuck,
)
from tests.testing.planted.stores import in_a_store, with_queries

BARRIER, QUEUE = "core.queue.partition_map:Barrier", "core.queue.state"
SUBSCRIPTION, CHANGES = "storage.procedures.consume.subscription:Subscription", "core.group.steps.queue_changes"
PLANNER = "storage.procedures.consume.planner:Planner"


def removes_unread(setup):
    return setup.removes_unread


# ---- cuts
@bug(f"{QUEUE}:_least_cut", test=lambda: queues.test_a_cut_goes_back({"0": 4}, "is cut at 4"))
def a_cut_may_go_back(original, state, number):
    """A control table is believed that cuts a partition below where it was cut before."""
    return -1


# ---- the barrier
@bug(f"{BARRIER}.passed", change=as_is(OFTEN))
def the_barrier_asks_the_previous_generation_only(original, barrier, partition, generation):
    """Messages do not wait for those of maps before the last."""
    return not any(
        g == generation - 1 and barrier._blocks(g, left, partition, generation) for g, left in barrier._open.items()
    )


@bug(f"{BARRIER}.passed", change=as_is(DOWN_AND_UP))
def nobody_waits_at_the_barrier(original, barrier, partition, generation):
    """Messages of a new map do not wait for older ones."""
    return True


@bug(f"{SUBSCRIPTION}.refresh", change=as_is(READ_OFTEN))
def the_queue_is_looked_at_before_the_logs(original, subscription):
    """Messages above a cut are seen and taken for the old map's."""
    for queue in subscription._queues.values():
        queue.control.refresh()
    changed = [table for _, table in subscription.tables() if table.may_have_changed()]
    subscription._store.map(lambda table: table.refresh(), changed)


@bug(f"{PLANNER}._commit_floors", change=as_is(OFTEN))
def the_barrier_rests_on_acknowledgements(original, planner, acks):
    """Messages wait for acknowledgements only, which a decision may set back."""
    state, group = planner._group.state, planner._group
    state.committed_floors = lambda queue_id: lambda number: state.position((queue_id, number), group.acks) or 0
    try:
        return original(planner, acks)
    finally:
        del state.committed_floors


@bug(f"{BARRIER}.__init__", test=maps.test_the_parent_is_never_waited_for)
def the_parent_is_waited_for(original, barrier, generations, settled, gone, first=0):
    """What is stuck in the parent holds back the partitions."""
    original(barrier, generations, settled, gone, first)
    for g in range(first, len(generations) - 1):
        cut = generations[g].cuts.get(PARENT, 0)
        if not generations[g].partition_count and max(settled(PARENT), gone.get(PARENT, 0)) < cut:
            barrier._open[g] = {PARENT: cut}


@bug(f"{BARRIER}._blocks", test=maps.test_4_to_6_by_hand)
def a_partition_waits_for_itself_only(original, barrier, g, left, b, j):
    """Keys that moved to another partition overtake themselves."""
    return b in left


@bug(f"{BARRIER}._blocks", test=maps.test_4_to_6_by_hand)
def a_partition_waits_for_all(original, barrier, g, left, b, j):
    """Messages wait for partitions in which their key cannot have been."""
    return True


@bug(f"{BARRIER}.limit", change=as_is(DOWN_AND_UP))
def a_message_too_far(original, barrier, partition, start, end):
    """The first message that should wait is delivered."""
    return min(end, original(barrier, partition, start, end) + 1)


@bug(f"{BARRIER}.limit", test=maps.test_what_a_past_map_left_behind_waits_no_longer_than_it_must)
def what_lies_below_a_past_cut_holds_back(original, barrier, partition, start, end):
    """A generation of which nothing is left to deliver is waited for."""
    ended = [(past.cuts[partition], g) for g, past in enumerate(barrier._generations) if partition in past.cuts]
    for cut, g in ended if barrier._open else []:
        if max(start, cut) < end and not barrier.passed(partition, g + 1):
            return max(start, cut)
    return end


@bug(f"{BARRIER}.__init__", test=maps.test_4_to_6_by_hand)
def what_was_removed_is_waited_for(original, barrier, generations, settled, gone, first=0):
    """Messages wait for what is lost."""
    original(barrier, generations, settled, {}, first)


@bug(
    "storage.queue.handle:barrier_of",
    test=lambda: with_queries(removals.test_removed_while_a_consumer_waits_for_another, False),
)
def what_was_too_old_is_waited_for(original, queue, settled, first=0):
    """Messages wait for what the retention time has removed, until its owner notices."""
    return Barrier(queue.state.generations, settled, queue.state.removed_ends, first)


@bug(f"{BARRIER}.__init__", resized_and_read, as_is(DOWN_AND_UP))
def what_a_partition_that_goes_left_is_not_waited_for(original, barrier, generations, settled, gone, first=0):
    """Newer messages overtake those in partitions that the map no longer names."""
    now = partition_numbers(generations[-1].partition_count)
    past = {a: cut for g in generations for a, cut in g.cuts.items() if a not in now}
    original(barrier, generations, settled, {**gone, **past}, first)


@bug("storage.group.handle:Group.commit_floors", change=as_is(DOWN_AND_UP))
def nobody_decides_floors(original, group, queue_id, offsets):
    """What others wait for is acknowledged and never becomes a floor."""


# ---- what goes
@bug(f"{QUEUE}:_opened", resized_and_read, as_is(DOWN_AND_UP))
def what_goes_is_unassigned_at_once(original, state, count):
    """Partitions that the map no longer names are not read to their end."""
    now = partition_numbers(count)
    return replace(original(state, count), first=now.start, operating_partitions=now.stop)


@bug("core.queue.partition_map:drained", test=maps.test_drained)
def one_group_is_enough(original, ends, groups):
    """A partition goes when any group has read it."""
    return any(all(settled(n) >= end for n, end in ends.items()) for settled in groups)


@bug("storage.procedures.remainder:settled_groups", resized, as_is(TWO_GROUPS))
def a_group_is_missing_where_it_is_decided(original, queue):
    """Whoever decides that partitions are drained asks the first group only."""
    return original(queue)[:1]


@bug("storage.procedures.remainder:undrained", change=as_is(replace(DOWN_AND_UP, queries=())))
def what_nobody_reads_is_removed(original, queue, partitions):
    """With no group a partition goes, and what is in it."""
    return original(queue, partitions) if backlog.groups(queue) else None


@bug("storage.procedures.remainder:undrained", change=as_is(LATE))
def removal_rests_on_acknowledgements(original, queue, partitions):
    """A partition goes when it is acknowledged, which a decision may set back."""
    readers = backlog.groups(queue)
    return None if readers and backlog.unread(queue, partitions, readers) == 0 else original(queue, partitions)


@bug("storage.procedures.remainder:undrained", both(resized, removes_unread))
def nobody_waits_for_what_was_removed_unread(original, queue, partitions):
    """A partition goes that a group has not read, as its messages were too old; no query hears of it."""
    queue.refresh()
    return original(queue, [n for n in partitions if queue.table(n).first_offset < queue.table(n).next_offset])


# ---- what comes back
@bug(f"{CHANGES}:add_queues", test=groups.test_a_partition_comes_back)
def a_partition_comes_back_where_the_look_says(original, decision, queues_, starts, cause):
    """A group's position in a partition does not outlive its removal."""
    decision.state.removed = {p: (epoch, 0) for p, (epoch, _) in decision.state.removed.items()}
    return original(decision, queues_, starts, cause)


@bug(
    "storage.procedures.consume.planner:Planner._check_available",
    test=lambda: in_a_store(measured.test_a_group_joins_on_a_former_map, True),
)
def what_was_copied_elsewhere_counts_as_lost(original, planner, queue, table, start, end):
    """A group that begins at messages which were copied out of the parent fails for ever."""
    return original(planner, replace(queue, removed_ends={}), table, start, end)


@bug(f"{CHANGES}:add_queues", test=lambda: groups.test_a_stale_look_changes_nothing(2, False))
def a_stale_look_at_the_queue_counts(original, decision, queues_, starts, cause):
    """An older look at a queue undoes what a newer one said."""
    known = decision.state.queues
    newest = {
        i: replace(q, revision=max(q.revision, known[i].revision)) if i in known else q for i, q in queues_.items()
    }
    return original(decision, newest, starts, cause)


@bug(f"{CHANGES}:add_queues", test=groups.test_a_look_from_in_between_changes_nothing)
def a_revision_is_known_only_with_other_news(original, decision, queues_, starts, cause):
    """A look from between two changes that cancel each other counts."""
    state = decision.state
    news = {
        queue_id: queue
        for queue_id, queue in queues_.items()
        if queue_id not in state.queues
        or (state.queues[queue_id].first, state.queues[queue_id].partitions) != (queue.first, queue.partitions)
    }
    return original(decision, news, starts, cause)


@bug(f"{CHANGES}:unbind_all", test=groups.test_a_member_that_joins_unbinds_the_others)
def members_of_an_exclusive_queue_stay_bound(original, decision, queue, what):
    """Members go on by the rules of before when a queue becomes exclusive or partitioned."""


@bug("storage.procedures.partition_map:remove_files", test=lambda: in_a_store(scaled.test_partitions_that_come_back))
def what_was_lost_stays_in_the_files(original, queue):
    """A partition that comes back still holds what was removed with it."""
    return 0


# ---- modes
@bug("storage.procedures.remainder:unread", test=lambda: in_a_store(modes.test_delete))
def what_is_lost_is_not_told(original, queue, partitions, readers):
    """Mode delete says that nothing is lost."""
    return 0


@bug(f"{QUEUE}:_after", test=lambda: queues.test_drain(True))
def ingress_is_enabled_in_a_drain(original, state, kind, body):
    """A queue takes messages while it is drained."""
    found = original(state, kind, body)
    return replace(found, ingress=state.ingress) if kind == "ScalingStarted" else found


@bug("core.queue.decide:set_ingress", test=queue_decisions.test_ingress_is_toggled_unless_the_queue_is_drained)
def somebody_enables_ingress_in_a_drain(original, state, enabled):
    """Ingress can be enabled while a queue is drained."""
    return original(replace(state, scaling=None), enabled)


@bug("storage.procedures.remainder:undrained", both(drained, read), as_is(DRAINED))
def the_count_changes_before_the_queue_has_drained(original, queue, partitions):
    """A drain waits for nobody."""
    return None


# ---- what is stuck in the parent
@bug("storage.procedures.copy_stuck:BatchRecord", stuck, as_is(LEFT_IN_THE_PARENT))
def what_is_stuck_is_copied_twice(original, sink_id, base):
    """A copy that was interrupted begins anew."""
    return None


@bug("storage.inspect.backlog:stuck_from", change=as_is(LEFT_TO_TWO_GROUPS))
def what_one_group_has_read_is_not_copied(original, queue, readers):
    """The copy begins where the group is that has read most."""
    positions = [group.position((queue.state.queue_id, PARENT)) or 0 for group in readers]
    return max([queue.table(PARENT).first_offset, *positions])


@bug("storage.inspect.backlog:left_in_parent", change=as_is(LEFT_TO_TWO_GROUPS))
def nothing_seems_to_be_stuck(original, queue, readers):
    """The parent is closed with messages in it."""
    return 0


@bug(
    "core.queue.records:expired_records",
    test=lambda: in_a_store(lambda store: copies.test_a_key_that_is_in_the_first_files_only(store, f"{store}-there")),
)
def a_checkpoint_forgets_under_which_map_a_stuck_message_was_copied(original, transactions, now_ms):
    """Where a replica took over nobody can tell that it is there."""
    last = transactions.get(STUCK)
    older = [app for app, txn in transactions.items() if app.startswith(f"{STUCK}/") and txn.version < last.version]
    return [*original(transactions, now_ms), *older]


@bug(
    "storage.procedures.delete_messages:finish_begun",
    test=lambda: in_a_store(deletions.test_what_a_sink_has_begun_is_found, None),
)
def a_deletion_finds_only_what_is_in(original, queue):
    """What a sink has begun comes in when it starts again."""


# ---- exclusive and back
@bug("core.group.steps.joining:binds_again", stuck)
def who_was_unbound_binds_again_with_a_delay(original, state, member):
    """Only the first of those whom the group has unbound gets partitions at once; the others wait for the rebalance delay."""
    return False
