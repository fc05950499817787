"""Waits of a group that end by time: since which fact, and for how long at most."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.group.facts import Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId


@dataclass(frozen=True)
class Limit:
    """A wait of a group that has a longest time.

    Attributes
    ----------
    fact : int
        The number of the fact that began the wait.
    limit_ms : int
        The time after which a query of the group, or ``spark-partq rebalance``, ends the wait.
    """

    fact: int
    limit_ms: int

    def left_s(self, facts: Sequence[Mapping[str, Any]], now: dt.datetime, grace_ms: int = 0) -> float | None:
        """Seconds until the limit and a grace after it are over; 0 if they are. None if `facts` lack the fact."""
        began: dt.datetime | None = next((row["at"] for row in facts if row["seq"] == self.fact), None)
        if began is None:
            return None
        passed_s = (now - began).total_seconds()
        return round(max(0.0, (self.limit_ms + grace_ms) / 1000 - passed_s), 3)


def handoff_limit(state: GroupState, partition_id: PartitionId) -> Limit:
    """The limit of the handoff of a draining partition."""
    return Limit(state.partitions[partition_id].handoff, state.queues[partition_id[0]].max_handoff_time_ms)


def status_limit(state: GroupState) -> Limit | None:
    """The limit of the group's status; None if Ready. A rebalance lasts at most as long as its longest handoff may."""
    if state.status is Status.READY:
        return None
    if state.status is Status.HOLDDOWN:
        return Limit(state.status_seq, state.rebalance_delay_ms)
    return Limit(state.status_seq, max((queue.max_handoff_time_ms for queue in state.queues.values()), default=0))
