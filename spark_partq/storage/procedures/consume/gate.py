"""The barrier of a resize for one member: how far the member may deliver, and a warning when it no longer waits (S5, H5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_partq.core.delivery.barrier import Waits, counted, deliverable
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import Barrier
from spark_partq.storage.procedures.consume.membership import Membership

_log = logging.getLogger("spark_partq")

Barriers = Mapping[str, Barrier]  # by queue id; a barrier opens for settled messages
Offsets = dict[PartitionId, int]


class Gate:
    """Used by the planner, under the membership's lock.

    Parameters
    ----------
    most_ms : int
        How long messages wait for members that acknowledge by hand.
    """

    def __init__(self, membership: Membership, most_ms: int) -> None:
        self._membership, self._most_ms = membership, most_ms
        self._waits = Waits()
        self._warned: set[tuple[PartitionId, int, int]] = set()  # partition, epoch, cut

    def limits(self, barriers: Barriers, starts: Offsets, ends: Offsets) -> Offsets:
        """How far the partitions of queues with a barrier may be delivered, as of the last refresh, while no micro-batch runs."""
        membership, group = self._membership, self._membership.group
        given = counted(group.state, membership.given())
        now_ms = int(membership.runtime.monotonic_s() * 1000)
        overdue = self._waits.overdue(group.state, group.acks, membership.incarnation, barriers, now_ms, self._most_ms)
        limits = {}
        for (queue_id, number), end in ends.items():
            if queue_id not in barriers:
                continue
            found = deliverable(
                barriers[queue_id], _of(given, queue_id), _of(overdue, queue_id), number, starts[queue_id, number], end
            )
            limits[queue_id, number] = found.end
            for other, cut in found.let_go.items():
                self._warn((queue_id, number), (queue_id, other), cut)
        return limits

    def _warn(self, partition_id: PartitionId, other: PartitionId, cut: int) -> None:
        """Log once that two processes may handle messages of one key at the same time."""
        group, own = self._membership.group, self._membership.group.state.partitions[other]
        if (other, own.epoch, cut) in self._warned:
            return
        self._warned.add((other, own.epoch, cut))
        name = group.state.queues[other[0]].name
        _log.warning(
            "group %s delivers messages of partition %d of queue %s that were written after a resize, though flow %s has not "
            "acknowledged older ones. The flow was given all of partition %d below the cut at offset %d, and has acknowledged up to "
            "%d for %d ms (maxBarrierWaitMs). Messages of one key may be handled out of order. Find out why the flow's application does not "
            "acknowledge, or give it more time",
            group.name, partition_id[1], name, own.flow, other[1], cut, group.position(other) or 0, self._most_ms,
        )  # fmt: skip


def _of(ends: Mapping[PartitionId, int], queue_id: str) -> dict[int, int]:
    return {number: end for (found, number), end in ends.items() if found == queue_id}
