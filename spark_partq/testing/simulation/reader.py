"""What a group was given of a queue, and what it must not be given yet, again, or any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

from spark_partq.core.group.state import GroupState
from spark_partq.core.queue.partition_map import generation_at
from spark_partq.core.queue.state import QueueState

Epoch = tuple[str, int, int]  # a store, and of a partition there an epoch


@dataclass
class Reader:
    """What a group was given of a queue.

    Attributes
    ----------
    given_under, released : dict
        The end of what was given under each epoch, and where the partition was released.
    """

    ends: dict[int, int] = field(default_factory=dict)  # of each partition, what was ever delivered
    last: dict[tuple[str, str], int] = field(default_factory=dict)  # producer and key: the newest delivered
    given: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)  # what was removed, or stuck, before the group began
    given_under: dict[Epoch, int] = field(default_factory=dict)
    released: dict[Epoch, int] = field(default_factory=dict)

    def take(self, epoch: Epoch, offset: int) -> str:
        """Take a message that was planned under this epoch; what is wrong with that (H1), or nothing."""
        given, released = self.given_under.get(epoch, 0), self.released.get(epoch)
        self.given_under[epoch] = offset + 1
        if offset < given:
            return f"AGAIN: it got {epoch[1]}@{offset} after {given - 1}, all under epoch {epoch[2]}"
        if released is not None and offset >= released:
            return f"RELEASED: it got {epoch[1]}@{offset} under epoch {epoch[2]}, which was released before"
        return ""


def overtaken(queue: QueueState, group: GroupState, number: int, offset: int) -> str:
    """What an earlier map placed where a message's key could have been, and the group has not settled (S5); or nothing."""
    placed = generation_at(queue.generations, number, offset)
    count = queue.generations[placed].partition_count
    for g, earlier in enumerate(queue.generations[:placed]):
        for other in range(earlier.partition_count):
            settled = max(group.committed_floor((queue.queue_id, other)), queue.removed_ends.get(other, 0))
            near = count == 0 or (other - number) % gcd(earlier.partition_count, count) == 0
            if near and settled < earlier.cuts[other]:
                return (
                    f"BARRIER: it got {number}@{offset} of map {placed}, and {other} is settled up to {settled} of "
                    f"{earlier.cuts[other]} of map {g}"
                )
    return ""
