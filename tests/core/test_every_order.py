"""Small groups, every order of events: the invariants hold, and a rebalance moves no more than it must."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from spark_partq.core.acks import AckRow, Acks
from spark_partq.core.group import GroupFact, GroupState, Kind, Member, PartitionId, QueueInGroup, Status
from spark_partq.core.invariants import check, check_balance
from spark_partq.core.rebalance import DeadlinePassed, Drained, Event, HolddownOver, Join, Leave, decide

Node = tuple[GroupState, Acks]


class Explorer:
    """Breadth first, over all that can happen to a group; states that differ only in numbers are one."""

    def __init__(self, partitions: int, flows: dict[str, int], delay_ms: int, handoff_ms: int) -> None:
        self.queue = {"q": QueueInGroup("q", partitions, delay_ms, handoff_ms)}
        self.places: list[PartitionId] = [("q", p) for p in range(partitions)]
        self.flows = flows
        self.seen: set[Any] = set()
        self.decisions = 0

    def run(self, depth: int) -> int:
        """The number of different states within so many events."""
        layer = [(GroupState(), Acks())]
        self.seen = {self.key(*layer[0])}
        for _ in range(depth):
            following = []
            for node in layer:
                for after in self.successors(node):
                    key = self.key(*after)
                    if key not in self.seen:
                        self.seen.add(key)
                        following.append(after)
                        self.end(*after)
            layer = following
        return len(self.seen)

    def key(self, state: GroupState, acks: Acks) -> Any:
        """A state without its numbers: who owns, gives and takes what, and what is outstanding."""
        return (
            state.status,
            state.baseline if state.status is Status.HOLDDOWN else 0,
            tuple(state.flows),
            tuple(
                (
                    own.flow,
                    own.to_flow,
                    own.last_flow,
                    own.base_epoch == own.epoch,
                    self.outstanding(state, acks, where),
                )
                for where, own in state.partitions.items()
            ),
        )

    def outstanding(self, state: GroupState, acks: Acks, where: PartitionId) -> bool:
        return state.delivered(where, acks) > (state.position(where, acks) or 0)

    # ---- what can happen
    def successors(self, node: Node) -> Iterator[Node]:
        state, acks = node
        for event in self.events(state, acks):
            yield self.decide(state, acks, event), acks
        for where, own in state.partitions.items():
            if own.flow is None:
                continue
            position = state.position(where, acks) or 0
            if not self.outstanding(state, acks, where):
                if own.to_flow is None and where == self.places[0]:  # one partition with messages is enough
                    yield state, self.told(acks, AckRow(own.incarnation, 0, *where, own.epoch, 0, position + 1))
            else:
                yield state, self.told(acks, AckRow(own.incarnation, 0, *where, own.epoch, position + 1, position + 1))

    def told(self, acks: Acks, row: AckRow) -> Acks:
        after = Acks(dict(acks.beats), dict(acks.rows), dict(acks.handed))
        after.add(row)
        return after

    def events(self, state: GroupState, acks: Acks) -> Iterator[Event]:
        starts = dict.fromkeys(self.places, 0)
        for name, flows in self.flows.items():
            member = Member(name, f"{name}{state.seq}", flows, 1, ("balanced",), ("q",))
            yield Join(member, self.queue, starts)
            if name in state.members:
                yield Leave(name, state.members[name].incarnation)
        if state.status is Status.HOLDDOWN:
            yield HolddownOver(state.status_seq)
        for where, own in state.partitions.items():
            if own.to_flow is not None:
                yield DeadlinePassed(where, own.handoff)
                if not self.outstanding(state, acks, where):
                    yield Drained(where, own.incarnation, own.epoch, state.position(where, acks) or 0)

    def decide(self, state: GroupState, acks: Acks, event: Event) -> GroupState:
        self.decisions += 1
        facts = decide(state, acks, [event])
        after = state.copy()
        for fact in facts:
            after.replay(fact)
        check(state, after, facts, acks)
        self.fewest_moves(state, after, facts)
        return after

    def fewest_moves(self, before: GroupState, after: GroupState, facts: list[GroupFact]) -> None:
        """R6: a rebalance starts no more handoffs than balance needs."""
        moved = {
            f.where for f in facts if f.kind == Kind.HANDOFF_STARTED and before.partitions[f.where].to_flow is None
        }
        if not moved:
            return
        flows = after.flows
        had = {where: None if own.target not in flows else own.target for where, own in before.partitions.items()}
        loads = sorted((sum(1 for flow in had.values() if flow == f) for f in flows), reverse=True)
        base, more = divmod(len(had), len(flows))
        needed = sum(max(0, load - base - (i < more)) for i, load in enumerate(loads))
        assert len(moved) <= needed, f"{len(moved)} handoffs, {needed} are needed"

    # ---- where it must end
    def end(self, state: GroupState, acks: Acks) -> None:
        """Left alone, the group becomes Ready and balanced in a few steps."""
        for _ in range(3 + len(self.places)):
            due = [e for e in self.events(state, acks) if isinstance(e, HolddownOver | DeadlinePassed)]
            if not due:
                break
            state = self.decide(state, acks, due[0])
        assert state.status is Status.READY
        if state.members:
            check_balance(state)


CASES = [
    (4, {"a": 1, "b": 1, "c": 1}, 1, 1, 7),
    (4, {"a": 1, "b": 1, "c": 1}, 0, 1, 7),
    (4, {"a": 1, "b": 1, "c": 1}, 1, 0, 8),
    # All states there are:
    (4, {"a": 2, "b": 1}, 1, 1, 25),
    (2, {"a": 1, "b": 2}, 1, 1, 25),  # with a standby
    (1, {"a": 1, "b": 1, "c": 1}, 1, 1, 10),
]


@pytest.mark.parametrize(("partitions", "flows", "delay_ms", "handoff_ms", "depth"), CASES)
def test_every_order(partitions: int, flows: dict[str, int], delay_ms: int, handoff_ms: int, depth: int) -> None:
    """All orders of joins, restarts, departures, acknowledgements, releases and timers, to a depth."""
    explorer = Explorer(partitions, flows, delay_ms, handoff_ms)
    assert explorer.run(depth) > 50
    assert explorer.decisions > 300


def test_events_that_come_late_or_twice() -> None:
    """Nothing follows from an event of a state that is gone."""
    explorer = Explorer(4, {"a": 1, "b": 1, "c": 1}, 1, 1)
    states: list[Node] = [(GroupState(), Acks())]
    events: list[Event] = []
    for choice in itertools.islice(itertools.cycle(range(5)), 40):
        state, acks = states[-1]
        possible = list(explorer.events(state, acks))
        event = possible[choice % len(possible)]
        events.append(event)
        states.append((explorer.decide(state, acks, event), acks))
    state, acks = states[-1]
    for event in events:
        if not isinstance(event, Join):
            state = explorer.decide(state, acks, event)
