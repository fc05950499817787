"""A consumer group as people ask for it: who has what, how far it is, and what should be looked after (K8, R7)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.errors import QueueNotFoundError, QueueNotReadyError
from spark_partq.core.group import GroupState, Kind, PartitionId, Status, instance_of
from spark_partq.storage.facts import recent
from spark_partq.storage.groups import Group, open_group
from spark_partq.storage.queues import Queue, open_queue
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store

# So many of the last facts are looked at for what went wrong lately.
RECENT_FACTS = 1_000


@dataclass(frozen=True)
class FlowDescription:
    """One flow; `partitions` are those that it holds, per queue. It is active if it holds any."""

    flow: str
    active: bool
    partitions: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class MemberDescription:
    """A query that takes part."""

    instance: str
    incarnation: str
    host: str
    session_timeout_ms: int
    assignors: tuple[str, ...]
    queues: tuple[str, ...]
    flows: tuple[FlowDescription, ...]


@dataclass(frozen=True)
class GroupPartition:
    """A partition in the group.

    Attributes
    ----------
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
    handoff_to : str or None
        The flow that it is being handed to.
    """

    queue: str
    partition: int
    flow: str | None
    epoch: int
    position: int
    delivered: int
    end: int | None
    lag: int | None
    handoff_to: str | None


@dataclass(frozen=True)
class GroupDescription:
    """A group as `describe_group` shows it.

    Attributes
    ----------
    trigger : str
        What led to the last holddown or rebalance.
    since : str or None
        When the status became what it is, as its writer's clock said; None if that is long ago.
    assignor : str or None
        The one in use: the first that all members support. None without members.
    unassigned : int
        Partitions that nobody owns.
    """

    group: str
    status: str
    trigger: str
    since: str | None
    assignor: str | None
    rebalance_delay_ms: int
    lag: int
    unassigned: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def describe_group(store: Store, name: str) -> GroupDescription:
    """Describe the group as it is now.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    group = open_group(store, name)
    state = group.state
    facts = recent(store, name, RECENT_FACTS)
    warnings = [*_about_members(state), *_about_handoffs(state, facts)]
    queues: dict[str, Queue] = {}
    for queue_id, known in state.queues.items():
        queue = _open(store, known.name, queue_id)
        if queue is None:
            warnings.append(
                f"queue {known.name} was deleted; the group keeps its positions until a queue of that name is read, or the "
                "group is deleted"
            )
        else:
            queue.refresh()
            queues[queue_id] = queue
    partitions = []
    for where in sorted(state.partitions, key=lambda w: (state.queues[w[0]].name, w[1])):
        partitions.append(_partition(group, where, queues.get(where[0]), warnings))
    return GroupDescription(
        name,
        state.status.value,
        state.trigger,
        next((row["at"].isoformat() for row in facts if row["seq"] == state.status_seq), None),
        _assignor(state),
        state.rebalance_delay_ms,
        sum(p.lag or 0 for p in partitions),
        sum(p.flow is None for p in partitions),
        _members(state),
        tuple(partitions),
        tuple(warnings),
    )


def _open(store: Store, name: str, queue_id: str) -> Queue | None:
    try:
        queue = open_queue(store, name)
    except (QueueNotFoundError, QueueNotReadyError):
        return None
    return queue if queue.state.queue_id == queue_id else None


def _assignor(state: GroupState) -> str | None:
    members = sorted(state.members.values(), key=lambda m: m.order)
    if not members:
        return None
    return next((name for name in members[0].assignors if all(name in m.assignors for m in members)), None)


def _members(state: GroupState) -> tuple[MemberDescription, ...]:
    return tuple(
        MemberDescription(
            m.instance,
            m.incarnation,
            m.host,
            m.session_timeout_ms,
            m.assignors,
            m.queues,
            tuple(_flow(state, flow) for flow in m.flow_names),
        )
        for m in sorted(state.members.values(), key=lambda m: (m.order, m.instance))
    )


def _flow(state: GroupState, flow: str) -> FlowDescription:
    held: dict[str, list[int]] = {}
    for queue_id, partition in state.owned(flow):
        held.setdefault(state.queues[queue_id].name, []).append(partition)
    return FlowDescription(flow, bool(held), {queue: tuple(numbers) for queue, numbers in sorted(held.items())})


def _partition(group: Group, where: PartitionId, queue: Queue | None, warnings: list[str]) -> GroupPartition:
    state, own = group.state, group.state.partitions[where]
    name, number = state.queues[where[0]].name, where[1]
    position = group.position(where) or 0
    end = lag = None
    if queue is not None and number < len(queue.partitions):
        table = queue.partitions[number]
        end, first = table.next_offset, table.first_offset
        lag = max(0, end - max(position, first))
        if position < first:
            warnings.append(
                f"messages {position} to {first - 1} of partition {number} of queue {name} were removed before the group had read "
                "them; raise the queue's retention_ms, and see failOnDataLoss"
            )
        if position > end:
            warnings.append(
                f"the group has acknowledged partition {number} of queue {name} up to {position}, but it ends at {end}: it was put "
                "back to an older state; restore it, or read on with another group"
            )
    return GroupPartition(
        name, number, own.flow, own.epoch, position, state.delivered(where, group.acks), end, lag, own.to_flow
    )


def _about_members(state: GroupState) -> list[str]:
    if state.members:
        return []
    told = "no query is in the group: nobody reads for it"
    if state.status is not Status.READY:
        told += f", and nobody ends its {state.status}"
    return [f"{told}. Start a query of the group, or see spark-partq history for why the last one left"]


def _about_handoffs(state: GroupState, facts: Sequence[Row]) -> list[str]:
    """Handoffs whose time ran out, among the last facts."""
    forced: dict[str, list[Row]] = {}
    ended: dict[str, int] = {}
    began: dict[PartitionId, tuple[int, str]] = {}  # the number of the fact, who gives
    joined: dict[str, int] = {}
    for row in facts:
        where = (row["queue_id"], row["partition"])
        if row["kind"] == Kind.MEMBER_JOINED:
            joined[row["instance"]] = row["seq"]
        elif row["kind"] == Kind.HANDOFF_STARTED:
            began.setdefault(where, (row["seq"], instance_of(row["flow"])))
        elif row["kind"] in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED, Kind.HANDOFF_CANCELLED) and where in began:
            start, giver = began.pop(where)
            ended[row["queue_id"]] = ended.get(row["queue_id"], 0) + (row["kind"] in (Kind.GRANTED, Kind.RELEASED))
            # A giver that is started again has nothing left to drain; that is no matter of time.
            if row["kind"] == Kind.GRANTED and joined.get(giver, -1) < start:
                forced.setdefault(row["queue_id"], []).append(row)
    told = []
    for queue_id, rows in forced.items():
        queue = state.queues.get(queue_id)
        if queue is None or not queue.max_handoff_time_ms:  # 0 asks for it
            continue
        twice = sum((row["delivered"] or 0) - (row["offset"] or 0) for row in rows)
        told.append(
            f"{len(rows)} of the last {ended[queue_id]} handoffs of queue {queue.name} were forced, because its owner had not "
            f"acknowledged within {queue.max_handoff_time_ms} ms (last at {rows[-1]['at'].isoformat(timespec='seconds')}); "
            f"{twice} messages may have been delivered twice. Raise max_handoff_time_ms above the length of the micro-batches"
        )
    return told
