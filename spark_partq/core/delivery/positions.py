"""How far a table has a group's messages: a position for each partition, committed together with the rows.

A consumer that crashes, is too slow, or hands a partition over gets messages again, or another consumer does, in other micro-batches. So neither
Spark's batch ids nor the times of anything tell what a table has. Its positions do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_partq.core.ids import PartitionId


@dataclass(frozen=True)
class Position:
    """The messages of a partition that a micro-batch holds: those with offsets ``[start, end)``.

    Attributes
    ----------
    epoch : int
        Of the ownership under which they were planned, a fencing token: a later owner has a higher one (W2).
    queue_id : str
        Of the queue, for good: a queue that is deleted and made anew has another one.
    """

    start: int
    end: int
    epoch: int
    queue_id: str


def position_app(group: str, name: str | None, partition_id: PartitionId) -> str:
    """The application transaction of a table that holds a group's position in a partition.

    Parameters
    ----------
    name : str, optional
        Tells several sinks of one group apart that write into one table.
    """
    queue_id, number = partition_id
    return f"partq:{group}/{queue_id}/{number}" if name is None else f"partq:{group}/{name}/{queue_id}/{number}"


def missing(batch: Mapping[PartitionId, Position], recorded: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """From which offset on a table lacks messages of the micro-batch; partitions of which it has them all are left out."""
    return {
        partition_id: max(position.start, recorded.get(partition_id, 0))
        for partition_id, position in batch.items()
        if max(position.start, recorded.get(partition_id, 0)) < position.end
    }


def gaps(batch: Mapping[PartitionId, Position], recorded: Mapping[PartitionId, int]) -> dict[PartitionId, range]:
    """Offsets that lie between what a table has and where the micro-batch begins."""
    return {
        partition_id: range(recorded[partition_id], position.start)
        for partition_id, position in batch.items()
        if partition_id in recorded and recorded[partition_id] < position.start < position.end
    }
