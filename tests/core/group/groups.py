"""A group that decides in one place, each decision checked against the invariants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spark_partq.core.assignors import BUILTIN, Assignor
from spark_partq.core.errors import AssignorError
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import (
    DeadlinePassed,
    Drained,
    Event,
    HolddownOver,
    Join,
    Leave,
    Promoted,
    QueuesChanged,
    RaiseFloors,
)
from spark_partq.core.group.facts import GroupFact, Kind, Member, PartitionState, QueueInGroup
from spark_partq.core.group.invariants import check
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps.decision import Loads
from spark_partq.core.ids import PartitionId


def at(partition: int) -> PartitionId:
    return "id", partition


class Decided:
    """A group's state and acknowledgements, and the facts of its last decision."""

    def __init__(self, partitions: int = 4, delay_ms: int = 0, handoff_ms: int = 1_000) -> None:
        self.state, self.acks = GroupState(), Acks()
        self.queue = QueueInGroup("orders", partitions, delay_ms, handoff_ms)
        self.more: dict[str, QueueInGroup] = {}
        self.facts: list[GroupFact] = []
        self.names = itertools.count(1)
        self.fails = False
        self.first = 0  # where a partition starts that the group never had
        self.loads: Loads | None = None

    @property
    def queues(self) -> dict[str, QueueInGroup]:
        """Those that there are, by id."""
        return {"id": self.queue, **self.more}

    @property
    def starts(self) -> dict[PartitionId, int]:
        return {(queue_id, p): self.first for queue_id, queue in self.queues.items() for p in range(queue.partitions)}

    def queue_named(self, name: str, partitions: int) -> None:
        """There is another queue, or it has so many partitions; its id is its name."""
        self.more[name] = replace(self.queue, name=name, partitions=partitions)

    def assignor(self, name: str) -> Assignor:
        if self.fails:
            raise AssignorError(f"{name} fails", assignor=name)
        return BUILTIN[name]

    def do(self, *events: Event) -> list[GroupFact]:
        before = self.state
        self.facts = decide(before, self.acks, events, "test", assignor=self.assignor, loads=self.loads)
        assert all(fact.cause and fact.by == "test" for fact in self.facts), self.facts
        self.state = before.copy()
        for fact in self.facts:
            self.state.replay(fact)
        check(before, self.state, self.facts, self.acks, events)
        return self.facts

    def kinds(self) -> list[str]:
        return [str(fact.kind) for fact in self.facts]

    # ---- events
    def member(self, instance: str, flows: int = 1, **options: Any) -> Member:
        given = {"session_timeout_ms": 10_000, "assignors": ("balanced",), "queues": ("orders",), **options}
        given.setdefault("cooperative", all(BUILTIN[name].cooperative for name in given["assignors"]))
        return Member(instance, f"{instance}{next(self.names)}", flows, **given)

    def join(self, instance: str, flows: int = 1, **options: Any) -> list[GroupFact]:
        """It tells the group of the queues that it reads."""
        member = self.member(instance, flows, **options)
        read = {queue_id: queue for queue_id, queue in self.queues.items() if member.subscribes(queue.name)}
        return self.do(Join(member, read, {w: start for w, start in self.starts.items() if w[0] in read}))

    def changed(self, *gone: str) -> list[GroupFact]:
        """Somebody tells the group which queues there are, and which were deleted."""
        return self.do(QueuesChanged(self.queues, self.starts, gone))

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
        if not partitions:
            places = [
                partition_id
                for partition_id, own in self.state.partitions.items()
                if own.state is PartitionState.DRAINING
            ]
            return self.do(*[self.drained_at(partition_id) for partition_id in places])
        return self.do(*[self.drained(p) for p in partitions])

    def drained(self, partition: int) -> Drained:
        return self.drained_at(at(partition))

    def drained_at(self, partition_id: PartitionId) -> Drained:
        own = self.state.partitions[partition_id]
        return Drained(partition_id, own.incarnation, own.epoch, self.state.position(partition_id, self.acks) or 0)

    def deadline(self, partition: int) -> list[GroupFact]:
        return self.do(DeadlinePassed(at(partition), self.state.partitions[at(partition)].handoff))

    def floors(self) -> list[GroupFact]:
        return self.do(RaiseFloors("id"))

    def promoted(self, firsts: dict[int, int], ends: dict[int, int]) -> list[GroupFact]:
        """The replica takes over, with these first messages and next offsets of partitions."""
        return self.do(Promoted("id", firsts, ends))

    # ---- asking
    def position(self, partition: int) -> int:
        return self.state.position(at(partition), self.acks) or 0

    def draining(self) -> list[int]:
        return [
            partition_id[1]
            for partition_id, own in sorted(self.state.partitions.items())
            if own.state is PartitionState.DRAINING
        ]

    def owned(self) -> dict[str, list[int]]:
        """What each flow that has any owns; what nobody has under ``-``."""
        flows: dict[str, list[int]] = {}
        for partition_id, own in sorted(self.state.partitions.items()):
            flows.setdefault(own.flow or "-", []).append(partition_id[1])
        return flows

    def holds(self) -> dict[str, dict[str, list[int]]]:
        """The same of several queues, by name."""
        flows: dict[str, dict[str, list[int]]] = {}
        for partition_id, own in sorted(self.state.partitions.items()):
            flows.setdefault(own.flow or "-", {}).setdefault(self.state.queues[partition_id[0]].name, []).append(
                partition_id[1]
            )
        return flows

    def counts(self) -> Sequence[int]:
        return sorted((len(p) for flow, p in self.owned().items() if flow != "-"), reverse=True)

    def times(self, kind: Kind) -> int:
        return sum(1 for fact in self.facts if fact.kind == kind)
