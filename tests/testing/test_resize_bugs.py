"""A simulator of resizes that finds nothing proves nothing: every bug planted here is caught by it, or by a scenario."""

from __future__ import annotations

import inspect
import random
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spark_partq.core.errors import PartqError
from spark_partq.core.group.steps import queue_changes
from spark_partq.core.queue import decide, partition_map
from spark_partq.core.queue import state as core_queue
from spark_partq.core.queue.facts import Kind, Phase, QueueFact
from spark_partq.core.queue.partition_map import Barrier, partition_numbers
from spark_partq.core.queue.state import QueueState
from spark_partq.testing import resizing, simulator
from spark_partq.testing.producing import Actor, Producer, Scaler, Source
from spark_partq.testing.queues import Look, Message, PartitionLog
from spark_partq.testing.resizing import Group, Reader, Town
from tests.core.group import test_resize as groups
from tests.core.queue import test_partition_map as maps
from tests.testing import test_resize_scenarios as scenarios

Patch = pytest.MonkeyPatch
SEEDS = 150


def by_simulator() -> None:
    for seed in range(SEEDS):
        simulator.run(seed, 600, Town)


BUGS: list[tuple[str, Callable[[Patch], Any], Callable[[], None]]] = []


def bug(caught_by: Callable[[], None] = by_simulator) -> Callable[[Callable[[Patch], Any]], Callable[[Patch], Any]]:
    def add(plant: Callable[[Patch], Any]) -> Callable[[Patch], Any]:
        BUGS.append((plant.__name__, plant, caught_by))
        return plant

    return add


def rewrite(patch: Patch, owner: Any, name: str, old: str, new: str) -> None:
    """Replace a piece of a function's text."""
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert old in text, f"{name} has changed: plant the bug anew"
    found: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + text.replace(old, new), name, "exec")
    exec(code, vars(sys.modules[function.__module__]), found)
    patch.setattr(owner, name, found[name])


def after_removal(patch: Patch, forget: Callable[[PartitionLog], None]) -> None:
    """A table is made anew when its partition was removed."""
    changed = Town.changed

    def forgetful(self: Town, before: QueueState, facts: Sequence[QueueFact], after: QueueState) -> None:
        changed(self, before, facts, after)
        for fact in facts:
            if fact.kind == "PartitionsRemoved":
                for number in fact.body["ends"]:
                    forget(self.logs[number])

    patch.setattr(Town, "changed", forgetful)


# ---- what the model of resizes has shown
@bug(scenarios.test_a_record_is_of_one_generation)
@bug()
def a_record_without_its_generation(patch: Patch) -> None:
    patch.setattr(Producer, "record", lambda self, generation: (self.source.sink, 0))


@bug(scenarios.test_a_replay_asks_every_generation)
@bug()
def a_replay_asks_the_last_generation_only(patch: Patch) -> None:
    written = Producer.written

    def last(self: Producer, looks: Any, batch: int, generation: int) -> Any:
        return {g: where for g, where in written(self, looks, batch, generation).items() if g == generation - 1}

    patch.setattr(Producer, "written", last)


@bug(scenarios.test_records_are_read_at_each_commit)
@bug()
def records_are_read_once(patch: Patch) -> None:
    def recorded(self: Producer, look: Look, earlier: Look | None, generation: int) -> int:
        return (earlier or look).batches.get(self.record(generation), -1)

    patch.setattr(Producer, "recorded", recorded)


@bug(scenarios.test_a_removed_partition_remembers_its_batches)
@bug()
def a_removed_partition_forgets_its_batches(patch: Patch) -> None:
    after_removal(patch, lambda log: log.batches.clear())


@bug(scenarios.test_a_row_without_a_key_has_one_place)
def rows_without_a_key_go_in_turns(patch: Patch) -> None:
    batch = Source.batch
    patch.setattr(Source, "batch", lambda self: [replace(m, hash=i) for i, m in enumerate(batch(self))])


@bug()
def rows_without_a_key_go_anywhere(patch: Patch) -> None:
    rng, batch = random.Random(0), Source.batch

    def drawn(self: Source) -> list[Message]:
        return [replace(m, hash=rng.randrange(100)) if m.key is None else m for m in batch(self)]

    patch.setattr(Source, "batch", drawn)


@bug(scenarios.test_a_producer_of_a_past_map_writes_nothing)
def a_table_is_made_anew_without_its_seal(patch: Patch) -> None:
    after_removal(patch, lambda log: setattr(log, "sealed", -1))
    patch.setattr(partition_map, "may_append", lambda sealed, generation: sealed < generation)


@bug(scenarios.test_the_barrier_asks_every_earlier_generation)
@bug()
def the_barrier_asks_the_previous_generation_only(patch: Patch) -> None:
    def passed(self: Barrier, b: int, j: int) -> bool:
        return not any(g == j - 1 and self._blocks(g, left, b, j) for g, left in self._open.items())

    patch.setattr(Barrier, "passed", passed)


@bug(scenarios.test_a_look_at_the_logs_comes_before_that_at_the_queue)
def the_queue_is_looked_at_before_the_logs(patch: Patch) -> None:
    logs, queue = Reader.look_at_logs, Reader.look_at_queue
    patch.setattr(Reader, "look_at_logs", queue)
    patch.setattr(Reader, "look_at_queue", logs)


@bug(scenarios.test_the_barrier_rests_on_floors)
@bug()
def the_barrier_rests_on_acknowledgements(patch: Patch) -> None:
    patch.setattr(Reader, "settled", lambda self, number: self.world.position(number))


@bug(scenarios.test_what_goes_is_drained_first)
@bug()
def what_goes_is_unassigned_at_once(patch: Patch) -> None:
    opened = core_queue._opened

    def shared(state: QueueState, count: int) -> QueueState:
        now = partition_numbers(count)
        return replace(opened(state, count), first=now.start, operating_partitions=now.stop)

    patch.setattr(core_queue, "_opened", shared)


# ---- the barrier
@bug(scenarios.test_a_parent_is_stuck_and_nobody_waits_for_it)
@bug(maps.test_the_parent_is_never_waited_for)
@bug()
def the_parent_is_waited_for(patch: Patch) -> None:
    rewrite(patch, Barrier, "__init__", "if not generations[g].partition_count:", "if False:")


@bug(maps.test_4_to_6_by_hand)
@bug()
def a_partition_waits_for_itself_only(patch: Patch) -> None:
    patch.setattr(Barrier, "_blocks", lambda self, g, left, b, j: b in left)


@bug(scenarios.test_only_where_its_key_could_have_been)
def a_partition_waits_for_all(patch: Patch) -> None:
    patch.setattr(Barrier, "_blocks", lambda self, g, left, b, j: True)


@bug(maps.test_4_to_6_by_hand)
@bug()
def a_message_too_far(patch: Patch) -> None:
    rewrite(patch, Barrier, "limit", "return max(start, cut)", "return max(start, cut + 1)")


@bug(maps.test_what_a_past_map_left_behind_waits_no_longer_than_it_must)
def what_lies_below_a_past_cut_holds_back(patch: Patch) -> None:
    rewrite(patch, Barrier, "limit", "until = ", "until = end if True else ")


@bug()
def what_was_removed_is_waited_for(patch: Patch) -> None:
    patch.setattr(resizing, "Barrier", lambda generations, settled, gone: Barrier(generations, settled, {}))


@bug()
def nobody_decides_floors(patch: Patch) -> None:
    patch.setattr(Reader, "queues_changed", lambda self: super(Reader, self).queues_changed())


# ---- sealing
@bug()
def a_producer_commits_through_a_seal(patch: Patch) -> None:
    patch.setattr(partition_map, "may_append", lambda sealed, generation: True)


@bug()
def a_seal_does_not_compare(patch: Patch) -> None:
    seal = PartitionLog.seal

    def blind(self: PartitionLog, look: Look, generation: int, cut: int) -> None:
        seal(self, replace(look, version=self.version), generation, cut)

    patch.setattr(PartitionLog, "seal", blind)


@bug()
def the_cut_of_another_generation(patch: Patch) -> None:
    rewrite(patch, Actor, "seal", "look.cuts[generation]", "min(look.cuts.values())")


@bug()
def only_the_old_tables_are_sealed(patch: Patch) -> None:
    rewrite(patch, Actor, "open_generation", "*(n for n in new if n not in old), ", "")


@bug(scenarios.test_a_producer_opens_the_next_map_itself)
def a_producer_waits_for_ever(patch: Patch) -> None:
    patch.setattr("spark_partq.testing.producing.PATIENCE", 10**9)


# ---- what goes and what comes back
@bug()
def one_group_is_enough(patch: Patch) -> None:
    def drained(ends: Any, readers: Any) -> bool:
        return any(all(settled(n) >= end for n, end in ends.items()) for settled in readers)

    patch.setattr(partition_map, "drained", drained)


@bug(scenarios.test_nothing_is_removed_that_nobody_has_read)
@bug()
def what_nobody_reads_is_removed(patch: Patch) -> None:
    rewrite(patch, Scaler, "settled", "if not any(ends.values()):", "if True:")


@bug()
def removal_rests_on_acknowledgements(patch: Patch) -> None:
    rewrite(patch, Scaler, "settled", "group.settled for", "group.position for")
    patch.setattr(Group, "raise_floors", lambda self, partitions: None)


@bug(scenarios.test_delete_says_what_it_loses)
@bug()
def what_is_lost_is_not_told(patch: Patch) -> None:
    patch.setattr(Actor, "unread", lambda self, partitions: 0)


@bug(groups.test_a_partition_comes_back)
@bug()
def a_partition_comes_back_where_the_look_says(patch: Patch) -> None:
    rewrite(patch, queue_changes, "add_queues", "max(start, position)", "start")


@bug()
def a_stale_look_at_the_queue_counts(patch: Patch) -> None:
    found = Reader.found

    def undated(self: Reader) -> Any:
        known, starts = found(self)
        return {queue_id: replace(queue, revision=0) for queue_id, queue in known.items()}, starts

    patch.setattr(Reader, "found", undated)


@bug(groups.test_a_look_from_in_between_changes_nothing)
def a_revision_is_known_only_with_other_news(patch: Patch) -> None:
    rewrite(
        patch, queue_changes, "add_queues", "known != queue)", "(known.first, known.partitions) != (queue.first, queue.partitions))"
    )  # fmt: skip


@bug(groups.test_a_member_that_joins_unbinds_the_others)
def only_a_change_of_the_queues_unbinds(patch: Patch) -> None:
    patch.setattr(queue_changes, "unbind_all", lambda decision, queue, what: None)


@bug()
def a_partition_that_is_gone_is_planned(patch: Patch) -> None:
    def limit(self: Reader, where: Any, first: int) -> int:
        number = where[1]
        return (
            first + 1
            if number not in self.queue.partition_numbers and self.ends[number] > first
            else old(self, where, first)
        )

    old = Reader.limit
    patch.setattr(Reader, "limit", limit)


@bug(scenarios.test_what_is_lost_does_not_come_back_with_its_partition)
@bug()
def groups_are_not_told_before_a_partition_comes_back(patch: Patch) -> None:
    patch.setattr(Actor, "update_groups", lambda self: iter(()))


@bug(scenarios.test_what_is_lost_does_not_come_back_with_its_partition)
@bug()
def a_partition_comes_back_from_its_beginning(patch: Patch) -> None:
    found = Group.found

    def from_the_beginning(self: Group, state: QueueState) -> Any:
        queues, starts = found(self, state)
        return queues, dict.fromkeys(starts, 0)

    patch.setattr(Group, "found", from_the_beginning)


# ---- ingress
@bug(scenarios.test_a_drain)
@bug()
def ingress_is_enabled_in_a_drain(patch: Patch) -> None:
    rewrite(
        patch, core_queue, "_after_scaling_fact", "ingress = state.ingress and not drain", "ingress = state.ingress"
    )


@bug()
def somebody_enables_ingress_in_a_drain(patch: Patch) -> None:
    for kind in (Kind.INGRESS_ENABLED, Kind.INGRESS_DISABLED):
        patch.setitem(core_queue.TRANSITIONS, kind, tuple((phase, phase) for phase in Phase))
    rewrite(patch, decide, "set_ingress", 'if state.scaling is not None and state.scaling.mode == "drain"', "if False")


@bug()
def the_count_changes_before_the_queue_has_drained(patch: Patch) -> None:
    rewrite(patch, Scaler, "drain", "if drained:", "if True:")


@pytest.mark.parametrize(
    ("plant", "caught_by"),
    [pytest.param(plant, caught_by, id=f"{name}-{caught_by.__name__}") for name, plant, caught_by in BUGS],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[Patch], Any], caught_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-S6: the seed and the trace say how."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, PartqError, ValueError)) as caught:
        caught_by()
    if caught_by is by_simulator:
        assert re.match(r"seed \d+: ", str(caught.value))
        assert "TownSetup(" in str(caught.value)
