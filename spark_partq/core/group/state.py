"""State of a consumer group: what follows from the facts of its control table, one after the other.

A **flow** consumes; ``<instance>/0`` to ``<instance>/k-1`` are the flows of one query. An *instance* is a name that survives
restarts, an *incarnation* is one process. An **offset** is always that of the next message.

An ownership belongs to a flow in one incarnation, under an **epoch** that only grows. When the partition comes back to the instance that had it
last, the epoch grows, but the *lineage*, which began in its *lineage epoch*, goes on: the instance still delivers and acknowledges what it
planned since then. Any other owner ends the lineage. A restart after which the instance does not get the partition back ends it, too: the replay
leaves out what the instance had planned.

The **position** of a partition is where its next owner starts: the highest of the ownership's start, the floor, and the offset that its
incarnation has acknowledged under its epoch. So acknowledgements of an older process change nothing (H4, W2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from spark_partq.core import format, stored
from spark_partq.core.errors import CorruptTableError
from spark_partq.core.format import Format
from spark_partq.core.group import held_keys, reading
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.advice import ANOTHER_GROUP
from spark_partq.core.group.facts import (
    GroupFact,
    Kind,
    Member,
    Ownership,
    PartitionState,
    Protocol,
    QueueInGroup,
    Status,
)
from spark_partq.core.group.transitions import STATUS_TRANSITIONS, TRANSITIONS
from spark_partq.core.ids import Flow, PartitionId, instance_of

V = TypeVar("V")
View = dict[Flow, list[Any]]  # flow to the names of the queues that it reads, its weight, whether it is static


@dataclass
class GroupState:
    """Mutable only through `replay`.

    Attributes
    ----------
    seq : int
        Number of facts replayed, which is the number of the next fact.
    status_seq : int
        Number of the fact that set the status.
    baseline : int
        Flows that the group had before the holddown (R5).
    trigger : str
        Cause of the holddown or rebalance, for people.
    assignor, protocol : str, Protocol
        Assignor and protocol of the last assignment that was computed.
    assigned_seq : int
        Number of the fact that records that assignment.
    basis : dict
        The `view` that the assignor was given for it.
    deletions : int
        How often the group was deleted. After a deletion the group begins again, and so do its acknowledgements, in another table.
    last_epoch : int
        The highest epoch of a partition before the last deletion; epochs go on above it.
    removed : dict
        The last epoch and position of each partition that its queue no longer has. If the partition comes back, both go on from there.
    unbound : set
        Instances that the group itself has unbound, as a queue became exclusive or partitioned, or a replica was promoted. They bind again
        without a delay.
    resets : int
        How many resets of its positions were made, or announced and not made. The number outlives the group.
    reset_epochs : dict
        For each partition whose position was set, the epoch that the reset began; also if its queue no longer has it, as it may come back.
    held : dict
        By queue id, the hashes of the keys whose messages go to the dead-message queue (`core.group.held_keys`).
    """

    seq: int = 0
    status: Status = Status.READY
    status_seq: int = -1
    baseline: int = 0
    trigger: str = ""
    assignor: str = ""
    protocol: Protocol = Protocol.COOPERATIVE
    assigned_seq: int = -1
    basis: View = field(default_factory=dict)
    queues: dict[str, QueueInGroup] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    partitions: dict[PartitionId, Ownership] = field(default_factory=dict)
    floors: dict[PartitionId, int] = field(default_factory=dict)
    removed: dict[PartitionId, tuple[int, int]] = field(default_factory=dict)
    resets: int = 0
    reset_epochs: dict[PartitionId, int] = field(default_factory=dict)
    deletions: int = 0
    last_epoch: int = -1
    exists: bool = False  # there are facts since it was last deleted
    format: Format = field(default_factory=format.of_new_tables)
    unbound: set[str] = field(default_factory=set)
    held: dict[str, frozenset[int]] = field(default_factory=dict)

    # ---- queries
    @property
    def flows(self) -> list[Flow]:
        """All live flows, in the order in which they joined."""
        return [flow for m in self._by_order() for flow in m.flow_names]

    def _by_order(self) -> list[Member]:
        return sorted(self.members.values(), key=lambda m: (m.order, m.instance))

    @property
    def draining(self) -> bool:
        return any(own.state is PartitionState.DRAINING for own in self.partitions.values())

    @property
    def revoking(self) -> bool:
        """Whether some draining partition's receiver is not known yet."""
        return any(own.state is PartitionState.DRAINING and own.to_flow is None for own in self.partitions.values())

    @property
    def assignment_due(self) -> bool:
        """Whether a rebalance has begun and its assignment is still to be computed."""
        return self.status is Status.REBALANCING and self.assigned_seq < self.status_seq

    def subscribed(self, flow: Flow, partition_id: PartitionId) -> bool:
        member = self.members.get(instance_of(flow))
        return member is not None and member.subscribes(self.queues[partition_id[0]].name)

    @property
    def subscribed_partitions(self) -> list[PartitionId]:
        """The partitions that some member reads, by queue name and number."""
        read = {
            queue_id: queue.name
            for queue_id, queue in self.queues.items()
            if any(member.subscribes(queue.name) for member in self.members.values())
        }
        return sorted((id_ for id_ in self.partitions if id_[0] in read), key=lambda id_: (read[id_[0]], id_[1]))

    def view(self) -> View:
        """What an assignor is given for each flow, in the order of joining."""
        names = sorted(queue.name for queue in self.queues.values())
        read: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
        view: View = {}
        for member in self._by_order():
            subscription = (member.queues, member.pattern)
            if subscription not in read:  # often they are all alike
                read[subscription] = [name for name in names if member.subscribes(name)]
            seen = [read[subscription], member.weight, member.static]
            view.update(dict.fromkeys(member.flow_names, seen))
        return view

    def partition_state(self, partition_id: PartitionId) -> PartitionState:
        own = self.partitions.get(partition_id)
        return PartitionState.UNKNOWN if own is None else own.state

    def position(self, partition_id: PartitionId, acks: Acks) -> int | None:
        """Offset of the next message that the group reads; None if the group never had the partition."""
        own = self.partitions.get(partition_id)
        if own is None:
            return None
        if own.flow is None:
            return self.committed_floor(partition_id)
        return max(self.committed_floor(partition_id), acks.offset(partition_id, own.epoch, own.incarnation))

    def committed_floor(self, partition_id: PartitionId) -> int:
        """The position by the control table alone: the group never reads a message below it again (0 if it never had the partition).

        Acknowledgements do not count: a decision that has not read the last ones sets the position back.
        """
        own = self.partitions.get(partition_id)
        return 0 if own is None else max(own.start, self.floors.get(partition_id, 0))

    def committed_floors(self, queue_id: str) -> Callable[[int], int]:
        """`committed_floor` of a queue's partitions, by their numbers."""
        return lambda number: self.committed_floor((queue_id, number))

    def delivered(self, partition_id: PartitionId, acks: Acks) -> int:
        """Exclusive end of the messages that may have been delivered to any process; at least the position."""
        return max(
            self.position(partition_id, acks) or 0,
            self.partitions[partition_id].delivered,
            acks.delivered(partition_id),
        )

    def handed_out(self, partition_id: PartitionId, acks: Acks) -> int:
        """How far it was delivered under its epoch; at least the position. Messages delivered before that and not acknowledged come again."""
        epoch = max(1, self.partitions[partition_id].epoch)
        return max(self.position(partition_id, acks) or 0, acks.delivered(partition_id, epoch))

    def reading_since(self, partition_id: PartitionId) -> int:
        """The epoch with which the group began to read the partition again, after a reset (H4) or its deletion; 0 if it did not.

        What was done with a message before that epoch does not count any more.
        """
        return max(self.reset_epochs.get(partition_id, 0), self.last_epoch + 1)

    def owned(self, flow: Flow) -> list[PartitionId]:
        return sorted(partition_id for partition_id, own in self.partitions.items() if own.flow == flow)

    @property
    def idle_flows(self) -> list[Flow]:
        """Standbys: flows that own nothing and will receive nothing, in the order in which they joined."""
        busy = {flow for own in self.partitions.values() for flow in (own.flow, own.to_flow)}
        return [flow for flow in self.flows if flow not in busy]

    @property
    def rebalance_delay_ms(self) -> int:
        return max((q.rebalance_delay_ms for q in self.queues.values()), default=0)

    def copy(self) -> GroupState:
        return replace(
            self,
            basis=dict(self.basis),
            queues=dict(self.queues),
            members=dict(self.members),
            partitions=dict(self.partitions),
            floors=dict(self.floors),
            removed=dict(self.removed),
            unbound=set(self.unbound),
            reset_epochs=dict(self.reset_epochs),
            held=dict(self.held),
        )

    # ---- facts
    def replay(self, fact: GroupFact) -> None:
        """Apply one fact.

        Raises
        ------
        CorruptTableError
            If the fact cannot follow those before it: the table was edited, or another program wrote it.
        """
        try:
            reading.check_columns(fact)
            self._replay(stored.one_of(Kind, fact.kind, "kind"), fact)
        except stored.MALFORMED as error:
            of = "" if fact.partition is None else f" of partition {fact.partition} of queue {fact.queue!r}"
            raise CorruptTableError(
                f"fact {self.seq} ({fact.kind}{of}) cannot follow those before it ({stored.reason(error)}): the table was edited. Restore "
                f"it from a backup, or {ANOTHER_GROUP}",
                seq=self.seq,
            ) from error
        self.seq += 1
        if fact.kind != Kind.FORMAT_RAISED:
            self.exists = fact.kind != Kind.GROUP_DELETED

    def _replay(self, kind: Kind, fact: GroupFact) -> None:
        _must(
            (kind is Kind.GROUP_CREATED) == (self.seq == 0), "a table begins with GroupCreated, and nothing else does"
        )
        if kind in TRANSITIONS:
            self._replay_partition(kind, fact)
        elif kind is Kind.GROUP_CREATED:
            self.format = format.parse(stored.body_of(fact.body))
        elif kind is Kind.FORMAT_RAISED:
            self.format = self.format.raised(stored.body_of(fact.body))
        elif kind is Kind.STATUS_CHANGED:
            status = stored.one_of(Status, fact.status, "status")
            _must((self.status, status) in STATUS_TRANSITIONS, f"status {self.status} → {status}")
            self.status, self.status_seq = status, self.seq
            # A cause may name many queues, or be missing; a snapshot has a short text.
            self.trigger = (fact.cause or "")[: stored.MAX_TEXT]
            if status is Status.HOLDDOWN:
                self.baseline = fact.flows or 0
        elif kind is Kind.ASSIGNMENT_COMPUTED:
            _must(self.assignment_due, "no assignment is due")
            body = stored.body_of(fact.body)
            self.assignor = stored.text(body["assignor"], "assignor")
            self.protocol = stored.one_of(Protocol, body["protocol"], "protocol")
            self.assigned_seq, self.basis = self.seq, self.view()
        elif kind is Kind.MEMBER_JOINED:
            instance = _given(fact, "instance", fact.instance)
            _must(bool(instance and fact.incarnation and fact.flows), "it names no process with flows")
            old = self.members.get(instance)
            columns = {
                "instance": instance,
                "incarnation": fact.incarnation,
                "flows": fact.flows,
                "host": fact.host or "",
                "order": old.order if old else self.seq,
                "stateful": False,
            }
            self.members[instance] = reading.member({**stored.body_of(fact.body), **columns})
            self.unbound.discard(instance)
        elif kind is Kind.MEMBER_LEFT:
            _must(fact.instance in self.members, f"{fact.instance} is no member")
            del self.members[fact.instance or ""]
            if fact.forced:
                self.unbound.add(fact.instance or "")
        elif kind is Kind.MEMBER_STATEFUL:
            member = self.members[_given(fact, "instance", fact.instance)]
            _must(member.incarnation == fact.incarnation, f"{fact.instance} is another process")
            self.members[member.instance] = replace(member, stateful=True)
        elif kind is Kind.QUEUE_ADDED:
            queue_id, name = _given(fact, "queue_id", fact.queue_id), _given(fact, "queue", fact.queue)
            self.queues[queue_id] = reading.queue({**stored.body_of(fact.body), "name": name})
        elif kind is Kind.GROUP_DELETED:
            vars(self).update(vars(self._deleted()))
        elif kind is Kind.OFFSETS_RESET:
            self.resets += 1
        elif kind is Kind.KEYS_RELEASED:
            del self.held[_given(fact, "queue_id", fact.queue_id)]
        else:
            self.held.pop(fact.queue_id or "", None)
            del self.queues[fact.queue_id or ""]
            for partition_id in [id_ for id_ in self.partitions if id_[0] == fact.queue_id]:
                del self.partitions[partition_id]
                self.floors.pop(partition_id, None)
            self.removed = {id_: last for id_, last in self.removed.items() if id_[0] != fact.queue_id}
            self.reset_epochs = {id_: epoch for id_, epoch in self.reset_epochs.items() if id_[0] != fact.queue_id}

    def _deleted(self) -> GroupState:
        epochs = [own.epoch for own in self.partitions.values()] + [epoch for epoch, _ in self.removed.values()]
        last_epoch = max([self.last_epoch, *epochs])
        return GroupState(
            self.seq, resets=self.resets, deletions=self.deletions + 1, last_epoch=last_epoch, format=self.format
        )

    def _replay_partition(self, kind: Kind, fact: GroupFact) -> None:
        partition_id, before = fact.partition_id, self.partition_state(fact.partition_id)
        after = dict(TRANSITIONS[kind]).get(before)
        _must(after is not None, f"the partition is {before}")
        epoch = _given(fact, "epoch", fact.epoch)
        if kind is Kind.PARTITION_ADDED:
            start = _given(fact, "offset", fact.offset)
            last, position = self.removed.pop(partition_id, (self.last_epoch, 0))
            _must(
                epoch > last and start >= position,
                f"before it was removed it had epoch {last} and position {position}",
            )
            self.partitions[partition_id] = Ownership(None, None, "", epoch, epoch, start, start)
            return
        own = self.partitions[partition_id]
        _must(fact.epoch_before == own.epoch, f"the epoch is {own.epoch}, not {fact.epoch_before}")
        if kind is Kind.PARTITION_REMOVED:
            self.removed[partition_id] = (epoch, _given(fact, "offset", fact.offset))
            del self.partitions[partition_id]
            self.floors.pop(partition_id, None)
        elif kind is Kind.FLOOR:
            floor = _given(fact, "offset", fact.offset)
            self.floors[partition_id] = max(floor, self.floors.get(partition_id, 0))
        elif kind is Kind.ISOLATED:
            _must(epoch == own.epoch + 1, f"epoch {own.epoch} → {epoch}")
            start, delivered = _given(fact, "offset", fact.offset), _given(fact, "delivered", fact.delivered)
            self.partitions[partition_id] = replace(
                own, epoch=epoch, lineage_epoch=epoch, start=start, delivered=delivered
            )
        elif kind is Kind.SKIPPED:
            first, end = _given(fact, "offset", fact.offset), _given(fact, "delivered", fact.delivered)
            _must(self.committed_floor(partition_id) <= first < end, f"messages from {first} up to {end} are left out")
            self.floors[partition_id] = end
            if keys := held_keys.held_by(stored.body_of(fact.body or "{}")):
                self.held[partition_id[0]] = self.held.get(partition_id[0], frozenset()) | keys
        elif kind is Kind.HANDOFF_STARTED:
            _must(fact.to_flow is not None or self.assignment_due, "no assignment is due that would say to whom")
            number = self.seq if own.handoff < 0 else own.handoff  # a new receiver does not restart the time
            self.partitions[partition_id] = replace(own, to_flow=fact.to_flow, handoff=number)
        elif kind is Kind.HANDOFF_CANCELLED:
            self.partitions[partition_id] = replace(own, to_flow=None, handoff=-1)
        else:
            ended = kind is not Kind.GRANTED
            if kind is Kind.POSITION_RESET:
                _must(not self.members, "somebody consumes in the group")
                self._reset(partition_id, epoch, _given(fact, "offset", fact.offset))
            _must(ended or bool(fact.flow and fact.incarnation), "it names no owner")
            _must(epoch >= own.epoch + (kind is not Kind.RELEASED), f"epoch {own.epoch} → {epoch}")
            self.partitions[partition_id] = Ownership(
                None if ended else fact.flow,
                own.last_flow if ended else fact.flow,
                "" if ended else fact.incarnation or "",
                epoch,
                fact.lineage_epoch or (own.lineage_epoch if ended else epoch),
                _given(fact, "offset", fact.offset),
                _given(fact, "delivered", fact.delivered),
            )

    def _reset(self, partition_id: PartitionId, epoch: int, position: int) -> None:
        """The group goes on at this position: its floor sinks to it, and no key of the queue is held any more, as the key's order begins again."""
        self.reset_epochs[partition_id] = epoch
        self.held.pop(partition_id[0], None)
        if self.floors.get(partition_id, 0) > position:
            self.floors[partition_id] = position


def _given(fact: GroupFact, column: str, value: V | None) -> V:
    """The value of a column that facts of this kind must have."""
    if value is None:
        raise ValueError(f"fact {fact.kind} has no {column}")
    return value


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
