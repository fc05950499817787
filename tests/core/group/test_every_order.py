"""Small groups, every order of events: the invariants hold, and a rebalance moves no more than it must."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import DeadlinePassed, Drained, Event, HolddownOver, Join, Leave, QueuesChanged
from spark_partq.core.group.facts import GroupFact, Kind, Member, PartitionState, QueueInGroup, Status
from spark_partq.core.group.invariants import check, check_balance
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

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
                    own.lineage_epoch == own.epoch,
                    self.outstanding(state, acks, partition_id),
                )
                for partition_id, own in state.partitions.items()
            ),
        )

    def outstanding(self, state: GroupState, acks: Acks, partition_id: PartitionId) -> bool:
        return state.delivered(partition_id, acks) > (state.position(partition_id, acks) or 0)

    # ---- what can happen
    def successors(self, node: Node) -> Iterator[Node]:
        state, acks = node
        for event in self.events(state, acks):
            yield self.decide(state, acks, event), acks
        for after in self.acknowledgements(state, acks):
            yield state, after

    def acknowledgements(self, state: GroupState, acks: Acks) -> Iterator[Acks]:
        """The acknowledgements after the next step of an owner: it plans a message, or acknowledges the one that it planned."""
        for partition_id, own in state.partitions.items():
            if own.flow is None:
                continue
            position = state.position(partition_id, acks) or 0
            if self.outstanding(state, acks, partition_id):
                to = position + 1
            elif own.state is PartitionState.OWNED and partition_id == self.places[0]:
                to = 0  # one partition with messages is enough
            else:
                continue
            yield self.acknowledged(acks, AckRow(own.incarnation, 0, *partition_id, own.epoch, to, position + 1))

    def acknowledged(self, acks: Acks, row: AckRow) -> Acks:
        after = Acks(dict(acks.beats), dict(acks.rows), dict(acks.delivered_ends))
        after.add(row)
        return after

    def events(self, state: GroupState, acks: Acks) -> Iterator[Event]:
        yield from self.joins(state)
        for name in self.flows:
            if name in state.members:
                yield Leave(name, state.members[name].incarnation)
        if state.status is Status.HOLDDOWN:
            yield HolddownOver(state.status_seq)
        for partition_id, own in state.partitions.items():
            if own.state is PartitionState.DRAINING:
                yield DeadlinePassed(partition_id, own.handoff)
                if not self.outstanding(state, acks, partition_id):
                    yield Drained(partition_id, own.incarnation, own.epoch, state.position(partition_id, acks) or 0)

    def joins(self, state: GroupState) -> Iterator[Join]:
        for name, flows in self.flows.items():
            member = Member(name, f"{name}{state.seq}", flows, 1, ("balanced",), ("q",))
            yield Join(member, self.queue, dict.fromkeys(self.places, 0))

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
            f.partition_id
            for f in facts
            if f.kind == Kind.HANDOFF_STARTED and before.partition_state(f.partition_id) is not PartitionState.DRAINING
        }
        if not moved:
            return
        flows = after.flows
        had = {
            partition_id: None if own.target not in flows else own.target
            for partition_id, own in before.partitions.items()
        }
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


class Options(Explorer):
    """Members that list various assignors and read various queues, and queues that come and go."""

    def __init__(
        self, queues: dict[str, int], members: dict[str, list[dict[str, Any]]], delay_ms: int, handoff_ms: int
    ) -> None:
        super().__init__(0, dict.fromkeys(members, 1), delay_ms, handoff_ms)
        self.queues = {q: QueueInGroup(q, n, delay_ms, handoff_ms) for q, n in queues.items()}
        self.members = members
        self.places = [(q, p) for q, n in queues.items() for p in range(n)]

    def key(self, state: GroupState, acks: Acks) -> Any:
        listed = [(m.instance, m.assignors, m.queues) for m in state.members.values()]
        computed = (state.assignor, state.protocol, repr(state.basis)) if state.status is Status.HOLDDOWN else ()
        return super().key(state, acks), state.assignment_due, tuple(listed), computed, tuple(state.queues)

    def events(self, state: GroupState, acks: Acks) -> Iterator[Event]:
        yield from super().events(state, acks)
        for queue_id in self.queues:
            if len(self.queues) > 1 and state.members:
                gone = queue_id in state.queues
                starts = {partition_id: 0 for partition_id in self.places if partition_id[0] == queue_id}
                yield (
                    QueuesChanged({}, {}, (queue_id,))
                    if gone
                    else QueuesChanged({queue_id: self.queues[queue_id]}, starts)
                )

    def joins(self, state: GroupState) -> Iterator[Join]:
        others = {name: set(member.assignors) for name, member in state.members.items()}
        for name, choices in self.members.items():
            for choice in choices:
                options = {"assignors": ("range",), "queues": tuple(self.queues), **choice}
                shared = [listed for other, listed in others.items() if other != name]
                if not set(options["assignors"]).intersection(*shared):
                    continue
                cooperative = all(BUILTIN[a].cooperative for a in options["assignors"])
                member = Member(name, f"{name}{state.seq}", 1, 1, cooperative=cooperative, **options)
                read = {q: queue for q, queue in self.queues.items() if q in member.queues and q in state.queues}
                if not state.queues or not others:
                    read = {q: queue for q, queue in self.queues.items() if q in member.queues}
                yield Join(member, read, {w: 0 for w in self.places if w[0] in read})

    def fewest_moves(self, before: GroupState, after: GroupState, facts: list[GroupFact]) -> None:
        """K4: nothing is granted between the first revocation of an eager rebalance and its assignment."""
        if before.revoking and after.revoking:
            assert not [f for f in facts if f.kind == Kind.GRANTED]


THREE = {"a": 1, "b": 1, "c": 1}
CASES = [
    (4, THREE, 1, 1, 6),
    (4, THREE, 0, 1, 5),
    (4, THREE, 1, 0, 5),
    *(pytest.param(4, THREE, *deeper, marks=pytest.mark.long) for deeper in ((1, 1, 7), (0, 1, 7), (1, 0, 8))),
    # All states there are:
    (4, {"a": 2, "b": 1}, 1, 1, 25),
    (2, {"a": 1, "b": 2}, 1, 1, 25),  # with a standby
    (1, THREE, 1, 1, 10),
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


COOPERATIVE, EAGER, BOTH = (
    {"assignors": ("cooperative-sticky",)},
    {"assignors": ("range",)},
    {"assignors": ("cooperative-sticky", "range")},
)
OPTIONS = [
    # An eager group.
    ({"q": 3}, {"a": [EAGER], "b": [EAGER], "c": [EAGER]}, 1, 1, 6),
    ({"q": 3}, {"a": [EAGER], "b": [EAGER], "c": [EAGER]}, 0, 1, 5),
    # All states there are of two members.
    ({"q": 2}, {"a": [EAGER], "b": [EAGER]}, 1, 1, 25),
    # Upgrades and downgrades, at any moment.
    ({"q": 2}, {"a": [EAGER, BOTH, COOPERATIVE], "b": [EAGER, BOTH, COOPERATIVE]}, 1, 1, 5),
    ({"q": 2}, {"a": [EAGER, BOTH, COOPERATIVE], "b": [EAGER, BOTH, COOPERATIVE]}, 0, 0, 8),
    # Two queues that come and go, with subscriptions that differ and change.
    ({"q": 1, "r": 1}, {"a": [{"queues": ("q", "r")}, {"queues": ("q",)}], "b": [{"queues": ("r",)}]}, 1, 1, 6),
    (
        {"q": 2, "r": 1},
        {name: [{"assignors": ("balanced",), "queues": read} for read in (("q", "r"), ("q",))] for name in "ab"},
        1,
        1,
        4,
    ),
]


@pytest.mark.parametrize(("queues", "members", "delay_ms", "handoff_ms", "depth"), OPTIONS)
def test_every_order_of_protocols_and_queues(
    queues: dict[str, int], members: dict[str, list[dict[str, Any]]], delay_ms: int, handoff_ms: int, depth: int
) -> None:
    """K3-K7: the same, and of restarts with other assignors or queues, and of queues that are deleted and made again."""
    explorer = Options(queues, members, delay_ms, handoff_ms)
    assert explorer.run(depth) > 50
    assert explorer.decisions > 300
