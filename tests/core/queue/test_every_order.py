"""Small queues, every order of decisions: replay refuses no fact, no invariant is broken, and no transition is left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.errors import PartqError
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue import alter, decide, deletion, replicas, stuck
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import MODES, Kind, Phase, QueueFact, Status
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.resetting import announce_reset
from spark_partq.core.queue.scaling import Remainder
from spark_partq.core.queue.segments import allow_segments
from spark_partq.core.queue.state import QueueState
from spark_partq.core.queue.transitions import STATUS_TRANSITIONS, TRANSITIONS
from tests.core.queue.queues import create, cuts, follow

Decision = Callable[[], Facts]
NOTE = payload_schema("note string")


def decisions(state: QueueState, end: int, counts: range, locations: str = "ab") -> Iterator[Decision]:
    """All that anybody may decide in this state, on what is so and on what is not so any more.

    Parameters
    ----------
    end : int
        The next offset of every partition.
    """
    yield partial(decide.finish_creation, state)
    yield partial(decide.delete, state)
    yield partial(decide.cancel_scaling, state)
    yield partial(decide.end_scaling, state, state)
    yield partial(decide.finish_draining, state, state)
    for enabled in (True, False):
        yield partial(decide.set_ingress, state, enabled)
    for wanted in ({"vacuum_grace_ms": 7_200_000}, {"vacuum_grace_ms": 86_400_000, "retention_ms": 5}):
        yield partial(alter.alter_settings, state, wanted, end)
    yield partial(alter.add_columns, state, NOTE)
    yield partial(deleted, state)
    yield partial(allow_segments, state)
    for location in locations:
        for replica_id in ("", "one", "two"):
            yield partial(replicas.add_replica, state, location, replica_id)
            yield partial(replicas.fence, state, location, replica_id)
        yield partial(replicas.remove_replica, state, location)
        for unfenced in (state.last_fence, state.last_fence - 1):
            for gone in ((), ("one",), ("one", "two")):
                yield partial(replicas.remove_replica, state, location, gone, unfenced=unfenced)
    for incarnation in (state.incarnation, f"after {state.incarnation[:5]}"):
        yield partial(replicas.become_primary, state, incarnation, {0: 5}, state.incarnation)
    yield partial(stuck.finish_copying, state, state, state.end_of_parent)
    yield partial(stuck.close_parent, state, state, state.end_of_parent)
    for unread_from in (0, state.end_of_parent):
        yield partial(stuck.start_copying, state, unread_from)
    if not state.generations:
        return
    for count, mode, unread in itertools.product(counts, MODES, (0, 5)):
        held = Remainder(dict.fromkeys(state.not_named_by(count), end), unread)
        yield partial(decide.start_scaling, state, count, mode, held, confirm_lost=3)
    yield partial(decide.attach_group, state, "g", 0)
    yield partial(decide.detach_group, state, "g", 1)
    yield partial(announce_reset, state, "g", 1)
    for measured in (state, replace(state, revision=state.revision - 1)):
        for removed in (state.removing, state.removing[1:]):
            yield partial(decide.remove_drained, state, measured, dict.fromkeys(removed, end))
    for generation in (state.generation, state.generation - 1):
        if state.scaling is not None:
            ends = dict.fromkeys(state.not_named_by(state.scaling.partition_count), end)
            for remainder in (None, Remainder(ends, 0), Remainder(ends, 5)):
                yield partial(decide.open_generation, state, generation, cuts(state, end), remainder)


def deleted(state: QueueState) -> list[QueueFact]:
    """What the deletion of messages commits, as one commit."""
    allowed = list(deletion.allow_deletion(state))
    return [*allowed, *deletion.note_deletion(follow(state, allowed), 3)]


def shape(state: QueueState) -> Any:
    """A state without its offsets, and without maps that nothing depends on any more."""
    return (
        state.generations and state.partition_count,
        state.partition_numbers,
        state.all_partitions,
        state.configured_partitions,
        frozenset(state.removed_ends),
        state.scaling,
        state.stuck,
        state.copying is None,
        state.ingress,
        bool(state.groups),
        state.replicas,
        state.fenced_by,
        state.deleted,
    )


class Explorer:
    """Breadth first, over all that can be decided; states of one shape are one."""

    def __init__(self, counts: range, locations: str) -> None:
        self.counts, self.locations = counts, locations
        self.seen: set[Any] = set()
        self.phases: set[Any] = set()
        self.statuses: set[Any] = set()

    def run(self) -> None:
        layer = [create(count) for count in self.counts]
        while layer:
            following = []
            for state in layer:
                for after in self.successors(state):
                    if shape(after) not in self.seen:
                        self.seen.add(shape(after))
                        following.append(after)
            layer = following

    def successors(self, state: QueueState) -> Iterator[QueueState]:
        for decision in decisions(state, state.revision, self.counts, self.locations):
            try:
                facts = decision()
            except PartqError:
                continue
            if not facts:
                continue
            after = state
            for fact in facts:
                before, after = after, follow(after, [fact])
                self.phases.add((fact.kind, before.phase, after.phase))
                self.statuses.add((fact.kind, before.status, after.status))
            if len(facts) > 1:
                follow(state, facts)  # as one commit, too
            yield after


# Only a queue that scales from no partition to two, or back, goes along these arrows.
FROM_NONE_TO_TWO = {(Kind.STUCK_COPY_STARTED, phase, phase) for phase in (Phase.SCALING, Phase.DRAINING, Phase.DRAINED)}
FROM_NONE_TO_TWO_STATUSES = {(Kind.GENERATION_OPENED, Status.SCALING_UP, Status.SCALING_DOWN)}


@pytest.mark.parametrize(
    ("counts", "phases_left_out", "statuses_left_out"),
    [
        (range(2), FROM_NONE_TO_TWO, FROM_NONE_TO_TWO_STATUSES),
        pytest.param(range(3), set(), set(), marks=pytest.mark.long),
    ],
)
def test_every_order_of_decisions(counts: range, phases_left_out: set[Any], statuses_left_out: set[Any]) -> None:
    """S1-S8: all states that there are of a small queue. Every arrow of the two diagrams is gone along, and no other."""
    explorer = Explorer(counts, "")
    explorer.run()
    assert len(explorer.seen) > 500
    replicated = Explorer(range(1, 3), "a")
    replicated.run()
    found = (
        explorer.phases
        | replicated.phases
        | {
            (Kind.QUEUE_CREATED, Phase.UNKNOWN, Phase.CREATING),
            (Kind.QUEUE_DELETED, Phase.DELETED, Phase.DELETED),  # nobody decides it, and a table may have it
        }
    )
    assert found == {(kind, *pair) for kind, pairs in TRANSITIONS.items() for pair in pairs} - phases_left_out
    changes = {arrow for arrow in explorer.statuses if arrow[1] is not arrow[2]}
    expected = {(kind, *pair) for kind, pairs in STATUS_TRANSITIONS.items() for pair in pairs}
    assert changes == expected - {(Kind.QUEUE_CREATED, Status.UNKNOWN, Status.SCALING_UP)} - statuses_left_out


@given(st.data())
def test_any_order_of_decisions(data: st.DataObject) -> None:
    """The same with more partitions, which hold more messages each time: offsets never go back."""
    state = create(data.draw(st.integers(0, 5)))
    end = 0
    for _ in range(30):
        end += data.draw(st.integers(0, 3))
        choice = data.draw(st.sampled_from(list(decisions(state, end, range(6)))[2:]))  # it is not deleted
        try:
            before, state = state, follow(state, choice())
        except PartqError:
            continue
        if state.generations and before.generations:
            now = {
                number: [g.cuts[number] for g in state.generations if number in g.cuts] for number in range(PARENT, 6)
            }
            assert all(cuts_ == sorted(cuts_) for cuts_ in now.values())
