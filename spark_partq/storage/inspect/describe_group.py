"""The description of a consumer group: which flows own which partitions, how far the group is, and what an operator should do (K8, R7)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.errors import PartqError, QueueNotFoundError, QueueNotReadyError
from spark_partq.core.group.facts import Kind, PartitionState
from spark_partq.core.group.health import condition
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.inspect.backlog import held_keys, told_of_stuck, waiting_partitions
from spark_partq.storage.inspect.group_warnings import group_warnings
from spark_partq.storage.inspect.heartbeats import RECENT_FACTS, Heartbeat, expired, heartbeats
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class FlowDescription:
    """One flow of a member, and the partitions that the flow owns.

    Attributes
    ----------
    flow : str
        The name of the flow: the name of its query, and a number.
    active : bool
        Whether the flow owns any partition.
    partitions : dict
        By queue, the numbers of the partitions that the flow owns.
    """

    flow: str
    active: bool
    partitions: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class MemberDescription:
    """A member of a group: a query that reads in the group.

    Attributes
    ----------
    instance : str
        The name of the member's query.
    incarnation : str
        The id of the process of the member's query; each process has another id.
    host : str
        The machine on which the process of the member's query runs.
    session_timeout_ms : int
        After this many milliseconds without a heartbeat, the member is taken out of the group.
    flows : tuple of FlowDescription
        The flows of the member.
    assignors : tuple of str
        The assignors that the member lists, best first.
    queues : tuple of str
        The names of the queues to which the member subscribes.
    pattern : str or None
        The regular expression that matches the names of the queues to which the member subscribes; None if the member lists names.
    weight : float
        The share of each flow of the member.
    static : bool
        Whether the user chose the member's name, so that it survives restarts.
    manual : bool
        Whether the member's application acknowledges by hand.
    application : str
        The member's Spark application.
    executors : tuple of str
        The executors (``id@host``) that the member's Spark application had when the member joined.
    partitions : dict
        By queue, the numbers of the partitions that all flows of the member own.
    heartbeat_age_s : float or None
        Seconds since the member's last heartbeat, by the clocks of its machine and of this one; None if it has not sent a heartbeat yet.
    expired : bool
        Whether the member has been silent for its session timeout and is still in the group.
    """

    instance: str
    incarnation: str
    host: str
    session_timeout_ms: int
    heartbeat_age_s: float | None
    expired: bool
    assignors: tuple[str, ...]
    queues: tuple[str, ...]
    pattern: str | None
    weight: float
    static: bool
    manual: bool
    application: str
    executors: tuple[str, ...]
    flows: tuple[FlowDescription, ...]
    partitions: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class GroupPartition:
    """A partition of a queue that a group reads, as the group sees it.

    Attributes
    ----------
    queue : str
        The name of the queue.
    partition : int
        The number of the partition in the queue.
    subscribed : bool
        Whether a member subscribes to the queue; in a group without members, true.
    flow : str or None
        The flow that owns the partition; None if no flow does.
    epoch : int
        The epoch of the partition's ownership.
    position : int
        The offset of the next message of the partition that the group wants.
    delivered : int
        Messages from `position` up to this offset (exclusive end) were delivered and are not acknowledged yet.
    end : int or None
        The offset that the partition's next message will get; None if the queue is gone.
    lag : int or None
        Stored messages of the partition that the group has not acknowledged.
    draining : bool
        Whether the owner is giving the partition up.
    handoff_to : str or None
        The flow that gets the partition in a handoff; None if there is no handoff, or if the flow is not computed yet.
    waits_for : dict
        By number, the partitions of the queue that the group must acknowledge before any flow gets this partition's next messages, because of a
        resize (S5); the values are the offsets up to which. Empty if these messages wait for nothing.
    """

    queue: str
    partition: int
    subscribed: bool
    flow: str | None
    epoch: int
    position: int
    delivered: int
    end: int | None
    lag: int | None
    draining: bool
    handoff_to: str | None
    waits_for: dict[int, int]


@dataclass(frozen=True)
class GroupDescription:
    """A group as `describe_group` shows it.

    Attributes
    ----------
    group : str
        The name of the group.
    rebalance_delay_ms : int
        How long the group's holddowns last, in milliseconds.
    lag : int
        Stored messages that the group has not acknowledged, of all partitions to which a member subscribes; without members, of all partitions.
    members : tuple of MemberDescription
        The queries that read in the group.
    partitions : tuple of GroupPartition
        The partitions of all queues of the group.
    warnings : tuple of str
        Problems of the group, and what an operator should do.
    state : str
        The state of the group: ``Empty`` if it has no members, ``Dead`` if it was deleted, ``Expired`` if it has members and the sessions of all
        have expired; otherwise its status.
    status : str
        The status of the group in its control table: ``Ready``, ``Holddown`` or ``Rebalancing``.
    trigger : str
        What led to the group's last holddown or rebalance; for a dead group, who deleted it.
    since : str or None
        When the group got its status or was deleted, by the clock of the process that wrote this; None if that was long ago.
    assignor : str or None
        The assignor of the last assignment that was computed; None without members.
    protocol : str or None
        The protocol of the last assignment that was computed; None without members.
    unassigned : int
        How many partitions a member reads and no flow owns; without members, how many partitions there are.
    held_keys : dict
        By queue, how many keys the group holds back because a message of each key is dead (``dead_letter_order=hold``).
    """

    group: str
    state: str
    status: str
    trigger: str
    since: str | None
    assignor: str | None
    protocol: str | None
    rebalance_delay_ms: int
    lag: int
    unassigned: int
    held_keys: dict[str, int]
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def describe_group(store: Store, name: str) -> GroupDescription:
    """Describe the group as it is now. For a deleted group: when and by whom it was deleted.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
        If the group, or each of its queues, cannot be read.
    """
    group = open_group(store, name, deleted=True)
    state = group.state
    facts = group.recent_facts(RECENT_FACTS)
    if not state.exists:
        return _dead(group, facts)
    queues, unread = queues_of(store, group)
    return described(group, queues, facts, unread)


def queues_of(store: Store, group: Group) -> tuple[dict[str, Queue], dict[str, PartqError]]:
    """The queues that a group reads and that exist, by id, refreshed; and by name those that cannot be read, and why. Raises if none can be read."""
    found, unread = dict[str, Queue](), dict[str, PartqError]()
    for queue_id, known in group.state.queues.items():
        try:
            queue = _open(store, known.name, queue_id)
            if queue is not None:
                queue.refresh()
                found[queue_id] = queue
        except PartqError as error:
            unread[known.name] = error
    if unread and not found:
        first, *_ = unread.values()
        raise first
    return found, unread


def described(
    group: Group, queues: Mapping[str, Queue], facts: Sequence[Row] | None = None, unread: Collection[str] = ()
) -> GroupDescription:
    """Describe a group that exists, as of its last refresh.

    Parameters
    ----------
    queues : dict
        The queues that the group reads and that exist, by id, refreshed after the group.
    facts
        The group's last facts, to see what went wrong lately. Without them there are no such warnings, and the time of the last
        status change is not known.
    unread
        Names of queues that exist and cannot be read.
    """
    state = group.state
    beats = heartbeats(group, facts)
    facts = facts or ()
    warnings = group_warnings(group.name, state, facts, beats)
    warnings += [
        f"queue {known.name} cannot be read, so its lag is not known; spark-partq doctor says why"
        if known.name in unread
        else f"queue {known.name} was deleted; the group keeps its positions until a queue of that name is read, or the group is deleted"
        for queue_id, known in state.queues.items()
        if queue_id not in queues
    ]
    warnings += [
        f"queue {queue.name}: {stuck}; spark-partq copy-stuck {queue.name} moves them into the partitions"
        for queue in queues.values()
        if (stuck := told_of_stuck(queue))
    ]
    waits = {queue_id: waiting_partitions(queue, group) for queue_id, queue in queues.items()}
    subscribed = set(state.subscribed_partitions if state.members else state.partitions)
    partitions: list[GroupPartition] = []
    for partition_id in sorted(state.partitions, key=lambda w: (state.queues[w[0]].name, w[1])):
        queue, waits_for = queues.get(partition_id[0]), waits.get(partition_id[0], {}).get(partition_id[1], {})
        partitions.append(_partition(group, partition_id, queue, partition_id in subscribed, waits_for, warnings))
    return GroupDescription(
        group=group.name,
        state=condition(state, expired(beats)).value,
        status=state.status.value,
        trigger=state.trigger,
        since=next((row["at"].isoformat() for row in facts if row["seq"] == state.status_seq), None),
        assignor=(state.assignor or None) if state.members else None,
        protocol=state.protocol.value if state.members and state.assignor else None,
        rebalance_delay_ms=state.rebalance_delay_ms,
        lag=sum(p.lag or 0 for p in partitions if p.subscribed),
        unassigned=sum(own.flow is None for id_, own in state.partitions.items() if id_ in subscribed),
        held_keys={queue.name: len(keys) for _, queue in sorted(queues.items()) if (keys := held_keys(queue, group))},
        members=_members(state, beats),
        partitions=tuple(partitions),
        warnings=tuple(warnings),
    )


def _dead(group: Group, facts: Sequence[Row]) -> GroupDescription:
    """The description of a deleted group: only its history is left."""
    deleted = next((row for row in reversed(facts) if row["kind"] == Kind.GROUP_DELETED), None)
    warning = (
        "the group was deleted, and its positions with it; a query that starts in it makes it anew, and reads from startingOffsets "
        f"on. spark-partq history {group.name} shows what became of it"
    )
    return GroupDescription(
        group=group.name,
        state=condition(group.state, ()).value,
        status=group.state.status.value,
        trigger=f"{deleted['cause']} by {deleted['by']}" if deleted else "",
        since=deleted["at"].isoformat() if deleted else None,
        assignor=None,
        protocol=None,
        rebalance_delay_ms=0,
        lag=0,
        unassigned=0,
        held_keys={},
        members=(),
        partitions=(),
        warnings=(warning,),
    )


def _open(store: Store, name: str, queue_id: str) -> Queue | None:
    try:
        queue = open_queue(store, name)
    except (QueueNotFoundError, QueueNotReadyError):
        return None
    return queue if queue.state.queue_id == queue_id else None


def _members(state: GroupState, beats: Mapping[str, Heartbeat]) -> tuple[MemberDescription, ...]:
    return tuple(
        MemberDescription(
            m.instance,
            m.incarnation,
            m.host,
            m.session_timeout_ms,
            beats[m.instance].age_s,
            beats[m.instance].expired,
            m.assignors,
            m.queues,
            m.pattern,
            m.weight,
            m.static,
            m.manual,
            m.application,
            m.executors,
            tuple(_flow(state, flow) for flow in m.flow_names),
            _by_queue(state, [partition_id for flow in m.flow_names for partition_id in state.owned(flow)]),
        )
        for m in sorted(state.members.values(), key=lambda m: (m.order, m.instance))
    )


def _flow(state: GroupState, flow: str) -> FlowDescription:
    partitions = _by_queue(state, state.owned(flow))
    return FlowDescription(flow, bool(partitions), partitions)


def _by_queue(state: GroupState, partitions: Sequence[PartitionId]) -> dict[str, tuple[int, ...]]:
    """The partition numbers by queue name."""
    by_queue: dict[str, list[int]] = {}
    for queue_id, partition in partitions:
        by_queue.setdefault(state.queues[queue_id].name, []).append(partition)
    return {queue: tuple(sorted(numbers)) for queue, numbers in sorted(by_queue.items())}


def _partition(
    group: Group,
    partition_id: PartitionId,
    queue: Queue | None,
    subscribed: bool,
    waits_for: dict[int, int],
    warnings: list[str],
) -> GroupPartition:
    state, own = group.state, group.state.partitions[partition_id]
    name, number = state.queues[partition_id[0]].name, partition_id[1]
    position = group.position(partition_id) or 0
    end = lag = None
    if queue is not None and number in queue.state.partition_numbers:
        table = queue.table(number)
        end, first = table.next_offset, table.first_offset
        lag = max(0, end - max(position, first))
        if position < first:
            warnings.append(
                f"messages {position} to {first - 1} of partition {number} of queue {name} were removed before the group had read "
                "them; raise the queue's retention_ms or max_bytes, and see failOnDataLoss"
            )
        if position > end:
            warnings.append(
                f"the group has acknowledged partition {number} of queue {name} up to {position}, but the partition ends at {end}: it was put "
                "back to an older state; restore it, or read on with another group"
            )
    return GroupPartition(
        name, number, subscribed, own.flow, own.epoch, position, state.delivered(partition_id, group.acks), end, lag,
        own.state is PartitionState.DRAINING, own.to_flow, waits_for,
    )  # fmt: skip
