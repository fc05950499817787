"""The facts in the control table of a consumer group, and the types that they use."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from spark_partq.core.ids import Flow, PartitionId
from spark_partq.core.patterns import matches


class Status(StrEnum):
    """Status of a group (R7)."""

    READY = "Ready"
    HOLDDOWN = "Holddown"
    REBALANCING = "Rebalancing"


class Protocol(StrEnum):
    """How a group rebalances (K4, K5)."""

    EAGER = "eager"  # all partitions are revoked before any is assigned
    COOPERATIVE = "cooperative"  # only partitions that move are revoked


class PartitionState(StrEnum):
    """State of a partition in its group."""

    UNKNOWN = "Unknown"
    UNASSIGNED = "Unassigned"
    OWNED = "Owned"
    DRAINING = "Draining"


class Kind(StrEnum):
    GROUP_CREATED = "GroupCreated"
    MEMBER_JOINED = "MemberJoined"
    MEMBER_LEFT = "MemberLeft"
    MEMBER_STATEFUL = "MemberStateful"
    QUEUE_ADDED = "QueueAdded"
    QUEUE_REMOVED = "QueueRemoved"
    STATUS_CHANGED = "StatusChanged"
    ASSIGNMENT_COMPUTED = "AssignmentComputed"
    PARTITION_ADDED = "PartitionAdded"
    PARTITION_REMOVED = "PartitionRemoved"
    HANDOFF_STARTED = "HandoffStarted"
    HANDOFF_CANCELLED = "HandoffCancelled"
    RELEASED = "Released"
    UNASSIGNED = "Unassigned"
    GRANTED = "Granted"
    FLOOR = "Floor"
    ISOLATED = "Isolated"
    SKIPPED = "Skipped"
    KEYS_RELEASED = "KeysReleased"
    OFFSETS_RESET = "OffsetsReset"
    POSITION_RESET = "PositionReset"
    GROUP_DELETED = "GroupDeleted"
    FORMAT_RAISED = "FormatRaised"


@dataclass(frozen=True)
class GroupFact:
    """One row of a group's control table. Columns that a kind does not use are None.

    Attributes
    ----------
    kind : str
        What the fact says, such as ``Granted``: one of `Kind`.
    queue : str
        The name of the queue that the fact is about.
    queue_id : str
        The id of the queue that the fact is about; no other queue of the same name has this id.
    partition : int
        The number of the partition that the fact is about.
    instance : str
        The instance (the name of a query) that the fact is about.
    incarnation : str
        The id of the process of the query that the fact is about.
    host : str
        The machine of the process of the query that the fact is about.
    offset : int
        ``Granted``, ``PartitionAdded``, ``PositionReset``, ``Isolated``: the offset from which the group reads the partition.
        ``Released``, ``Unassigned``: the group's position when the ownership ended. ``Floor``: the group never reads a message below this offset
        again. ``Skipped``: the offset of the first message that is left out.
    delivered : int
        Messages from `offset` up to this offset (exclusive end) may have been delivered before. ``Skipped``: the end of the messages that are
        left out.
    epoch_before : int
        The epoch of the partition's ownership before the fact.
    epoch : int
        The epoch of the partition's ownership after the fact.
    lineage_epoch : int
        The lineage epoch of the partition's ownership after the fact.
    flow : str
        ``Granted``: the flow that owns the partition. ``Released``, ``Unassigned``, ``PositionReset``: its former owner. ``HandoffStarted``: the
        flow that gives it up.
    to_flow : str
        ``HandoffStarted``: the flow that gets the partition; None if the group computes it when all partitions are revoked.
    forced : bool
        ``Granted``, ``Unassigned``: the former owner did not acknowledge in time all messages that it was given. ``MemberLeft``: the group
        unbound the process, which is alive and shall bind again.
    status : str
        ``StatusChanged``: the new status of the group.
    flows : int
        ``MemberJoined``: how many flows the member has. ``StatusChanged`` to Holddown: how many flows the group had before.
    body : str
        JSON. ``GroupCreated``, ``FormatRaised``: the format. ``MemberJoined``: the member's options. ``QueueAdded``: the queue's settings.
        ``AssignmentComputed``: the assignor, the protocol and, if the assignor uses it, the load of each partition. ``Skipped``: why the
        messages are left out (``dead``, ``held`` or ``expired``), the dead-message queue, and the hashes of the keys that are held from then on.
    cause : str
        The event that led to the fact, for people.
    by : str
        Which process decided the fact: the instance of a query, ``user@host`` of a command, or what a command did, such as ``scaling``.
    """

    kind: str
    queue: str | None = None
    queue_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    delivered: int | None = None
    epoch_before: int | None = None
    epoch: int | None = None
    lineage_epoch: int | None = None
    flow: str | None = None
    to_flow: str | None = None
    forced: bool | None = None
    instance: str | None = None
    incarnation: str | None = None
    host: str | None = None
    status: str | None = None
    flows: int | None = None
    body: str | None = None
    cause: str = ""
    by: str = ""

    @property
    def partition_id(self) -> PartitionId:
        """
        Raises
        ------
        ValueError
            If the fact is about no partition.
        """
        if self.queue_id is None or self.partition is None:
            raise ValueError(f"fact {self.kind} names no partition")
        return self.queue_id, self.partition


@dataclass(frozen=True)
class Member:
    """A query in the group, with its flows.

    Attributes
    ----------
    queues : tuple of str
        Names of the queues that the member reads.
    pattern : str or None
        The member also reads every queue whose whole name matches this (`core.patterns`).
    assignors : tuple of str
        The assignors that the member supports, best first.
    cooperative : bool
        Whether all of these assignors use the cooperative protocol.
    static : bool
        Whether the user chose the member's name, so that it survives restarts (K6).
    manual : bool
        Whether the member's application acknowledges by hand (H5).
    weight : float
        The share of each of its flows, relative to other flows, for assignors that use it.
    anew : bool
        When the member joined, its query began with a fresh checkpoint although the group had read messages before. So the query's micro-batches
        are numbered from 0 again.
    stateful : bool
        The member's query keeps state by key in Spark (aggregates, stateful operators). The state stays with the query when a partition moves to
        another query.
    application, executors : str, tuple of str
        The Spark application, and the executors that it had when the member joined (``id@host``), for people. In each micro-batch Spark chooses
        again where a flow's tasks run.
    order : int
        The number of the fact by which the member joined: standbys become active in this order.
    more : dict
        Fields of a newer program, which are kept.
    """

    instance: str
    incarnation: str
    flows: int
    session_timeout_ms: int
    assignors: tuple[str, ...]
    queues: tuple[str, ...]
    pattern: str | None = None
    cooperative: bool = True
    static: bool = False
    manual: bool = False
    weight: float = 1.0
    application: str = ""
    executors: tuple[str, ...] = ()
    anew: bool = False
    stateful: bool = False
    host: str = ""
    order: int = 0
    more: dict[str, Any] = field(default_factory=dict, hash=False)

    @cached_property
    def flow_names(self) -> list[Flow]:
        return [f"{self.instance}/{k}" for k in range(self.flows)]

    def subscribes(self, queue: str) -> bool:
        return queue in self.queues or (self.pattern is not None and matches(self.pattern, queue))

    def body(self) -> dict[str, Any]:
        """The fields of ``MemberJoined`` that have no columns."""
        return {name: value for name, value in asdict(self).items() if name not in _MEMBER_COLUMNS}


# Fields that are not in the body: ``MemberJoined`` has columns for them, they follow from its number or from other facts, or another program
# wrote them.
_MEMBER_COLUMNS = ("instance", "incarnation", "flows", "host", "order", "stateful", "more")


@dataclass(frozen=True)
class QueueInGroup:
    """What a group knows of a queue. Times in milliseconds.

    Attributes
    ----------
    first, partitions : int
        The queue's partitions have the numbers ``[first, partitions)``. An exclusive queue has -1 and 0: only its parent.
    revision : int
        Grows with each change of the queue: an older revision never replaces a newer one.
    durable : bool
        What the group writes is forced to the disk, as the queue's messages are.
    more : dict
        Fields of a newer program, which are kept.
    """

    name: str
    partitions: int
    rebalance_delay_ms: int
    max_handoff_time_ms: int
    first: int = 0
    revision: int = 0
    durable: bool = False
    more: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def partition_numbers(self) -> range:
        return range(self.first, self.partitions)

    @property
    def exclusive(self) -> bool:
        return self.partitions == 0

    def replaces(self, known: QueueInGroup) -> bool:
        """Whether a group that has `known` must learn of this: it is newer, and differs in more than the revision."""
        return known.revision < self.revision and replace(known, revision=self.revision) != self


@dataclass(frozen=True)
class Ownership:
    """A partition's owner, and how the partition came to this owner.

    Attributes
    ----------
    flow : str or None
        The owner; None while the partition is unassigned.
    last_flow : str or None
        The owner, or the last owner. If the last owner comes back in time, it gets this partition again.
    start, delivered : int
        The offset at which the ownership began, and the offset up to which messages from there may have been delivered before.
    to_flow, handoff : str, int
        While the partition drains: the receiver (None if it is not known yet), and the number of the fact that began the handoff.
    """

    flow: Flow | None
    last_flow: Flow | None
    incarnation: str
    epoch: int
    lineage_epoch: int
    start: int
    delivered: int
    to_flow: Flow | None = None
    handoff: int = -1

    @property
    def state(self) -> PartitionState:
        if self.flow is None:
            return PartitionState.UNASSIGNED
        return PartitionState.OWNED if self.handoff < 0 else PartitionState.DRAINING

    @property
    def target(self) -> Flow | None:
        """The flow that owns the partition once its handoff has ended; None if it is not known yet."""
        return self.flow if self.handoff < 0 else self.to_flow

    def continues(self, epoch: int) -> bool:
        """Whether what was planned under `epoch` belongs to the lineage of this ownership."""
        return self.lineage_epoch <= epoch <= self.epoch
