"""Why a partition is where it is, and what its next messages wait for, from the facts and the state of its group."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from spark_partq.core.group.acks import Acks
from spark_partq.core.group.facts import Kind, Ownership, PartitionState, Status
from spark_partq.core.group.limits import Limit, handoff_limit, status_limit
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId, instance_of

Rows = Sequence[Mapping[str, Any]]  # of a group's control table, in order


class WaitKind(StrEnum):
    """What a partition may wait for."""

    FENCE = "fence"  # its queue is now used in another store
    SESSION = "session"  # its owner has died, and is still in the group
    NO_MEMBERS = "no members"
    NO_READER = "no reader"  # no member reads its queue
    HOLDDOWN = "holddown"
    ASSIGNMENT = "assignment"
    HANDOFF = "handoff"
    LISTENER = "listener"  # the listener of the owner that gives the partition up
    BARRIER = "barrier"
    SCALING = "scaling"
    ACKNOWLEDGEMENT = "acknowledgement"
    MICRO_BATCH = "micro-batch"
    MESSAGES = "messages"
    HELD_KEYS = "held keys"  # their messages go to the dead-message queue instead


@dataclass(frozen=True)
class Step:
    """One of the facts by which a partition came to its owner.

    Attributes
    ----------
    kind : str
        The kind of the fact, as in the history.
    fact : int
        The number of the fact in the group's history.
    at : str
        When the fact was decided, by the clock of the process that decided it.
    owner : str or None
        The flow that owns the partition after the fact; None if no flow does.
    text : str
        What happened to the partition.
    cause : str
        Why it happened: the event that led to the fact.
    by : str
        Which process decided the fact, as in the history.
    """

    fact: int
    at: str
    kind: str
    owner: str | None
    text: str
    cause: str
    by: str


@dataclass(frozen=True)
class Wait:
    """Something that a partition waits for.

    Attributes
    ----------
    kind : str
        What the partition waits for, such as ``handoff``: one of `WaitKind`.
    text : str
        What the partition waits for, in whole sentences.
    seconds_left : float or None
        How many seconds from now the wait ends in any case; None if no time limit ends the wait.
    partitions : dict
        Of a barrier: by number, the partitions of the queue that the group must acknowledge first; the values are the offsets up to which.
    """

    kind: str
    text: str
    seconds_left: float | None = None
    partitions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """What `explain` says of a partition.

    Attributes
    ----------
    group : str
        The name of the group.
    queue : str
        The name of the queue.
    partition : int
        The number of the partition in the queue.
    epoch : int
        The epoch of the partition's ownership: it grows with each change of the owner.
    owner : str or None
        The flow that owns the partition now; None if no flow does.
    state : str
        The state of the partition in the group: ``Owned``, ``Draining`` or ``Unassigned``.
    position : int
        The offset of the next message of the partition that the group wants.
    delivered : int
        Messages from `position` up to this offset (exclusive end) were delivered and are not acknowledged yet.
    end : int or None
        The offset that the partition's next message will get; None if the queue is gone.
    steps : tuple of Step
        The facts by which the partition came to its owner, the oldest first.
    waits : tuple of Wait
        What the partition's next messages wait for.
    """

    group: str
    queue: str
    partition: int
    owner: str | None
    state: str
    epoch: int
    position: int
    delivered: int
    end: int | None
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True)
class Surroundings:
    """What the group's tables do not say.

    Attributes
    ----------
    now : datetime
        By this machine's clock.
    end : int or None
        The partition's next offset; None if the queue is gone.
    first : int
        The offset of the partition's first message that was not removed.
    waits_for : dict
        The partitions that the partition's next messages wait for because of a resize, each with the offset up to which (S5).
    scaling : str
        What a change of the partition count means for the partition: a sentence, or empty.
    fenced_by : str or None
        The location of the queue's replica that took over.
    silent_s : dict
        The instances whose sessions have expired, each with the seconds since its last heartbeat.
    held_keys : int
        Keys of messages of this partition that the group holds back.
    held_anywhere : bool
        `held_keys` counts the held keys of the whole queue, as their partitions are not known.
    dead_letter_queue : str or None
        Where messages of held keys go.
    """

    now: dt.datetime
    end: int | None = None
    first: int = 0
    waits_for: Mapping[int, int] = field(default_factory=dict)
    scaling: str = ""
    fenced_by: str | None = None
    silent_s: Mapping[str, float] = field(default_factory=dict)
    held_keys: int = 0
    held_anywhere: bool = False
    dead_letter_queue: str | None = None


def explain(
    state: GroupState, acks: Acks, facts: Rows, partition_id: PartitionId, group: str, seen: Surroundings
) -> Explanation:
    """Explain a partition that the group knows.

    Parameters
    ----------
    facts
        All facts that led to `state`.
    """
    own, queue = state.partitions[partition_id], state.queues[partition_id[0]].name
    position = state.position(partition_id, acks) or 0
    delivered = state.handed_out(partition_id, acks)
    waits = tuple(_Waits(state, acks, facts, partition_id, group, seen))
    return Explanation(
        group, queue, partition_id[1], own.flow, own.state.value, own.epoch, position, delivered, seen.end,
        tuple(_steps(facts, partition_id)), waits,
    )  # fmt: skip


# ---- how it came there
_TOLD = {
    Kind.PARTITION_ADDED: "added to the group, from offset {offset}",
    Kind.PARTITION_REMOVED: "its queue no longer has it",
    Kind.GRANTED: "{flow} owns it from offset {offset}",
    Kind.HANDOFF_STARTED: "{flow} gives it up for {to_flow}",
    Kind.HANDOFF_CANCELLED: "{flow} keeps it",
    Kind.RELEASED: "{flow} has released it at offset {offset}",
    Kind.UNASSIGNED: "{flow} no longer owns it, and had acknowledged up to {offset}",
    Kind.POSITION_RESET: "it is set to offset {offset}",
}
_KEEPS_ITS_OWNER = (Kind.HANDOFF_STARTED, Kind.HANDOFF_CANCELLED, Kind.GRANTED)


def _steps(facts: Rows, partition_id: PartitionId) -> Iterator[Step]:
    deleted = max((n for n, row in enumerate(facts) if row["kind"] == Kind.GROUP_DELETED), default=-1)
    for row in facts[deleted + 1 :]:
        if (row["queue_id"], row["partition"]) != partition_id or row["kind"] not in _TOLD:
            continue
        kind = Kind(row["kind"])
        named = {
            "flow": row["flow"] or "nobody",
            "to_flow": row["to_flow"] or "the flow that the assignment will name",
            "offset": row["offset"],
        }
        forced = " (what was not acknowledged is delivered again)" if row["forced"] else ""
        owner = row["flow"] if kind in _KEEPS_ITS_OWNER else None
        at = row["at"].isoformat(timespec="milliseconds")
        yield Step(row["seq"], at, kind.value, owner, _TOLD[kind].format(**named) + forced, row["cause"], row["by"])


# ---- what it waits for
class _Waits:
    """What a partition waits for, in the order in which the waits end."""

    def __init__(
        self, state: GroupState, acks: Acks, facts: Rows, partition_id: PartitionId, group: str, seen: Surroundings
    ) -> None:
        self._state, self._acks, self._facts, self._id, self._seen = state, acks, facts, partition_id, seen
        self._group = group
        self._own: Ownership = state.partitions[partition_id]
        self._queue = state.queues[partition_id[0]]

    def __iter__(self) -> Iterator[Wait]:
        seen = self._seen
        if seen.fenced_by is not None:
            text = (
                f"The queue was taken over by its replica in {seen.fenced_by}: its messages are no longer delivered here. Use that store. If the replica is "
                "not promoted there, its promotion was interrupted: promote it again."
            )
            yield Wait(WaitKind.FENCE, text)
        if self._own.flow is not None and instance_of(self._own.flow) in seen.silent_s:
            yield self._session(instance_of(self._own.flow))
        yield from {
            PartitionState.UNASSIGNED: self._unassigned,
            PartitionState.DRAINING: self._draining,
            PartitionState.OWNED: self._owned,
        }[self._own.state]()
        if seen.waits_for:
            yield self._barrier()
        if seen.scaling:
            yield Wait(WaitKind.SCALING, seen.scaling)
        if seen.held_keys:
            yield self._held()

    @property
    def _position(self) -> int:
        return self._state.position(self._id, self._acks) or 0

    @property
    def _given(self) -> int:
        """The offset up to which its owner has been given messages. Messages that a former owner was given do not count."""
        return max(self._position, self._acks.delivered(self._id, self._own.lineage_epoch))

    def _session(self, owner: str) -> Wait:
        alive = self._state.members.keys() - self._seen.silent_s.keys()
        who = (
            "Another query of the group"
            if alive
            else f"spark-partq rebalance --group {self._group}, or a query of the group that starts,"
        )
        text = f"The session of its owner {owner} has expired, which has been silent for {self._seen.silent_s[owner]:,.0f} s. {who} takes it out."
        return Wait(WaitKind.SESSION, text)

    def _held(self) -> Wait:
        n, dead = self._seen.held_keys, self._seen.dead_letter_queue
        keys = "1 key" if n == 1 else f"{n:,} keys"
        which = (
            f"{keys} of queue {self._queue.name} are not delivered (of which partition is not known, as the queue has another key_hash than xxhash64)"
            if self._seen.held_anywhere
            else f"{keys} are not delivered"
        )
        text = (
            f"Messages of {which}: an earlier message of each key is dead, so they go to the dead-message queue "
            f"{dead or 'that the queue had'}, too (dead_letter_order=hold), until spark-partq dead-letter redrive {dead or 'QUEUE'} puts them back."
        )
        return Wait(WaitKind.HELD_KEYS, text)

    def _unassigned(self) -> Iterator[Wait]:
        state, name = self._state, self._queue.name
        if not state.members:
            what = ". Start one" if self._seen.fenced_by is None else ""
            yield Wait(WaitKind.NO_MEMBERS, f"No query is in the group{what}; the history says why the last one left.")
        elif not any(member.subscribes(name) for member in state.members.values()):
            yield Wait(WaitKind.NO_READER, f"No query of the group reads queue {name}.")
        elif state.status is Status.HOLDDOWN:
            left_s = self._left_s(status_limit(state))
            text = f"The group waits {state.rebalance_delay_ms:,} ms before it assigns partitions without an owner, because {state.trigger}. "
            yield Wait(WaitKind.HOLDDOWN, text + _ends(left_s), left_s)
        else:
            yield Wait(WaitKind.ASSIGNMENT, self._assignment())

    def _assignment(self) -> str:
        state = self._state
        given_up = [
            f"{state.queues[queue_id].name}/{number}, which {own.flow} owns"
            for (queue_id, number), own in sorted(state.partitions.items())
            if own.state is PartitionState.DRAINING and own.to_flow is None
        ]
        if given_up:
            more = f", and {len(given_up) - 3} more" if len(given_up) > 3 else ""
            return f"The group computes the new owner when all partitions are given up. It waits for {'; '.join(given_up[:3])}{more}."
        return f"The group has not computed the new owner yet, because {state.trigger}. If this lasts, the log of a query says why its assignor fails."

    def _draining(self) -> Iterator[Wait]:
        own = self._own
        receiver = own.to_flow or "the flow that the assignment will name"
        position, delivered = self._position, self._given
        left_s = self._left_s(handoff_limit(self._state, self._id))
        if position < delivered:
            text = f"{own.flow} gives the partition up for {receiver}. It must acknowledge up to offset {delivered}, and has acknowledged up to {position}. "
            yield Wait(WaitKind.HANDOFF, text + _ends(left_s), left_s)
        else:
            text = (
                f"{own.flow} gives the partition up for {receiver}, and has acknowledged all messages that it was given. It releases the partition when "
                f"{self._query(instance_of(own.flow or ''))} notices this and the listeners there have returned (on_partitions_revoked). "
            )
            yield Wait(WaitKind.LISTENER, text + _ends(left_s), left_s)

    def _query(self, instance: str) -> str:
        """The name of a query, and where its process runs."""
        member = self._state.members.get(instance)
        if member is None:
            return f"query {instance}"
        return f"query {instance} (on {', '.join(filter(None, (member.host, member.application)))})"

    def _owned(self) -> Iterator[Wait]:
        owner, end = self._own.flow, self._seen.end
        position, delivered = self._position, self._given
        if position < delivered:
            text = f"{owner} was given messages up to offset {delivered}, and has acknowledged up to {position}."
            yield Wait(WaitKind.ACKNOWLEDGEMENT, text)
        elif end is not None and position >= end:
            yield Wait(WaitKind.MESSAGES, f"There are no new messages: the group has read all up to offset {end}.")
        elif end is not None and not self._seen.waits_for and instance_of(owner or "") not in self._seen.silent_s:
            yield Wait(WaitKind.MICRO_BATCH, self._micro_batch(position, end))

    def _micro_batch(self, position: int, end: int) -> str:
        first, said = self._seen.first, []
        if position < first:
            said.append(
                f"Messages {position} to {first - 1} were removed before the group had read them: the query ends with DATA_LOSS, or goes on behind them "
                "with failOnDataLoss=false."
            )
        if first < end:
            said.append(
                f"{end - max(position, first):,} messages are there for the next micro-batch of {self._own.flow}."
            )
        return " ".join(said)

    def _barrier(self) -> Wait:
        waits_for = self._seen.waits_for
        told = [self._of_barrier(number, cut) for number, cut in sorted(waits_for.items())]
        text = "Its next messages were written after a resize, and older messages of their keys are in other partitions. They wait for "
        return Wait(WaitKind.BARRIER, f"{text}{'; '.join(told)}.", partitions=dict(waits_for))

    def _of_barrier(self, number: int, cut: int) -> str:
        partition_id = self._id[0], number
        other = self._state.partitions.get(partition_id)
        position = self._state.position(partition_id, self._acks) or 0
        who = "no owner" if other is None or other.flow is None else f"owner {other.flow}"
        if other is not None and other.flow is not None and instance_of(other.flow) in self._seen.silent_s:
            who += ", whose session has expired"
        return f"partition {number} of {self._queue.name} up to offset {cut} ({who}, acknowledged up to {position})"

    def _left_s(self, limit: Limit | None) -> float | None:
        return None if limit is None else limit.left_s(self._facts, self._seen.now)


def _ends(left_s: float | None) -> str:
    if left_s is None:
        return ""
    if left_s > 0:
        return f"This ends in {left_s:.1f} s at the latest."
    return "The time for this is over: a query of the group ends it, or spark-partq rebalance."
