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
from spark_partq.storage.replica.table import replica_role, replica_state


@dataclass(frozen=True)
class PartitionDescription:
    """One partition of a queue: the messages ``[first_offset, next_offset)`` are stored, and not every group has acknowledged `depth` of them.

    Attributes
    ----------
    partition : int
        The number of the partition in the queue; -1 is the parent of a queue that became partitioned.
    first_offset : int
        The offset of the first message of the partition that is stored.
    next_offset : int
        The offset that the partition's next message will get.
    depth : int
        Stored messages of the partition that not every group has acknowledged.
    files : int
        How many files hold the stored messages of the partition.
    size_bytes : int
        The size in bytes of the files that hold the stored messages of the partition.
    sealed : bool
        Whether the partition is sealed: it takes no messages until the next partition map is in force (S5).
    fenced : bool
        Whether the partition is fenced: it takes no messages, because a replica takes over (S7).
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
    name : str
        The name of the queue.
    queue_id : str
        The id of the queue, a UUID; no other queue of the same name has this id.
    status : str
        The status of the queue: ``Ready``, or what is under way, such as ``ScalingUp``.
    role : str
        The role of the queue: ``primary``, ``replica of URI``, or ``taken over by URI`` (S7). Only a primary takes messages and gives them to
        consumers.
    replicas : tuple of str
        The stores that have replicas of the queue; empty for a queue that is a replica.
    fenced_by : str or None
        The store of the replica that has taken over from the queue; None if no replica has.
    key : tuple of str
        The columns of the queue's key.
    schema : str
        The columns of the queue, as Spark's DDL.
    settings : dict
        The settings of the queue: the value of each setting, by name.
    groups : tuple of str
        The names of the consumer groups that read the queue.
    depth : int
        Stored messages that not every group has acknowledged, in all partitions of the queue.
    waiting : dict
        By group, how many partitions of the queue wait at the barrier of a resize: the group must acknowledge older messages first (S5). Groups
        without such a partition are left out.
    partitions : tuple of PartitionDescription
        The partitions of the queue, in the order of their numbers.
    configured_partitions : int
        The partition count that is wanted for the queue; 0 is an exclusive queue (S6, S8).
    operating_partitions : int
        How many partitions of the queue consumers share; 0 is an exclusive queue (S6, S8).
    generation : int
        The generation of the queue's partition map that is in force.
    scaling : str or None
        The mode of the change of the partition count that is under way; None if no change is.
    ingress : bool
        Whether the queue takes messages (S3).
    discarded : int
        Messages that were discarded while the ingress of the queue was disabled.
    lost : int
        Messages that were lost by changes of the partition count with mode ``delete`` (S2).
    stuck : int
        Messages in the parent of a queue that became partitioned that not every group has acknowledged; no group gets them until they are
        copied (S6).
    altered : dict
        For each setting that was changed since the queue was created, the time of the last change, in UTC (ISO 8601).
    key_hash : str
        The hash that places keys into partitions: ``xxhash64``, or ``murmur2`` as in Kafka.
    incarnation : str
        The incarnation of the queue, a UUID: `queue_id`, until a replica is promoted. A query's checkpoint belongs to one incarnation (S7).
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


def fenced_by(queue: Queue) -> str | None:
    """The replica that takes over from the queue. A copy may have been made while its primary was fenced; that says nothing of the copy."""
    return None if replica_role(queue.store, queue.name) == "replica" else queue.state.fenced_by


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
