"""A member's side of the protocol: what one process may plan, acknowledge, replay and release.

All functions are pure: each takes one state of the group and returns what follows for this incarnation. Without these rules messages would
be lost, or a handoff would never end.

The caller must do four things; otherwise messages are lost or delivered twice:

- It delivers a planned range as a whole, even if the partition is lost meanwhile: if the partition returns in the same lineage, the range
  is acknowledged.
- After a restart it joins, refreshes the group, calls `replayed`, and gives the result to `DeliveryTracker.record`, before it does
  anything else.
- It acknowledges the messages of a finished batch before it releases a partition on the same state.
- If the process joins again while a batch runs, it keeps its `DeliveryTracker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import FencedError
from spark_partq.core.group.acks import NO_WORK, AckRow, Acks, Work, heartbeat
from spark_partq.core.group.events import Drained
from spark_partq.core.group.facts import Ownership, PartitionState
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import Flow, PartitionId

Ranges = Mapping[PartitionId, Range]


@dataclass(frozen=True)
class MembershipStatus:
    """A process's status in its group.

    Attributes
    ----------
    registered : bool
        This process is the member of its instance id.
    fenced : bool
        A newer process is the member of that instance id.
    """

    registered: bool
    fenced: bool


def membership_status(state: GroupState, instance: str, incarnation: str) -> MembershipStatus:
    member = state.members.get(instance)
    registered = member is not None and member.incarnation == incarnation
    return MembershipStatus(registered, member is not None and not registered)


def owned(state: GroupState, incarnation: str) -> dict[PartitionId, Ownership]:
    """The partitions that this process owns, draining or not."""
    return {
        partition_id: own
        for partition_id, own in state.partitions.items()
        if own.flow and own.incarnation == incarnation
    }


def plannable(state: GroupState, incarnation: str) -> dict[PartitionId, Ownership]:
    """The partitions of which this process may plan more: those that it owns and that do not drain (H1)."""
    return {
        partition_id: own
        for partition_id, own in owned(state, incarnation).items()
        if own.state is PartitionState.OWNED
    }


def may_be_dead(
    state: GroupState, acks: Acks, incarnation: str, before: Mapping[str, int], ends: Mapping[PartitionId, int]
) -> bool:
    """Whether messages below `ends` belong to another process that has sent no heartbeat since the heartbeats were `before`.

    Parameters
    ----------
    before : mapping
        The last heartbeat of each incarnation at an earlier moment.
    """
    return any(
        own.incarnation
        and own.incarnation != incarnation
        and acks.beats.get(own.incarnation, 0) == before.get(own.incarnation, 0)
        and (state.position(partition_id, acks) or 0) < ends.get(partition_id, 0)
        for partition_id, own in state.partitions.items()
    )


def same_lineage(own: Ownership | None, incarnation: str, epoch: int) -> bool:
    """Whether a range that was planned under `epoch` lies in this process's unbroken ownership.

    The epoch decides, never the owner's name. A draining partition counts, too.
    """
    return own is not None and own.incarnation == incarnation and own.continues(epoch)


def finished(state: GroupState, incarnation: str, done: Ranges) -> list[tuple[PartitionId, int, int]]:
    """What to acknowledge of a batch that has finished: (partition, epoch, offset).

    Only ranges in this process's lineage count; they now belong to the current epoch. Ranges that a replay left out do not count. An empty
    range counts, too: all messages below it are finished, and an earlier acknowledgement may have come under a past epoch.
    """
    return [
        (partition_id, state.partitions[partition_id].epoch, r.end)
        for partition_id, r in done.items()
        if same_lineage(state.partitions.get(partition_id), incarnation, r.epoch)
    ]


def start(state: GroupState, acks: Acks, incarnation: str, partition_id: PartitionId, done: Range | None) -> int:
    """Where the next batch of a partition starts: its position, or the end of this process's own last batch in its lineage.

    With manual acknowledgement `done` is None until this process has delivered something. So it delivers again the messages that the
    application has not acknowledged.
    """
    position = state.position(partition_id, acks) or 0
    if done is not None and same_lineage(state.partitions.get(partition_id), incarnation, done.epoch):
        return max(position, done.end)
    return position


def replayed(
    state: GroupState, acks: Acks, incarnation: str, planned: Ranges, manual: bool
) -> dict[PartitionId, Range]:
    """What to deliver of a batch that was planned before a restart. The other partitions of the batch are left out for good.

    Nothing below the position is delivered: these messages are acknowledged, by another process of this instance or because the checkpoint
    is an old copy, and may be removed already. With manual acknowledgement a range begins at the position, which may lie before the batch.
    An empty range is kept, as a release has to wait until all messages below it are acknowledged. With manual acknowledgement it is not
    kept, as the application acknowledges them.

    Raises
    ------
    FencedError
        If this process is not registered in this state: its successor would take the messages that it left out for delivered.
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


def left_to_others(state: GroupState, acks: Acks, incarnation: str, planned: Ranges) -> dict[PartitionId, int]:
    """The epochs of ranges that `replayed` leaves out, and that another process could take for delivered.

    Another instance planned them, from the same checkpoint or from a copy of it, and has their partitions or may get them back in the same
    lineage. If that instance runs from this checkpoint later, it finds the batch finished. So these lineages have to end.
    """
    return {
        partition_id: r.epoch
        for partition_id, r in planned.items()
        if (own := state.partitions.get(partition_id)) is not None
        and own.incarnation != incarnation
        and own.continues(r.epoch)
        and (state.position(partition_id, acks) or 0) < r.end
    }


@dataclass
class DeliveryTracker:
    """Remembers how far this process has planned each partition.

    Attributes
    ----------
    planned_ends : dict
        By partition, the epoch and the end of the range that was planned last.
    """

    planned_ends: dict[PartitionId, tuple[int, int]] = field(default_factory=dict)

    def record(self, ranges: Ranges) -> None:
        """Take note of ranges that are about to be delivered."""
        for partition_id, r in ranges.items():
            self.planned_ends[partition_id] = (r.epoch, r.end)

    def last_planned(self, state: GroupState, incarnation: str, partition_id: PartitionId) -> Range | None:
        """The end of the range that was planned last, as an empty range; None if nothing was planned in this process's unbroken ownership.

        A range that was planned in an ownership that has ended belongs to the next owner: this process may not acknowledge it. With manual
        acknowledgement `start` needs this end: if a partition drained for a while and its handoff was cancelled, the offsets of the last
        batch do not contain the partition, but the application still has to acknowledge its delivered messages.
        """
        epoch, end = self.planned_ends.get(partition_id, (-1, 0))
        mine = same_lineage(state.partitions.get(partition_id), incarnation, epoch)
        return Range(epoch, end, end) if mine else None

    def given(self, state: GroupState, incarnation: str) -> dict[PartitionId, int]:
        """How far this process was given each partition that it owns, in its unbroken ownership.

        Call this while no micro-batch runs: then all planned messages have been given.
        """
        planned = {
            partition_id: self.last_planned(state, incarnation, partition_id) for partition_id in self.planned_ends
        }
        return {partition_id: last.end for partition_id, last in planned.items() if last is not None}

    def drained(self, state: GroupState, acks: Acks, incarnation: str) -> list[Drained]:
        """The draining partitions whose planned messages are all acknowledged.

        The caller must not plan on a state that is older than the commit of these events.
        """
        events = []
        for partition_id, own in owned(state, incarnation).items():
            if own.state is not PartitionState.DRAINING:
                continue
            position = state.position(partition_id, acks) or 0
            last = self.last_planned(state, incarnation, partition_id)
            if last is None or position >= last.end:
                events.append(Drained(partition_id, incarnation, own.epoch, position))
        return events


def ack_rows(
    incarnation: str,
    beat: int,
    finished: Iterable[tuple[PartitionId, int, int]],
    planned: Ranges,
    attempts: Mapping[PartitionId, int],
    work: Work = NO_WORK,
) -> list[AckRow]:
    """The rows of one commit: what is finished, what is about to be delivered (with the number of the delivery, if deliveries are
    counted), and the heartbeat with what the query has done so far.
    """
    rows: dict[PartitionId, AckRow] = {}
    for partition_id, epoch, offset in finished:
        rows[partition_id] = AckRow(incarnation, beat, *partition_id, epoch, offset, offset)
    for partition_id, r in planned.items():
        if r.end > r.start:
            offset = rows[partition_id].offset if partition_id in rows else 0
            rows[partition_id] = AckRow(
                incarnation, beat, *partition_id, r.epoch, offset, r.end, r.start, attempts.get(partition_id, 0)
            )
    return [*rows.values(), *([heartbeat(incarnation, beat, work)] if work != NO_WORK or not rows else [])]


def by_flow(state: GroupState, incarnation: str) -> dict[Flow, list[PartitionId]]:
    """The partitions that each flow of this process owns."""
    flows: dict[Flow, list[PartitionId]] = {}
    for partition_id, own in sorted(owned(state, incarnation).items()):
        flows.setdefault(own.flow or "", []).append(partition_id)
    return flows
