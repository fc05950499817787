"""The description of a consumer group: which flows own which partitions, how far the group is, and what an operator should do (K8, R7)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.errors import QueueNotFoundError, QueueNotReadyError
from spark_partq.core.group.facts import Kind, PartitionState
from spark_partq.core.group.health import condition
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.inspect.backlog import told_of_stuck, waiting_partitions
from spark_partq.storage.inspect.group_warnings import group_warnings
from spark_partq.storage.inspect.heartbeats import RECENT_FACTS, Heartbeat, expired, heartbeats
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class FlowDescription:
    """One flow; `partitions` are those that it holds, per queue. It is active if it holds any.

    Attributes
    ----------
    flow : str
        Its name: its query's, and a number.
    active : bool
        Whether it holds any partition.
    partitions : dict
        By queue the numbers of those that it holds.
    """

    flow: str
    active: bool
    partitions: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class MemberDescription:
    """A query that takes part.

    Attributes
    ----------
    instance, incarnation : str
        The name of the query, and that of its process.
    host : str
        Where its process runs.
    session_timeout_ms : int
        After so many milliseconds without a heartbeat it is taken out.
    flows : tuple of FlowDescription
        Those that it has.
    assignors : tuple of str
        Those that it lists, best first.
    queues, pattern : tuple of str, str or None
        What it subscribes to: names of queues, or a regular expression.
    weight : float
        Share of each of its flows.
    static : bool
        Its name is the user's and survives restarts.
    manual : bool
        Its application acknowledges by hand.
    application, executors : str, tuple of str
        Its Spark application, and the executors (``id@host``) that it had when it joined.
    partitions : dict
        What all of its flows hold, per queue.
    heartbeat_age_s : float or None
        Seconds since its last heartbeat, by the clocks of its machine and of this one; None if it has not sent one yet.
    expired : bool
        It has been silent for its session timeout, and nobody has taken it out of the group yet.
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
    """A partition in the group.

    Attributes
    ----------
    queue, partition : str, int
        Which it is.
    subscribed : bool
        Whether a member subscribes to its queue; in a group without members, true.
    flow : str or None
        The owner.
    epoch : int
        Of its ownership.
    position : int
        Offset of the next message that the group wants.
    delivered : int
        What lies from `position` up to here was handed out and is not acknowledged yet.
    end : int or None
        Offset that the next message will get; None if the queue is gone.
    lag : int or None
        Messages that are there and that the group has not acknowledged.
    draining : bool
        Its owner is giving it up.
    handoff_to : str or None
        The flow that it is being handed to; None also while that is to be computed.
    waits_for : dict
        Because of a resize nobody is given its next messages before the group has acknowledged these partitions, by their numbers, up
        to these offsets (S5). Empty if they wait for nothing.
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
        Its name.
    rebalance_delay_ms : int
        How long its holddowns last, in milliseconds.
    lag : int
        Messages that are there and that the group has not acknowledged, of the partitions that are subscribed.
    members : tuple of MemberDescription
        The queries that take part.
    partitions : tuple of GroupPartition
        Those of all of its queues.
    warnings : tuple of str
        What somebody should do.
    state : str
        ``Empty`` without members, ``Dead`` if it was deleted, ``Expired`` if it has members and the sessions of all have expired;
        otherwise its status.
    status : str
        ``Ready``, ``Holddown`` or ``Rebalancing``, as its control table says.
    trigger : str
        What led to the last holddown or rebalance; of a dead group, who deleted it.
    since : str or None
        When the status became what it is, or the group was deleted, as its writer's clock said; None if that is long ago.
    assignor, protocol : str or None
        Those in use: of the last assignment that was computed. None without members.
    unassigned : int
        Partitions that a member reads and nobody owns; without members, all.
    held_keys : dict
        By queue how many keys the group holds back, because a message of each is dead (``dead_letter_order=hold``).
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
    """
    group = open_group(store, name, deleted=True)
    state = group.state
    facts = group.recent_facts(RECENT_FACTS)
    if not state.exists:
        return _dead(group, facts)
    return described(group, queues_of(store, group), facts)


def queues_of(store: Store, group: Group) -> dict[str, Queue]:
    """The queues that a group reads and that exist, by id, refreshed."""
    opened = {queue_id: _open(store, known.name, queue_id) for queue_id, known in group.state.queues.items()}
    found = {queue_id: queue for queue_id, queue in opened.items() if queue is not None}
    for queue in found.values():
        queue.refresh()
    return found


def described(
    group: Group, queues: Mapping[str, Queue], facts: Sequence[Row] | None = None, unread: Collection[str] = ()
) -> GroupDescription:
    """Describe a group that exists, as of its last refresh.

    Parameters
    ----------
    queues : dict
        The queues that it reads and that exist, by id, refreshed after the group.
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
        held_keys={state.queues[queue_id].name: len(keys) for queue_id, keys in sorted(state.held.items())},
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
