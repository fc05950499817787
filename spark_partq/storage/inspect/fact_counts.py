"""Counters of a group's facts, from the fact on where counting began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from spark_partq.core.group.facts import Kind, PartitionState, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.core.stored import body_of
from spark_partq.storage.rows import Row


class HandoffEnd(StrEnum):
    """How a handoff ended: the owner had acknowledged all messages in time, or had not, or the handoff was cancelled."""

    RELEASED = "released"
    FORCED = "forced"
    CANCELLED = "cancelled"


@dataclass
class FactCounts:
    """Counters of one group; they only grow.

    Attributes
    ----------
    seq : int
        The number of the next fact to count.
    rebalances : int
        How often a rebalance began.
    handoffs : Counter
        Ended handoffs, by `HandoffEnd`.
    redelivered : int
        Messages that were delivered and not acknowledged when an owner lost the partition: the group delivers them again. A message
        counts each time that this happens to it.
    skipped : Counter
        Messages that were left out because they were ``dead``, ``held`` or ``expired``.
    """

    seq: int
    rebalances: int = 0
    handoffs: Counter[str] = field(default_factory=Counter)
    redelivered: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    _owned: set[PartitionId] = field(default_factory=set)
    _draining: set[PartitionId] = field(default_factory=set)

    @classmethod
    def since(cls, state: GroupState) -> FactCounts:
        """Counters that begin after this state."""
        counts = cls(state.seq)
        counts._owned = {id_ for id_, own in state.partitions.items() if own.flow is not None}
        counts._draining = {id_ for id_, own in state.partitions.items() if own.state is PartitionState.DRAINING}
        return counts

    def add(self, facts: Iterable[Row]) -> None:
        """Count facts, in their order. Facts that were counted already do not count again."""
        for row in facts:
            if row["seq"] >= self.seq:
                self.seq = row["seq"] + 1
                self._add(row)

    def _add(self, row: Row) -> None:
        kind, partition_id = row["kind"], (row["queue_id"], row["partition"])
        if kind == Kind.STATUS_CHANGED:
            self.rebalances += row["status"] == Status.REBALANCING
        elif kind == Kind.GROUP_DELETED:
            self._owned, self._draining = set(), set()
        elif kind == Kind.SKIPPED:
            self.skipped[body_of(row["body"])["why"]] += row["delivered"] - row["offset"]
        elif kind == Kind.HANDOFF_STARTED:
            self._draining.add(partition_id)
        elif kind == Kind.HANDOFF_CANCELLED:
            self._end_handoff(partition_id, HandoffEnd.CANCELLED)
        elif kind == Kind.ISOLATED:
            self._deliver_again(row)
        elif kind in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED, Kind.PARTITION_REMOVED):
            self._end_ownership(kind, partition_id, row)

    def _end_ownership(self, kind: str, partition_id: PartitionId, row: Row) -> None:
        taken = kind == Kind.GRANTED or (kind == Kind.UNASSIGNED and bool(row["forced"]))
        ended = HandoffEnd.RELEASED if kind == Kind.RELEASED else HandoffEnd.FORCED if taken else HandoffEnd.CANCELLED
        self._end_handoff(partition_id, ended)
        if partition_id in self._owned and kind != Kind.PARTITION_REMOVED:
            self._deliver_again(row)
        if kind == Kind.GRANTED:
            self._owned.add(partition_id)
        else:
            self._owned.discard(partition_id)

    def _end_handoff(self, partition_id: PartitionId, ended: HandoffEnd) -> None:
        if partition_id in self._draining:
            self._draining.remove(partition_id)
            self.handoffs[ended] += 1

    def _deliver_again(self, row: Row) -> None:
        self.redelivered += max(0, (row["delivered"] or 0) - (row["offset"] or 0))
