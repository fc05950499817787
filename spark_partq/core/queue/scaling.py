"""A change of a queue's partition count that is under way, and what its removed partitions still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_partq.core.queue.facts import Mode


@dataclass(frozen=True)
class Scaling:
    """A change of the partition count that is under way.

    Attributes
    ----------
    partition_count : int
        The count that the queue is to have.
    drained : bool
        The partitions may be sealed. With mode ``drain`` not at once; with the other modes from the beginning.
    opened : bool
        The new map is in force, and what is left is to enable ingress again (mode ``drain``).
    ingress : bool
        Whether ingress was enabled before.
    confirmed : int or None
        With mode ``delete``: how many messages may be lost at most. None is no limit.
    """

    partition_count: int
    mode: Mode
    drained: bool
    opened: bool = False
    ingress: bool = True
    confirmed: int | None = None

    @property
    def enables_ingress(self) -> bool:
        """Whether ingress is disabled only until the change has ended, or is taken back."""
        return self.mode == "drain" and self.ingress


@dataclass(frozen=True)
class Remainder:
    """What partitions that are to be removed still hold.

    Attributes
    ----------
    ends : dict
        The next offset of each partition.
    unread : int
        Messages in them that not every group has acknowledged.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    unread: int = 0
