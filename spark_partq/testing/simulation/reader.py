"""What a group was given of a queue, and what it must not be given again, or any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_partq.core.queue.partition_map import PARENT, generation_at
from spark_partq.core.queue.state import QueueState

Epoch = tuple[str, int, int]  # a store, and of a partition there an epoch


@dataclass
class Reader:
    """What a group was given of a queue.

    Attributes
    ----------
    given_under, released : dict
        The end of what was given under each epoch, and where the partition was released.
    let_go : dict
        Of each partition what was not waited for any longer: messages below may come after later ones of their keys.
    """

    ends: dict[int, int] = field(default_factory=dict)  # of each partition, what was ever delivered
    last: dict[tuple[str, str], int] = field(default_factory=dict)  # producer and key: the newest delivered
    given: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)  # what was removed, or stuck, before the group began
    given_under: dict[Epoch, int] = field(default_factory=dict)
    released: dict[Epoch, int] = field(default_factory=dict)
    let_go: dict[int, int] = field(default_factory=dict)

    def take(self, epoch: Epoch, offset: int) -> str:
        """Take a message that was planned under this epoch; what is wrong with that (H1), or nothing."""
        given, released = self.given_under.get(epoch, 0), self.released.get(epoch)
        self.given_under[epoch] = offset + 1
        if offset < given:
            return f"AGAIN: it got {epoch[1]}@{offset} after {given - 1}, all under epoch {epoch[2]}"
        if released is not None and offset >= released:
            return f"RELEASED: it got {epoch[1]}@{offset} under epoch {epoch[2]}, which was released before"
        return ""


def was_stuck(queue: QueueState, number: int, offset: int) -> bool:
    """Whether a message lay in the parent while the queue was partitioned: what is stuck comes later than what follows it (S6)."""
    if number != PARENT:
        return False
    placed = generation_at(queue.generations, number, offset)
    return any(generation.partition_count for generation in queue.generations[placed + 1 :])
