"""State of a consumer group, replayed from the facts of its control table; and its positions.

An **offset** is always the next message wanted. The **position** of a partition is where its next owner starts:
the highest of the grant's start, the floor, and what was acknowledged under the grant's epoch.

A grant belongs to an *instance* (a name that survives restarts) in one *incarnation* (one process). A rejoin of the
same instance raises the epoch but continues the ownership that began in the *base epoch*: what it planned since then
is still its own to deliver and to acknowledge. Any other instance breaks that line. An acknowledgement counts only
under the partition's current epoch and from the incarnation that holds it, so what an older process still sends changes nothing (H4, W2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PartitionId = tuple[str, int]  # (queue id, partition number)


@dataclass(frozen=True)
class GroupFact:
    """One row of a group's control table.

    `kind` is one of

    - ``Granted``  the partition belongs to `instance` under `epoch`, starting at `offset`
    - ``Floor``    the group will never again want anything of the partition below `offset`
    """

    kind: Literal["Granted", "Floor"]
    queue: str
    queue_id: str
    partition: int
    offset: int
    epoch_before: int
    epoch: int
    base_epoch: int
    instance: str
    incarnation: str
    cause: str


@dataclass(frozen=True)
class Grant:
    instance: str
    incarnation: str
    epoch: int
    base_epoch: int
    start: int


@dataclass
class GroupState:
    """Mutable only through `replay`."""

    queues: dict[str, str] = field(default_factory=dict)  # queue id -> name
    grants: dict[PartitionId, Grant] = field(default_factory=dict)
    floors: dict[PartitionId, int] = field(default_factory=dict)

    def replay(self, fact: GroupFact) -> None:
        where = (fact.queue_id, fact.partition)
        self.queues[fact.queue_id] = fact.queue
        if fact.kind == "Granted":
            self.grants[where] = Grant(fact.instance, fact.incarnation, fact.epoch, fact.base_epoch, fact.offset)
        else:
            self.floors[where] = max(fact.offset, self.floors.get(where, 0))

    def position(self, where: PartitionId, acks: Mapping[tuple[PartitionId, int], int]) -> int | None:
        """Offset of the next message the group wants, or None if it never had the partition.

        `acks` maps (partition, epoch) to the highest offset acknowledged.
        """
        grant = self.grants.get(where)
        if grant is None:
            return None
        return max(grant.start, self.floors.get(where, 0), acks.get((where, grant.epoch), 0))


def join(
    state: GroupState,
    instance: str,
    incarnation: str,
    partitions: Sequence[tuple[str, str, int]],
    acks: Mapping[tuple[PartitionId, int], int],
    first_start: Mapping[PartitionId, int],
) -> list[GroupFact]:
    """The facts by which `instance` becomes the owner of all these partitions (queue, queue id, number).

    A partition that the group already has goes on at its position, any other at its `first_start`.
    """
    facts = []
    for queue, queue_id, number in partitions:
        where = (queue_id, number)
        old = state.grants.get(where)
        if old is None:
            epoch, base, start, cause = 1, 1, first_start[where], "first start of the group on this partition"
        else:
            epoch, start = old.epoch + 1, state.position(where, acks) or 0
            same = old.instance == instance
            base = old.base_epoch if same else epoch
            cause = f"{instance} rejoined" if same else f"{instance} took over from {old.instance}"
        facts.append(
            GroupFact(
                "Granted",
                queue,
                queue_id,
                number,
                start,
                old.epoch if old else 0,
                epoch,
                base,
                instance,
                incarnation,
                cause,
            )
        )
    return facts


def floors(state: GroupState, acks: Mapping[tuple[PartitionId, int], int], queue_id: str) -> list[GroupFact]:
    """Facts that raise the floor of each partition of the queue to its position, where that is higher."""
    facts = []
    for where, grant in sorted(state.grants.items()):
        position = state.position(where, acks) or 0
        if where[0] == queue_id and position > state.floors.get(where, 0):
            facts.append(
                GroupFact(
                    "Floor", state.queues[queue_id], queue_id, where[1], position, grant.epoch, grant.epoch,
                    grant.base_epoch, grant.instance, grant.incarnation, "maintenance may remove what lies below",
                )
            )  # fmt: skip
    return facts


def counted(rows: Iterable[tuple[PartitionId, int, int]]) -> dict[tuple[PartitionId, int], int]:
    """Acknowledgements (partition, epoch, offset) as a map; within an epoch the highest offset counts."""
    best: dict[tuple[PartitionId, int], int] = {}
    for where, epoch, offset in rows:
        best[where, epoch] = max(offset, best.get((where, epoch), 0))
    return best
