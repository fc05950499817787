"""What is removed, and when."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.testing.simulation.setup import QuerySetup
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import MAINTAINED, as_is

FOR_TWO_GROUPS = replace(
    MAINTAINED, queries=(*MAINTAINED.queries[:1], QuerySetup("h", "h-0", work_s=1.0, max_rows=2)), partitions=2
)
GROUP = "storage.group.handle:Group"


@bug(f"{GROUP}.raise_floors", change=as_is(MAINTAINED))
def messages_are_removed_before_floors_are_committed(original, group, queue_id):
    """What is acknowledged is removed, and a decision may set the position back."""
    known = [p for p in group.state.partitions if p[0] == queue_id]
    return {p[1]: group.position(p) or 0 for p in known}


@bug(f"{GROUP}.raise_floors", change=as_is(MAINTAINED))
def what_was_delivered_is_removed(original, group, queue_id):
    """What was delivered and not acknowledged is removed."""
    original(group, queue_id)
    return {p[1]: group.delivered(p) for p in group.state.partitions if p[0] == queue_id}


@bug("storage.procedures.maintain:groups_of", change=as_is(FOR_TWO_GROUPS))
def maintenance_asks_one_group(original, store, queue_id):
    """What one group has read is removed, whatever the others have."""
    return original(store, queue_id)[:1]


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
