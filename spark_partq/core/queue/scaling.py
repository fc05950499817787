"""A change of a queue's partition count that is under way."""

from __future__ import annotations

from dataclasses import dataclass

from spark_partq.core.queue.facts import Mode


@dataclass(frozen=True)
class Scaling:
    """A change of the partition count that is under way.

    Attributes
    ----------
    partition_count : int
        The count that the queue is to have.
    drained : bool
        The partitions may be sealed: at once, but for mode ``drain``.
    opened : bool
        The new map is in force, and what is left is to enable ingress again (mode ``drain``).
    ingress : bool
        Whether ingress was enabled before.
    confirmed : int or None
        With mode ``delete``: more messages may not be lost. None is no limit.
    """

    partition_count: int
    mode: Mode
    drained: bool
    opened: bool = False
    ingress: bool = True
    confirmed: int | None = None
