"""The names of partitions and of their consumers, the same everywhere."""

from __future__ import annotations

PartitionId = tuple[str, int]  # (queue id, partition number): of one queue for good, also if another one gets its name
QueuePartition = tuple[str, int]  # (queue name, partition number), as users write it


Flow = str


def instance_of(flow: Flow) -> str:
    """``billing-a`` of ``billing-a/1``."""
    return flow.rpartition("/")[0]
