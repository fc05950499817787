"""Acknowledgements and heartbeats: what the ack table says.

Each row is written by one incarnation of an instance. A row may say that all messages of a partition below `offset` are finished, and
that all below `delivered` were delivered under `epoch`. It may also say that ``[start, delivered)`` is delivered for the `attempt`-th
time (`core.group.attempts`; 0 if deliveries are not counted). Each row has the incarnation's heartbeat, a counter. The control table
alone decides whether a row counts (`core.group`). A row without a partition may tell of its writer's `Work`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from spark_partq.core.group.attempts import needed
from spark_partq.core.ids import PartitionId


@dataclass(frozen=True)
class Work:
    """What a query has done since its process began, for monitors. No decision uses it.

    Attributes
    ----------
    lost_races : int
        Commits to the group's tables that the query had to repeat, as another process was first.
    planner_calls, planner_ms : int
        Calls of its planner that have ended, and how many milliseconds they took.
    """

    lost_races: int = 0
    planner_calls: int = 0
    planner_ms: int = 0


NO_WORK = Work()


@dataclass(frozen=True)
class AckRow:
    """One row; `queue_id` and `partition` are None in a row that is only a heartbeat."""

    incarnation: str
    beat: int
    queue_id: str | None = None
    partition: int | None = None
    epoch: int = 0
    offset: int = 0
    delivered: int = 0
    start: int = 0
    attempt: int = 0

    @property
    def partition_id(self) -> PartitionId | None:
        return None if self.queue_id is None or self.partition is None else (self.queue_id, self.partition)

    @property
    def work(self) -> Work:
        """The work that the row reports, if it is only a heartbeat. Older releases know no columns for work, and ignore the ones used here."""
        return NO_WORK if self.partition_id is not None else Work(self.epoch, self.offset, self.delivered)


def heartbeat(incarnation: str, beat: int, work: Work = NO_WORK) -> AckRow:
    """A row that is only a heartbeat, and reports work."""
    return AckRow(incarnation, beat, epoch=work.lost_races, offset=work.planner_calls, delivered=work.planner_ms)


# Stands for an incarnation in rows of attempts; no process has that name.
_OF_AN_ATTEMPT = "attempt"

Attempt = tuple[int, int]  # epoch, number of the delivery
Claim = tuple[PartitionId, int, str]  # partition, epoch, incarnation


@dataclass
class Acks:
    """What all rows together say. Rows may be added in any order, and more than once.

    Attributes
    ----------
    beats : dict
        The last heartbeat of each incarnation.
    rows : dict
        What each incarnation acknowledged under each epoch.
    delivered_ends : dict
        For each partition, the end of what any process ever delivered, under any epoch.
    attempts : dict
        For each partition, the ranges that were delivered, each with the last epoch under which it was delivered and the number of the
        delivery.
    by_epoch : dict
        For each partition, epochs, each with the end of what was delivered under it: only epochs under which more was delivered than
        under any later one.
    work : dict
        What each incarnation has done, for incarnations that report it.
    """

    beats: dict[str, int] = field(default_factory=dict)
    rows: dict[Claim, int] = field(default_factory=dict)
    delivered_ends: dict[PartitionId, int] = field(default_factory=dict)
    attempts: dict[PartitionId, dict[tuple[int, int], Attempt]] = field(default_factory=dict)
    by_epoch: dict[PartitionId, dict[int, int]] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[AckRow]) -> Acks:
        acks = cls()
        for row in rows:
            acks.add(row)
        return acks

    def add(self, row: AckRow) -> None:
        if row.incarnation != _OF_AN_ATTEMPT:
            self.beats[row.incarnation] = max(row.beat, self.beats.get(row.incarnation, 0))
        if row.partition_id is not None:
            claim = (row.partition_id, row.epoch, row.incarnation)
            self.rows[claim] = max(row.offset, self.rows.get(claim, 0))
            self.delivered_ends[row.partition_id] = max(row.delivered, self.delivered_ends.get(row.partition_id, 0))
            if row.attempt:
                of_partition = self.attempts.setdefault(row.partition_id, {})
                range_ = row.start, row.delivered
                of_partition[range_] = max((row.epoch, row.attempt), of_partition.get(range_, (-1, 0)))
            ends = self.by_epoch.setdefault(row.partition_id, {})
            if all(end < row.delivered for epoch, end in ends.items() if epoch >= row.epoch):
                for epoch in [e for e, end in ends.items() if e <= row.epoch and end <= row.delivered]:
                    del ends[epoch]
                ends[row.epoch] = row.delivered
        elif row.work != NO_WORK:
            told, before = row.work, self.work.get(row.incarnation, NO_WORK)
            self.work[row.incarnation] = Work(
                max(told.lost_races, before.lost_races),
                max(told.planner_calls, before.planner_calls),
                max(told.planner_ms, before.planner_ms),
            )

    def attempts_since(self, partition_id: PartitionId, epoch: int) -> dict[tuple[int, int], int]:
        """The numbers of deliveries under that epoch or a later one (`core.group.attempts`)."""
        found = self.attempts.get(partition_id, {})
        return {range_: number for range_, (under, number) in found.items() if under >= epoch}

    def offset(self, partition_id: PartitionId, epoch: int, incarnation: str) -> int:
        return self.rows.get((partition_id, epoch, incarnation), 0)

    def delivered(self, partition_id: PartitionId, since: int = 0) -> int:
        """The end of what was delivered of a partition under epochs from `since` on."""
        if since:
            ends = self.by_epoch.get(partition_id, {})
            return max((end for epoch, end in ends.items() if epoch >= since), default=0)
        return self.delivered_ends.get(partition_id, 0)


def compacted(rows: Iterable[AckRow], live: Iterable[str], gone: Collection[str] = ()) -> list[AckRow]:
    """The rows that can still count.

    For each partition: one row per incarnation under the highest epoch; one row for each older epoch under which more was delivered
    than under all later ones; and the attempts above what these rows acknowledge. For each incarnation in `live`: its last heartbeat,
    and its work.

    An acknowledgement under an older epoch never counts again, but what was delivered under it still counts. The highest epoch is taken
    over all rows, so the order of commits does not matter. Rows of queues whose ids are in `gone` do not count.
    """
    acks = Acks.of(rows)
    newest: dict[PartitionId, int] = {}
    for partition_id, epoch, _ in acks.rows:
        newest[partition_id] = max(epoch, newest.get(partition_id, 0))
    kept, older = [], set()
    positions: dict[PartitionId, int] = {}
    for (partition_id, epoch, incarnation), offset in acks.rows.items():
        if partition_id[0] in gone:
            continue
        if epoch == newest[partition_id]:
            positions[partition_id] = max(offset, positions.get(partition_id, 0))
            delivered = acks.by_epoch[partition_id].get(epoch, 0)
        elif epoch in acks.by_epoch[partition_id] and (partition_id, epoch) not in older:
            older.add((partition_id, epoch))
            delivered = acks.by_epoch[partition_id][epoch]
        else:
            continue
        kept.append(AckRow(incarnation, acks.beats.get(incarnation, 0), *partition_id, epoch, offset, delivered))
    written = {row.incarnation for row in kept}
    kept += [
        AckRow(_OF_AN_ATTEMPT, 0, *partition_id, epoch, 0, end, start, attempt)
        for partition_id in acks.attempts
        if partition_id in positions
        for (start, end), (epoch, attempt) in needed(acks.attempts[partition_id], positions[partition_id]).items()
    ]
    kept += [
        heartbeat(i, beat, acks.work.get(i, NO_WORK))
        for i, beat in acks.beats.items()
        if i in set(live) and (i not in written or i in acks.work)
    ]
    return kept
