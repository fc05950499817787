"""The names by which everything speaks of partitions and of who consumes them."""

from __future__ import annotations

PartitionId = tuple[str, int]  # (queue id, partition number)


Flow = str


def instance_of(flow: Flow) -> str:
    """``billing-a`` of ``billing-a/1``."""
    return flow.rpartition("/")[0]
