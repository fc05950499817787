"""A group that decides in one place, each decision checked against the invariants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from spark_partq.core.acks import AckRow, Acks
from spark_partq.core.group import GroupFact, GroupState, Held, Kind, Member, PartitionId, QueueInGroup
from spark_partq.core.invariants import check
from spark_partq.core.rebalance import (
    DeadlinePassed,
    Drained,
    Event,
    HolddownOver,
    Join,
    Leave,
    RaiseFloors,
    decide,
)


def at(partition: int) -> PartitionId:
    return "id", partition


class Decided:
    """A group's state and acknowledgements, and the facts of its last decision."""

    def __init__(self, partitions: int = 4, delay_ms: int = 0, handoff_ms: int = 1_000) -> None:
        self.state, self.acks = GroupState(), Acks()
        self.queue = QueueInGroup("orders", partitions, delay_ms, handoff_ms)
        self.starts = {at(p): 0 for p in range(partitions)}
        self.facts: list[GroupFact] = []
        self.names = itertools.count(1)

    def do(self, *events: Event) -> list[GroupFact]:
        before = self.state
        self.facts = decide(before, self.acks, events, by="test")
        self.state = before.copy()
        for fact in self.facts:
            self.state.replay(fact)
        check(before, self.state, self.facts, self.acks)
        return self.facts

    def kinds(self) -> list[str]:
        return [str(fact.kind) for fact in self.facts]

    # ---- events
    def member(self, instance: str, flows: int = 1, **options: Any) -> Member:
        given = {"session_timeout_ms": 10_000, "assignors": ("balanced",), "queues": ("orders",), **options}
        return Member(instance, f"{instance}{next(self.names)}", flows, **given)

    def join(self, instance: str, flows: int = 1, **options: Any) -> list[GroupFact]:
        return self.do(Join(self.member(instance, flows, **options), {"id": self.queue}, self.starts))

    def leave(self, instance: str, expired: bool = False) -> list[GroupFact]:
        member = self.state.members[instance]
        return self.do(Leave(instance, member.incarnation, expired))

    def over(self) -> list[GroupFact]:
        return self.do(HolddownOver(self.state.status_seq))

    def ack(self, partition: int, offset: int, delivered: int = 0) -> None:
        """Its owner hands out and acknowledges."""
        own = self.state.partitions[at(partition)]
        self.acks.add(AckRow(own.incarnation, 1, *at(partition), own.epoch, offset, max(offset, delivered)))

    def release(self, *partitions: int) -> list[GroupFact]:
        """Their owner has acknowledged all."""
        return self.do(*[self.drained(p) for p in partitions or self.draining()])

    def drained(self, partition: int) -> Drained:
        own = self.state.partitions[at(partition)]
        return Drained(at(partition), own.incarnation, own.epoch, self.position(partition))

    def deadline(self, partition: int) -> list[GroupFact]:
        return self.do(DeadlinePassed(at(partition), self.state.partitions[at(partition)].handoff))

    def floors(self) -> list[GroupFact]:
        return self.do(RaiseFloors("id"))

    # ---- asking
    def position(self, partition: int) -> int:
        return self.state.position(at(partition), self.acks) or 0

    def draining(self) -> list[int]:
        return [where[1] for where, own in sorted(self.state.partitions.items()) if own.held is Held.DRAINING]

    def owned(self) -> dict[str, list[int]]:
        """What each flow that has any owns; what nobody has under ``-``."""
        flows: dict[str, list[int]] = {}
        for where, own in sorted(self.state.partitions.items()):
            flows.setdefault(own.flow or "-", []).append(where[1])
        return flows

    def loads(self) -> Sequence[int]:
        return sorted((len(p) for flow, p in self.owned().items() if flow != "-"), reverse=True)

    def times(self, kind: Kind) -> int:
        return sum(1 for fact in self.facts if fact.kind == kind)
