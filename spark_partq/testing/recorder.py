"""Watches a simulated group from outside: every commit, acknowledgement and delivery, against the promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group import invariants
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

if TYPE_CHECKING:
    from spark_partq.testing.process import Process
    from spark_partq.testing.simulator import World


class SimulationError(AssertionError):
    """A promise was broken in a simulated run."""


@dataclass(frozen=True)
class Grant:
    """How an ownership began."""

    offset: int
    delivered: int
    base: int
    incarnation: str
    looked_at: int  # the decider's look at the acknowledgements
    at: int  # its commit


@dataclass(frozen=True)
class Delivery:
    """Messages of a partition, those below `mark` marked redelivered."""

    start: int
    end: int
    epoch: int
    mark: int
    at: int


Line = tuple[PartitionId, int]  # partition and lineage epoch: one unbroken ownership


class Recorder:
    """Knows what was granted, delivered and finished; offsets as bits of an integer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0
        self.grants: dict[tuple[PartitionId, int], Grant] = {}
        self.starts: dict[Line, int] = {}
        self.finished: dict[Line, int] = {}  # offsets of batches that ran to their end
        self.deliveries: dict[PartitionId, list[Delivery]] = {}
        self.reached: dict[tuple[PartitionId, int], int] = {}  # partition, epoch -> end of the last delivery
        self.high: dict[tuple[PartitionId, int, str], int] = {}  # line and incarnation -> highest end delivered
        self.released: dict[tuple[PartitionId, int, str], int] = {}  # the same -> where it was handed over cleanly
        self.kept: dict[PartitionId, int] = {}  # retention has removed what lies below

    # ---- control
    def committed(self, before: GroupState, facts: Sequence[GroupFact], after: GroupState) -> None:
        actor = self.world.actor
        assert actor is not None
        for fact in facts:
            self.world.log(actor, fact)
        invariants.check(before, after, facts, actor.acks.acks)
        state_before = before.partitions
        for fact in facts:
            if fact.kind == Kind.GRANTED:
                assert fact.offset is not None and fact.delivered is not None
                assert fact.epoch is not None and fact.lineage_epoch is not None
                self.grants[fact.partition_id, fact.epoch] = Grant(
                    fact.offset,
                    fact.delivered,
                    fact.lineage_epoch,
                    fact.incarnation or "",
                    actor.looked_at,
                    self.world.time,
                )
                self.starts.setdefault((fact.partition_id, fact.lineage_epoch), fact.offset)
                self.released.pop((fact.partition_id, fact.lineage_epoch, fact.incarnation or ""), None)
            elif fact.kind == Kind.RELEASED:
                self._check_release(actor, fact, state_before[fact.partition_id].lineage_epoch)

    def _check_release(self, actor: Process, fact: GroupFact, base: int) -> None:
        """H1: whoever releases a partition has delivered nothing of it that it has not acknowledged."""
        assert fact.offset is not None and fact.epoch is not None
        where, x = fact.partition_id, fact.offset
        line = (where, base, fact.incarnation or "")
        self._must(
            self.high.get(line, 0) <= x, f"{where} was released at {x}, but delivered up to {self.high.get(line)}"
        )
        self._check_finished(where, fact.epoch, x)
        r = actor.checkpoint.ranges.get(where)
        if r is not None and not actor.manual and base <= r.epoch <= fact.epoch:
            self._must(r.end <= x, f"{where} was released at {x}, but planned up to {r.end}")
        self.released[line] = x

    # ---- acknowledgements
    def acknowledged(self, process: Process, rows: Sequence[AckRow]) -> None:
        for row in rows:
            if row.partition_id is not None and row.offset:
                self._check_finished(row.partition_id, row.epoch, row.offset)

    def _check_finished(self, where: PartitionId, epoch: int, offset: int) -> None:
        """Nothing is lost: all between the start of the ownership and the offset was delivered in it, to the end."""
        base = self.grants[where, epoch].base
        start = self.starts[where, base]
        if offset > start:
            wanted = _bits(start, offset) & ~self.finished.get((where, base), 0)
            self._must(
                not wanted,
                f"{where}@{epoch} is acknowledged up to {offset}, but not all of it was finished: {wanted:b}",
            )

    # ---- deliveries
    def plan(self, process: Process, ranges: dict[PartitionId, Range]) -> None:
        """H1: of a partition that drains, nothing new is planned."""
        for where in ranges:
            own = process.control.state.partitions[where]
            self._must(own.state is PartitionState.OWNED, f"H1: {where} is planned while it drains")

    def finish(self, process: Process, where: PartitionId, r: Range) -> None:
        line = (where, self.grants[where, r.epoch].base)
        self.finished[line] = self.finished.get(line, 0) | _bits(r.start, r.end)

    def deliver(self, process: Process, incarnation: str, where: PartitionId, r: Range, mark: int) -> None:
        """Messages of a partition, those below `mark` marked redelivered."""
        world = self.world
        world.log(process, f"delivers {where[0]}.{where[1]}[{r.start},{r.end})@{r.epoch} marked below {mark}")
        self.count += 1
        grant = self.grants[where, r.epoch]
        self._must(
            grant.incarnation == incarnation,
            f"W2: {incarnation} delivers {where} under an epoch of {grant.incarnation}",
        )
        own = world.control.state.partitions.get(where)
        if own is not None and own.epoch == r.epoch:
            self._must(r.start >= self.kept.get(where, 0), f"Q8: {where} from {r.start} is removed already")
        reached = self.reached.get((where, r.epoch), 0)
        self._must(r.start >= reached, f"{where}@{r.epoch}: {r.start} comes after {reached}")
        self.reached[where, r.epoch] = r.end
        line = (where, grant.base, incarnation)
        if line in self.released:
            self._must(
                r.end <= self.released[line],
                f"H1: {where} is delivered up to {r.end} after a release at {self.released[line]}",
            )
        self.high[line] = max(r.end, self.high.get(line, 0))
        earlier = self.deliveries.setdefault(where, [])
        unmarked = max(r.start, mark)
        if unmarked < r.end:
            for d in earlier:
                if d.end > unmarked and d.start < r.end and d.epoch < r.epoch and d.at < grant.looked_at:
                    self._must(
                        False,
                        f"H4: {where} from {unmarked} to {r.end} was delivered before under epoch {d.epoch}, yet is not marked",
                    )
        earlier.append(Delivery(r.start, r.end, r.epoch, mark, world.time))

    def _must(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise SimulationError(otherwise)


def _bits(start: int, end: int) -> int:
    return (1 << end) - (1 << start)
