"""What must hold for a queue, whatever happens to it: checked on every commit of its control table.

The rules are written a second time here, in a different way than in the code that keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.format import ADDED_COLUMNS
from spark_partq.core.invariants import must_hold
from spark_partq.core.queue.facts import Kind, QueueFact, Status
from spark_partq.core.queue.partition_map import PARENT, partition_numbers
from spark_partq.core.queue.state import QueueState, replay
from spark_partq.core.queue.transitions import STATUS_TRANSITIONS

# Facts that a replica that takes over would have to know. It cannot learn of them any more, so they may not come.
_NOT_WHILE_FENCED = (
    Kind.SCALING_STARTED,
    Kind.GENERATION_OPENED,
    Kind.GROUP_ATTACHED,
    Kind.GROUP_RESETTING,
    Kind.QUEUE_ALTERED,
    Kind.COLUMNS_ADDED,
    Kind.MESSAGES_DELETED,
)


def check(before: QueueState | None, after: QueueState, facts: Sequence[QueueFact]) -> None:
    """Check that the facts may lead from `before` to `after`.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    state = before
    for fact in facts:
        following = replay(after.name, [fact], state)
        if state is not None and following is not None:
            _check_fact(state, fact)
        _check_status(state, fact, following)
        state = following
    must_hold(state == after, "the state after the commit is not what its facts say")
    if before is not None:
        _check_progress(before, after, len(facts))
        _check_settings(before, after, facts)
        _check_columns(before, after, facts)
        _check_shared(before, after)
    check_state(after)


def check_state(state: QueueState) -> None:
    """Check one state of a queue.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    _check_cuts(state)
    _check_counts(state)
    for number, end in state.removed_ends.items():
        must_hold(end >= 0, f"partition {number} ended at {end}")
        must_hold(number in state.all_partitions, f"partition {number} was removed, and no map ever had it")
    if state.scaling is not None and state.scaling.mode == "drain":
        must_hold(not state.ingress, "S4: ingress is enabled while the queue is drained")
    if state.copying is not None:
        must_hold(state.stuck, "S6: what is not stuck is being copied")
        must_hold(state.copying >= state.removed_ends.get(PARENT, 0), "S6: what is in the partitions is copied again")
        returns = state.scaling is not None and state.scaling.partition_count == 0
        must_hold(not returns, "S6: the parent comes back while its messages are being copied")
    must_hold(len(set(state.replicas)) == len(state.replicas), f"S7: a replica is there twice: {state.replicas}")
    must_hold(bool(state.incarnation), "S7: it has no incarnation")
    known = state.fenced_by is None or state.fenced_by in state.replicas
    must_hold(known, f"S7: {state.fenced_by} has taken over, and is no replica")


def _check_cuts(state: QueueState) -> None:
    """S5: each map that has ended has a cut of every partition that it and the next one name, and cuts never go back."""
    last: dict[int, int] = {}
    for g, generation in enumerate(state.generations):
        if g == state.generation:
            must_hold(not generation.cuts, f"generation {g} is in force, and has cuts")
            continue
        counts = generation.partition_count, state.generations[g + 1].partition_count
        sealed = {number for count in counts for number in partition_numbers(count)}
        must_hold(set(generation.cuts) == sealed, f"S5: generation {g} has cuts of {sorted(generation.cuts)}")
        for number, cut in generation.cuts.items():
            earlier = last.get(number, 0)
            must_hold(cut >= earlier, f"S5: generation {g} is cut at {cut} of partition {number}, after {earlier}")
            last[number] = cut


def _check_counts(state: QueueState) -> None:
    if not state.generations:
        must_hold(not state.partition_numbers, "S1: partitions are shared before all exist")
        return
    named, shared = set(partition_numbers(state.partition_count)), set(state.partition_numbers)
    must_hold(named <= shared, f"S1: {sorted(named - shared)} are in the map, and nobody shares them")
    must_hold(shared <= set(state.all_partitions), f"{sorted(shared)} are shared, and no map ever had some of them")
    must_hold((PARENT in shared) == (PARENT in named), "S6: the parent is shared exactly while the queue is exclusive")
    must_hold(not named & set(state.removing), "S2: a partition of the map is being removed")
    going_to = state.partition_count if state.scaling is None else state.scaling.partition_count
    must_hold(state.configured_partitions == going_to, f"S8: {state.configured_partitions} partitions are configured")


def _check_fact(state: QueueState, fact: QueueFact) -> None:
    """Check one fact, against the state just before it."""
    must_hold(not state.deleted, f"{fact.kind} follows the deletion")
    fenced = state.fenced_by is not None and fact.kind in _NOT_WHILE_FENCED
    must_hold(not fenced, f"S7: {fact.kind}, although {state.fenced_by} has taken over")
    if fact.kind == Kind.QUEUE_FENCED and fact.body["location"] is not None:
        must_hold(state.fenced_by is None, f"S7: {fact.body['location']} takes over after {state.fenced_by}")
    if fact.kind == Kind.PROMOTED:
        must_hold(state.fenced_by is None, f"S7: it is promoted, although {state.fenced_by} has taken over")
    if fact.kind == Kind.GENERATION_OPENED:
        for number, cut in fact.body["cuts"].items():
            end = state.removed_ends.get(int(number), 0)
            must_hold(cut >= end, f"S5: partition {number} is cut at {cut}, and was removed at {end}")


def _check_status(before: QueueState | None, fact: QueueFact, after: QueueState | None) -> None:
    """S8: the status changes only as the table says."""
    old, new = (Status.UNKNOWN if state is None else state.status for state in (before, after))
    expected = STATUS_TRANSITIONS.get(Kind(fact.kind), ())
    must_hold(old is new or (old, new) in expected, f"S8: {fact.kind} changes the status from {old} to {new}")


def _check_progress(before: QueueState, after: QueueState, facts: int) -> None:
    for name in ("name", "queue_id", "key"):
        must_hold(getattr(before, name) == getattr(after, name), f"the queue's {name} changed")
    must_hold(
        after.revision == before.revision + facts, f"{facts} facts led from {before.revision} to {after.revision}"
    )
    must_hold(after.last_fence >= before.last_fence, "S7: an earlier fence is the last one")
    ended = before.generations[:-1]
    must_hold(after.generations[: len(ended)] == ended, "S5: a map that had ended changed")
    opened = len(after.generations) - len(before.generations)
    must_hold(opened in (0, 1), f"S5: {opened} maps were opened in one commit")
    if before.generations:
        same = after.generations[before.generation].partition_count == before.partition_count
        must_hold(same, "S5: the map that was in force has another count")
    for group, deletions in before.groups.items():
        now = after.groups.get(group, deletions)
        must_hold(now >= deletions, f"group {group} is attached as it was before it was deleted")
    for group, number in before.resets.items():
        now = after.resets.get(group, number)
        must_hold(now >= number, f"reset {number} of group {group} was announced, and is forgotten")
    for number, end in before.removed_ends.items():
        now = after.removed_ends.get(number, 0)
        must_hold(now >= end, f"the end at which partition {number} was removed went from {end} to {now}")


def _check_settings(before: QueueState, after: QueueState, facts: Sequence[QueueFact]) -> None:
    """Each setting has the value of the last fact about it. A grace that was lowered still counts for as long as it was."""
    settings = before.settings.model_dump()
    for fact in facts:
        if fact.kind == Kind.QUEUE_ALTERED:
            must_hold(
                any(settings.get(name) != value for name, value in fact.body["settings"].items()), "nothing is altered"
            )
            settings |= {name: value for name, value in fact.body["settings"].items() if name in settings}
    now = after.settings.model_dump()
    must_hold(now == settings, f"the settings are {now}, and should be {settings}")
    if len(facts) == 1 and after.settings.vacuum_grace_ms < before.settings.vacuum_grace_ms:
        until_ms = facts[0].body["grace_until_ms"]
        must_hold(after.grace_ms(until_ms - 1) >= before.settings.vacuum_grace_ms, "the former grace counts no more")


def _check_columns(before: QueueState, after: QueueState, facts: Sequence[QueueFact]) -> None:
    """A column never changes and is never removed. New columns are recorded as added, as older files lack them."""
    new = [column for fact in facts if fact.kind == Kind.COLUMNS_ADDED for column in fact.body["columns"]]
    must_hold(after.schema["fields"] == [*before.schema["fields"], *new], "the queue's columns changed")
    must_hold(after.added == (*before.added, *(column["name"] for column in new)), "a file may lack other columns")
    must_hold(
        not after.added or ADDED_COLUMNS in after.format.features, "an older program reads columns that were added"
    )


def _check_shared(before: QueueState, after: QueueState) -> None:
    """S2: a partition is shared until it is removed; only the parent stops being shared with the map (S6)."""
    left = set(before.partition_numbers) - set(after.partition_numbers) - {PARENT}
    must_hold(left <= set(after.removed_ends), f"S2: {sorted(left)} left without an end")
