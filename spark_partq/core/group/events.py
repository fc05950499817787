"""What may happen to a consumer group: the events on which `core.group.decide` decides.

Each event may come late or more than once, from any process that notices it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_partq.core.group.facts import Member, QueueInGroup
from spark_partq.core.ids import PartitionId


@dataclass(frozen=True)
class Join:
    """A process binds its flows.

    Attributes
    ----------
    queues : dict
        The queues to add to the group, by id.
    starts : dict
        The first offset of each partition that the group never had.
    """

    member: Member
    queues: dict[str, QueueInGroup]
    starts: dict[PartitionId, int]


@dataclass(frozen=True)
class Leave:
    """A process unbinds its flows, or its session has `expired`. The group treats both in the same way (R4)."""

    instance: str
    incarnation: str
    expired: bool = False


@dataclass(frozen=True)
class Stateful:
    """A process has found that its query keeps state by key in Spark."""

    instance: str
    incarnation: str


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
    """The handoff that fact `handoff` began has reached its `max_handoff_time_ms`."""

    partition_id: PartitionId
    handoff: int


@dataclass(frozen=True)
class QueuesChanged:
    """A queue that the group reads was created or deleted, or has another number of partitions (K3).

    Attributes
    ----------
    queues, starts : dict
        As in ``Join``: the queues and partitions that exist now and differ from what the group knows.
    gone : tuple of str
        Ids of queues that were deleted.
    """

    queues: dict[str, QueueInGroup] = field(default_factory=dict)
    starts: dict[PartitionId, int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class AssignmentDue:
    """An assignment is due, and the process that had to compute it could not."""


@dataclass(frozen=True)
class LoadsMeasured:
    """The loads of the partitions were measured again: an assignor that uses them may find that a move pays."""


@dataclass(frozen=True)
class RaiseFloors:
    """The group's positions in a queue become floors, as maintenance is about to remove messages (Q8), or other partitions wait (S5).

    Attributes
    ----------
    partitions : tuple of int or None
        Only the positions of these partitions; None means all.
    ends : dict
        The next offsets of partitions, read after the acknowledgements. A position beyond its partition's end does not count: no query
        can have finished messages that do not exist, and such an acknowledgement must not remove messages that come later.
    """

    queue_id: str
    partitions: tuple[int, ...] | None = None
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Isolate:
    """The owner of a partition gives up the messages that it has planned and not finished; `cause` says why."""

    partition_id: PartitionId
    incarnation: str
    cause: str


@dataclass(frozen=True)
class EndLineage:
    """A process leaves out of a replay what another instance planned under `epoch`: no process may take that for delivered."""

    partition_id: PartitionId
    epoch: int
    instance: str
    incarnation: str


@dataclass(frozen=True)
class Skip:
    """The owner of a partition leaves out messages ``[start, end)``. `why`: they are ``dead``, ``held`` or ``expired``.

    Attributes
    ----------
    dead_letter_queue : str or None
        The queue where the messages are now.
    holds : frozenset of int
        The hashes of their keys, if the queue holds keys back.
    """

    partition_id: PartitionId
    incarnation: str
    start: int
    end: int
    why: str
    dead_letter_queue: str | None
    holds: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ReleaseKeys:
    """Dead messages of a queue are about to be put back: no key of the queue is held any more.

    Attributes
    ----------
    ends : dict
        The next offset of each partition, below which the group must have nothing left to read.
    """

    queue_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True)
class Promoted:
    """The queue's replica takes over. It lacks the last acknowledgements and deliveries, and messages that were removed already.

    Attributes
    ----------
    firsts, ends : dict
        For each partition of the queue, its first message and its next offset.
    """

    queue_id: str
    firsts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True)
class Reset:
    """A person sets the positions of a group in which no query consumes.

    Attributes
    ----------
    positions : dict
        For each named partition, the offset from which the group goes on.
    number : int
        The number of this reset of the group, as it was announced to the queues: 1 is the first. The reset applies only if it is the next
        one.
    to : str
        What was asked for, in words for people.
    overtaking : collection
        Other partitions whose messages must wait for messages that come again, although they were handed out before.
    """

    positions: Mapping[PartitionId, int]
    number: int
    to: str
    overtaking: Collection[PartitionId] = ()


@dataclass(frozen=True)
class VoidResets:
    """Resets up to this number that were announced and not made are void, as a process begins to measure what the group has settled."""

    number: int


@dataclass(frozen=True)
class Delete:
    """The group shall be forgotten, with its positions."""


Event = (
    Join
    | Leave
    | Stateful
    | HolddownOver
    | Drained
    | DeadlinePassed
    | QueuesChanged
    | AssignmentDue
    | LoadsMeasured
    | RaiseFloors
    | Isolate
    | EndLineage
    | Skip
    | ReleaseKeys
    | Promoted
    | Reset
    | VoidResets
    | Delete
)
