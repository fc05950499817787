"""What is removed, and when."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.storage.queue.control import QueueControl
from spark_partq.testing.simulation.setup import Blow, Faults, QuerySetup, Setup
from tests.core.queue import test_decide as queues
from tests.storage.procedures import test_maintain as maintaining
from tests.storage.procedures import test_min_retention as kept
from tests.storage.procedures import test_stuck_and_too_old as parents
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import DOWN_AND_UP, MAINTAINED, as_is
from tests.testing.planted.stores import in_a_store

FOR_TWO_GROUPS = replace(
    MAINTAINED, queries=(*MAINTAINED.queries[:1], QuerySetup("h", "h-0", work_s=1.0, max_rows=2)), partitions=2
)
# A group that comes stands still before it attaches, while what was there is read by another and removed.
JOINED_LATE = replace(
    MAINTAINED,
    partitions=2,
    queries=(QuerySetup("g", "g-0"), QuerySetup("h", "h-0", begins_s=2.0)),
    blows=(Blow("h-0", 2.0, 0, "commits", "stall"),),
    faults=Faults(stall_s=1.0),
)
EXPIRING = replace(
    FOR_TWO_GROUPS,
    queries=tuple(replace(q, fail_on_data_loss=False) for q in FOR_TWO_GROUPS.queries),
    retention_ms=3_000,
)
GROUP = "storage.group.handle:Group"


def joins_late(s: Setup) -> bool:
    return any(q.begins_s > 0 for q in s.queries)


def removed_and_joined(s: Setup) -> bool:
    return s.maintain_every_s is not None and joins_late(s)


def starts_behind(store: str) -> None:
    queue = maintaining.filled(store)
    maintaining.test_a_group_that_attaches_while_messages_are_removed_starts_behind_them(queue)


def control_of(control: QueueControl) -> QueueControl:
    control.refresh()
    return control


@bug(f"{GROUP}.raise_floors", change=as_is(MAINTAINED))
def messages_are_removed_before_floors_are_committed(original, group, queue_id, ends):
    """What is acknowledged is removed, and a decision may set the position back."""
    known = [p for p in group.state.partitions if p[0] == queue_id]
    return {p[1]: group.position(p) or 0 for p in known}


@bug(f"{GROUP}.raise_floors", change=as_is(MAINTAINED))
def what_was_delivered_is_removed(original, group, queue_id, ends):
    """What was delivered and not acknowledged is removed."""
    original(group, queue_id, ends)
    return {p[1]: group.delivered(p) for p in group.state.partitions if p[0] == queue_id}


@bug("storage.procedures.maintain:settled_groups", change=as_is(FOR_TWO_GROUPS))
def maintenance_asks_one_group(original, queue):
    """What one group has read is removed, whatever the others have."""
    return original(queue)[:1]


@bug("core.queue.removal:removable", change=as_is(replace(MAINTAINED, min_retention_ms=3_000)))
def maintenance_ignores_the_minimum(original, *about, operating, stuck):
    """What every group has read is removed at once, though the queue keeps it for a while."""
    return original(*about, operating=False, stuck=stuck)


@bug(
    "storage.procedures.maintain:waits_for_copies",
    test=lambda: in_a_store(parents.test_they_stay_until_they_are_copied, {"max_bytes": 1}),
)
def stuck_messages_become_too_many(original, queue, readers):
    """Nobody could have read them, and no query hears that they are gone."""
    return False


@bug("core.queue.removal:older", change=as_is(EXPIRING))
def messages_go_before_they_are_too_old(original, enqueued_us, than_ms, now_ms):
    """A group that is slow misses messages that the queue should still keep."""
    return original(enqueued_us, than_ms // 10, now_ms)


@bug("storage.procedures.drain:_kept", change=as_is(replace(DOWN_AND_UP, maintain_every_s=0.5, min_retention_ms=3_000)))
def a_partition_that_goes_ignores_the_minimum(original, queue, drained):
    """What it holds is gone for a group that comes later, though the queue keeps it for a while."""
    return None


@bug(
    "core.queue.alter:require_features", test=lambda: in_a_store(kept.test_an_older_program_does_not_maintain_the_queue)
)
def an_older_program_may_maintain_a_queue_that_keeps_messages(original, state, *features):
    """It knows nothing of the minimum, and removes what every group has read."""
    return original(state, *(feature for feature in features if feature != "minRetention"))


@bug("core.queue.removal:too_many", test=lambda: in_a_store(kept.test_the_oldest_files_go_until_the_rest_fits))
def a_file_too_few_goes_for_the_size(original, size, most):
    """A partition stays larger than the queue allows."""
    return max(0, original(size, most) - 1)


# ---- a group that comes meanwhile
@bug("storage.procedures.attached:attach_group", removed_and_joined)
def a_group_does_not_attach(original, queue, group, deletions):
    """Nobody waits for a group that joins."""


@bug("storage.procedures.consume.membership:Subscription.attach", change=as_is(JOINED_LATE))
def a_group_attaches_after_it_has_read_where_to_start(original, subscription, group):
    """What is removed between the two is gone, and the group wants it."""
    subscription.attach_later = lambda: original(subscription, group)


@a_group_attaches_after_it_has_read_where_to_start.also(
    "storage.procedures.consume.membership:Subscription.first_starts"
)
def _then_attaches(original, subscription, state, is_back=False):
    starts = original(subscription, state, is_back)
    getattr(subscription, "attach_later", lambda: None)()
    return starts


@bug("storage.queue.control:QueueControl.record_removal", test=lambda: in_a_store(starts_behind))
def nobody_records_what_is_removed(original, control, measure):
    """A group starts at what is about to be removed."""
    return measure(control_of(control).state)


@bug("storage.queue.control:QueueControl.record_removal", removed_and_joined)
def what_is_removed_is_measured_once(original, control, measure):
    """A group that attached while the others were asked is not waited for."""
    ends = measure(control_of(control).state)
    return original(control, lambda _: ends)


@bug("storage.queue.control:QueueControl.removed_end", test=lambda: in_a_store(starts_behind))
def nobody_reads_what_is_removed(original, control, partition):
    """A group starts at what is about to be removed, though the queue says so."""
    return 0


@bug("core.queue.decide:remove_drained", test=queues.test_a_group_that_attached_meanwhile_is_waited_for)
def partitions_are_removed_whoever_attached_meanwhile(original, state, measured, ends):
    """A group that attached since partitions were found drained is not waited for."""
    return original(state, replace(measured, revision=state.revision), ends)


@bug("core.group.steps.ownership:raise_floors", change=as_is(MAINTAINED))
def a_floor_is_what_was_delivered(original, decision, event):
    """A floor lies past the position."""
    state = decision.state
    state.position = state.delivered
    try:
        original(decision, event)
    finally:
        del state.position


@bug("core.group.steps.decision:Decision.emit_partition", change=as_is(MAINTAINED))
def a_floor_lies_past_the_position(original, decision, kind, partition_id, cause, **columns):
    """A floor is one message too high."""
    if kind == "Floor":
        columns["offset"] += 1
    original(decision, kind, partition_id, cause, **columns)


@bug("storage.queue.partition_table:PartitionTable.remove", change=as_is(MAINTAINED))
def a_file_too_many_is_removed(original, table, until):
    """The file in which a group reads is removed, too."""
    return original(table, lambda index: min(len(index), until(index) + 1))
