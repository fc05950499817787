"""How far the demo is, as its queue and its group say."""

from __future__ import annotations

from dataclasses import dataclass

import spark_partq as partq
from spark_partq.core.group.facts import Status
from spark_partq.core.ids import instance_of
from spark_partq.demo.places import GROUP, QUEUE, Places


@dataclass(frozen=True)
class View:
    """How far everything is.

    Attributes
    ----------
    followed : int
        Flights that the group has acknowledged.
    owners : frozenset of str
        Instances that own partitions.
    settled : bool
        Whether every partition has an owner and nothing is about to change.
    """

    produced: int
    followed: int
    owners: frozenset[str]
    settled: bool
    status: str
    partitions: tuple[partq.GroupPartition, ...]

    @classmethod
    def of(cls, places: Places) -> View:
        try:
            group = partq.describe_group(places.store, GROUP)
        except partq.GroupNotFoundError:
            queue = partq.describe_queue(places.store, QUEUE)
            return cls(sum(p.next_offset for p in queue.partitions), 0, frozenset(), False, "", ())
        produced = sum(p.end or 0 for p in group.partitions)
        owners = frozenset(instance_of(p.flow) for p in group.partitions if p.flow is not None)
        settled = group.status == Status.READY and not group.unassigned
        return cls(produced, produced - group.lag, owners, settled, group.status, group.partitions)

    def shared_by(self, number: int) -> bool:
        """Whether so many applications share the partitions, and nothing is about to change."""
        return self.settled and len(self.owners) == number
