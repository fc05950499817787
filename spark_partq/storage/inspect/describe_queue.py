"""A queue as it is described to people and programs (Q8, S8)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.payload.schema import type_name
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import freeing, stuck_messages, waiting_partitions
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.replica.table import replica_state


@dataclass(frozen=True)
class PartitionDescription:
    """One partition: the messages ``[first_offset, next_offset)`` are stored; `depth` of them not yet read by every group.

    Attributes
    ----------
    partition : int
        Its number; -1 is the parent of a queue that became partitioned.
    first_offset, next_offset : int
        The offsets of the first message that is stored, and of the next one that comes.
    depth : int
        Stored messages that not every group has acknowledged.
    files, size_bytes : int
        Of the messages that are stored.
    sealed : bool
        It takes no messages until the next partition map is in force (S5).
    fenced : bool
        It takes no messages, as a replica takes over (S7).
    """

    partition: int
    first_offset: int
    next_offset: int
    depth: int
    files: int
    size_bytes: int
    sealed: bool = False
    fenced: bool = False


@dataclass(frozen=True)
class QueueDescription:
    """A queue as `describe_queue` shows it.

    Attributes
    ----------
    name, queue_id : str
        Its name, and a UUID that no other queue of that name has.
    status : str
        ``Ready``, or what is under way, such as ``ScalingUp``.
    role : str
        ``primary``, ``replica of URI``, or ``taken over by URI`` (S7). Only a primary takes messages and gives them to consumers.
    replicas : tuple of str
        The stores of its replicas; a replica has none.
    fenced_by : str or None
        The store of the replica that has taken over; None if none has.
    key : tuple of str
        The columns of its key.
    schema : str
        Its columns, as Spark's DDL.
    settings : dict
        Setting to value.
    groups : tuple of str
        The consumer groups that read it.
    depth : int
        Messages that not every group has acknowledged, in all partitions.
    waiting : dict
        By group how many partitions wait at the barrier of a resize: the group must acknowledge older messages first (S5). Groups without
        such a partition are left out.
    partitions : tuple of PartitionDescription
        By their numbers.
    configured_partitions, operating_partitions : int
        Wanted count, and how many consumers share; 0 is an exclusive queue (S6, S8).
    generation : int
        Of the partition map in force.
    scaling : str or None
        Mode of a change of the count that is under way.
    ingress : bool
        Whether it takes messages (S3).
    discarded : int
        Messages that were discarded while it did not.
    lost : int
        Messages that were lost by changes of the count with mode ``delete`` (S2).
    stuck : int
        Messages in the parent of a queue that became partitioned that not every group has acknowledged; nobody is given them
        until they are copied (S6).
    altered : dict
        Of each setting that was changed since the queue was created, when that was last, in UTC (ISO 8601).
    key_hash : str
        By which its keys are placed: ``xxhash64``, or ``murmur2`` as in Kafka.
    incarnation : str
        UUID: `queue_id`, until a replica is promoted. A query's checkpoint is of one incarnation (S7).
    """

    name: str
    queue_id: str
    status: str
    role: str
    configured_partitions: int
    operating_partitions: int
    generation: int
    scaling: str | None
    ingress: bool
    discarded: int
    lost: int
    stuck: int
    replicas: tuple[str, ...]
    fenced_by: str | None
    incarnation: str
    key: tuple[str, ...]
    key_hash: str
    schema: str
    settings: dict[str, Any]
    altered: dict[str, str]
    groups: tuple[str, ...]
    depth: int
    waiting: dict[str, int]
    partitions: tuple[PartitionDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def describe(queue: Queue, groups: Sequence[Group]) -> QueueDescription:
    """Describe an open queue. The depth follows from its groups' positions."""
    queue.refresh()
    partitions = describe_partitions(queue, groups)
    state = queue.state
    replica = replica_state(queue.store, state.name)
    primary = replica.primary if replica is not None and not replica.promoted else None
    waits = {group.name: len(waiting_partitions(queue, group)) for group in groups}
    return QueueDescription(
        name=state.name,
        queue_id=state.queue_id,
        status=state.status,
        role=_role(state, primary),
        configured_partitions=state.configured_partitions,
        operating_partitions=state.operating_partitions,
        generation=state.generation,
        scaling=state.scaling.mode if state.scaling else None,
        ingress=state.ingress,
        discarded=queue.control.discarded,
        lost=lost_messages(queue),
        stuck=stuck_messages(queue, groups),
        replicas=state.replicas if primary is None else (),  # a copy names the primary's replicas
        fenced_by=state.fenced_by,
        incarnation=state.incarnation,
        key=state.key,
        key_hash=state.key_hash,
        schema=type_name(state.schema)[len("struct<") : -1],
        settings=state.settings.model_dump(),
        altered=altered_at(queue),
        groups=tuple(group.name for group in groups),
        depth=sum(p.depth for p in partitions),
        waiting={name: count for name, count in waits.items() if count},
        partitions=tuple(partitions),
    )


def _role(state: QueueState, primary: str | None) -> str:
    """The queue's role among the queues of its name in other stores. `primary`: the location of the queue of which it is a replica."""
    if primary is not None:  # its control table is a copy, and so is a fence in it
        return f"replica of {primary}"
    return "primary" if state.fenced_by is None else f"taken over by {state.fenced_by}"


def describe_partitions(queue: Queue, groups: Sequence[Group]) -> list[PartitionDescription]:
    """The operating partitions of a queue, as of its and its groups' last refresh."""
    partitions, readers = [], freeing(queue, groups)
    for table in queue.partitions:
        read = min((group.position((queue.state.queue_id, table.partition)) or 0 for group in readers), default=0)
        partitions.append(
            PartitionDescription(
                table.partition,
                table.first_offset,
                table.next_offset,
                max(0, table.next_offset - max(table.first_offset, read)),
                len(table.index),
                int(table.index.size.sum()),
                table.sealed >= queue.state.generation,
                table.fenced,
            )
        )
    return partitions


def altered_at(queue: Queue) -> dict[str, str]:
    """For each setting that was changed, the time of its last change, by the clock of the process that changed it."""
    changed: dict[str, str] = {}
    for row in queue.control.history():
        if row["kind"] == "QueueAltered":
            changed |= dict.fromkeys(json.loads(row["body"])["settings"], row["at"].isoformat())
    return {name: changed[name] for name in QueueSettings.model_fields if name in changed}


def lost_messages(queue: Queue) -> int:
    """How many messages changes of the count with mode ``delete`` have lost so far (S2)."""
    removed = [row["body"] for row in queue.control.history() if row["kind"] == "PartitionsRemoved"]
    return sum(int(json.loads(body)["lost"]) for body in removed)
