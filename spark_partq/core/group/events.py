"""What may happen to a consumer group: the events on which `core.group.decide` decides.

Each may come late or more than once, from whoever saw it first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_partq.core.group.facts import Member, QueueInGroup
from spark_partq.core.ids import PartitionId


@dataclass(frozen=True)
class Join:
    """A process binds its flows.

    Attributes
    ----------
    queues : dict
        Queue id to what the group shall know of it.
    starts : dict
        Where each partition starts that the group never had.
    """

    member: Member
    queues: dict[str, QueueInGroup]
    starts: dict[PartitionId, int]


@dataclass(frozen=True)
class Leave:
    """A process unbinds its flows (`expired`: it was not heard of for its session timeout). To the group it is the same (R4)."""

    instance: str
    incarnation: str
    expired: bool = False


@dataclass(frozen=True)
class HolddownOver:
    """The rebalance delay has passed since the holddown that fact `status_seq` began."""

    status_seq: int


@dataclass(frozen=True)
class Drained:
    """An owner has acknowledged everything below `end` of a draining partition, and will plan no more of it."""

    partition_id: PartitionId
    incarnation: str
    epoch: int
    end: int


@dataclass(frozen=True)
class DeadlinePassed:
    """The handoff that fact `handoff` began has taken its `max_handoff_time_ms`."""

    partition_id: PartitionId
    handoff: int


@dataclass(frozen=True)
class QueuesChanged:
    """A queue that the group reads was created, deleted, or has another number of partitions (K3).

    Attributes
    ----------
    queues, starts : dict
        As of ``Join``, of what is there now and not as the group knows it.
    gone : tuple of str
        Ids of queues that were deleted.
    """

    queues: dict[str, QueueInGroup] = field(default_factory=dict)
    starts: dict[PartitionId, int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class AssignmentDue:
    """An assignment is still to be computed: whoever should have could not."""


@dataclass(frozen=True)
class LoadsMeasured:
    """The load of each partition was measured anew: an assignor that heeds it may find that a move pays."""


@dataclass(frozen=True)
class RaiseFloors:
    """What the group has acknowledged of a queue is to count for good: maintenance is about to remove it (Q8), or others wait (S5).

    Attributes
    ----------
    partitions : tuple of int or None
        Only of these; None is all.
    """

    queue_id: str
    partitions: tuple[int, ...] | None = None


Event = (
    Join | Leave | HolddownOver | Drained | DeadlinePassed | QueuesChanged | AssignmentDue | LoadsMeasured | RaiseFloors
)
