"""What one process may plan, acknowledge, replay and release: a member's side of the protocol.

Pure: each function looks at one state of the group and says what follows for this incarnation. They are the rules without
which messages are lost or a handoff hangs; the simulator in `spark_partq.testing` runs exactly these.

Whoever calls them keeps to this, or messages are lost or delivered twice:

- What was planned is delivered as a whole, even if the partition is lost meanwhile: back in its lineage later, it is acknowledged.
- After a restart: join, look, `replayed`, `Handed.plan` of all that it returns, and only then anything else.
- What a batch has finished is acknowledged before anything is released on the same look.
- A process that joins again while a batch runs keeps its `Handed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import FencedError
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.events import Drained
from spark_partq.core.group.facts import Ownership, PartitionState
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import Flow, PartitionId

Ranges = Mapping[PartitionId, Range]


@dataclass(frozen=True)
class Standing:
    """What a process is to its group, as of one look."""

    member: bool  # it is registered
    fenced: bool  # a newer process is registered under its instance id


def standing(state: GroupState, instance: str, incarnation: str) -> Standing:
    member = state.members.get(instance)
    mine = member is not None and member.incarnation == incarnation
    return Standing(mine, member is not None and not mine)


def owned(state: GroupState, incarnation: str) -> dict[PartitionId, Ownership]:
    """What this process holds, draining or not."""
    return {
        partition_id: own
        for partition_id, own in state.partitions.items()
        if own.flow and own.incarnation == incarnation
    }


def plannable(state: GroupState, incarnation: str) -> dict[PartitionId, Ownership]:
    """What it may plan more of: what it holds, less what is draining (H1)."""
    return {
        partition_id: own
        for partition_id, own in owned(state, incarnation).items()
        if own.state is PartitionState.OWNED
    }


def same_lineage(own: Ownership | None, incarnation: str, epoch: int) -> bool:
    """Whether a range that was planned under `epoch` lies in this process's unbroken ownership.

    By epoch, never by the owner's name, and also while it is draining.
    """
    return own is not None and own.incarnation == incarnation and own.lineage_epoch <= epoch <= own.epoch


def finished(state: GroupState, incarnation: str, done: Ranges) -> list[tuple[PartitionId, int, int]]:
    """What to acknowledge of a batch that has finished: (partition, epoch, offset).

    Only ranges in its lineage, which now belong to the current epoch. What was left out of a replay is not in it. An empty range
    counts too: all below it is finished, and an acknowledgement that was sent before may have come under a past epoch.
    """
    return [
        (partition_id, state.partitions[partition_id].epoch, r.end)
        for partition_id, r in done.items()
        if same_lineage(state.partitions.get(partition_id), incarnation, r.epoch)
    ]


def start(state: GroupState, acks: Acks, incarnation: str, partition_id: PartitionId, done: Range | None) -> int:
    """Where the next batch of a partition starts: its position, or the end of this process's own last batch in its lineage.

    With manual acknowledgement `done` is None until this process has delivered something: what the application has not
    acknowledged is then delivered again.
    """
    position = state.position(partition_id, acks) or 0
    if done is not None and same_lineage(state.partitions.get(partition_id), incarnation, done.epoch):
        return max(position, done.end)
    return position


def replayed(
    state: GroupState, acks: Acks, incarnation: str, planned: Ranges, manual: bool
) -> dict[PartitionId, Range]:
    """What to deliver of a batch that was planned before a restart; the other partitions are left out for good.

    Nothing below the position: it is acknowledged and may be removed already (by another process of this instance, or the
    checkpoint is an old copy). With manual acknowledgement it begins there, which may be before the batch. An empty range
    stays, for a release has to wait until all below it is acknowledged; not so if that is for the application to do.

    Raises
    ------
    FencedError
        If this process is not registered as of this look. What it left out now, its successor would take for delivered.
    """
    if incarnation not in {member.incarnation for member in state.members.values()}:
        raise FencedError(
            "this process has lost its place in the group before it could replay its last micro-batch; start the query again",
            incarnation=incarnation,
        )
    kept = {}
    for partition_id, r in planned.items():
        empty = r.end <= r.start
        if not same_lineage(state.partitions.get(partition_id), incarnation, r.epoch) or (empty and manual):
            continue
        position = state.position(partition_id, acks) or 0
        first = position if manual else max(r.start, position)
        if first < r.end or empty:
            kept[partition_id] = Range(state.partitions[partition_id].epoch, min(first, r.end), r.end)
    return kept


@dataclass
class Handed:
    """What this process has handed out of each partition, and under which epoch: the end it planned last."""

    ends: dict[PartitionId, tuple[int, int]] = field(default_factory=dict)

    def plan(self, ranges: Ranges) -> None:
        for partition_id, r in ranges.items():
            self.ends[partition_id] = (r.epoch, r.end)

    def last(self, partition_id: PartitionId) -> Range | None:
        """The end of what was handed out, as an empty range; None if this process has handed out nothing of it.

        With manual acknowledgement this is what `start` needs: a partition that drained for a while, and whose handoff was
        cancelled, is no longer in the offsets of the last batch, but what was delivered of it is still the application's.
        """
        if partition_id not in self.ends:
            return None
        epoch, end = self.ends[partition_id]
        return Range(epoch, end, end)

    def drained(self, state: GroupState, acks: Acks, incarnation: str) -> list[Drained]:
        """The draining partitions of which everything that was handed out is acknowledged.

        The caller must not plan on a look that is older than the commit of what follows from this.
        """
        events = []
        for partition_id, own in owned(state, incarnation).items():
            if own.state is not PartitionState.DRAINING:
                continue
            position = state.position(partition_id, acks) or 0
            epoch, end = self.ends.get(partition_id, (own.epoch, position))
            if not same_lineage(own, incarnation, epoch):
                end = position  # planned in an ownership that has ended; it does not count
            if position >= end:
                events.append(Drained(partition_id, incarnation, own.epoch, position))
        return events


def ack_rows(
    incarnation: str, beat: int, finished: Iterable[tuple[PartitionId, int, int]], planned: Ranges
) -> list[AckRow]:
    """One commit's rows: what is finished, what is about to be handed out, and the heartbeat."""
    rows: dict[PartitionId, AckRow] = {}
    for partition_id, epoch, offset in finished:
        rows[partition_id] = AckRow(incarnation, beat, *partition_id, epoch, offset, offset)
    for partition_id, r in planned.items():
        if r.end > r.start:
            offset = rows[partition_id].offset if partition_id in rows else 0
            rows[partition_id] = AckRow(incarnation, beat, *partition_id, r.epoch, offset, r.end)
    return list(rows.values()) or [AckRow(incarnation, beat)]


def by_flow(state: GroupState, incarnation: str) -> dict[Flow, list[PartitionId]]:
    """What each flow of this process holds."""
    flows: dict[Flow, list[PartitionId]] = {}
    for partition_id, own in sorted(owned(state, incarnation).items()):
        flows.setdefault(own.flow or "", []).append(partition_id)
    return flows
