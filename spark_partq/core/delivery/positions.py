"""How far a table has a group's messages: a position for each partition, committed together with the rows.

If a consumer crashes, is too slow, or hands a partition over, it or another consumer gets messages again, in other micro-batches. So neither
Spark's batch ids nor any times tell which messages a table has. Its positions do.

A position belongs to an incarnation of the queue: after a promotion, offsets beyond the messages that the replica had may name other messages.
Offsets below name the same messages, so positions of earlier incarnations count up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.ids import PartitionId, QueuePartition
from spark_partq.core.queue.former import Former
from spark_partq.core.stored import MOST

Recorded = Mapping[PartitionId, Mapping[str, int]]  # by partition and incarnation, the next offset that a table lacks


@dataclass(frozen=True)
class Position:
    """The messages of a partition that a micro-batch holds: those with offsets ``[start, end)``.

    Attributes
    ----------
    epoch : int
        The epoch of the ownership under which the messages were planned. It is a fencing token: a later owner has a higher one (W2).
    queue_id : str
        The queue's id, which never changes. A queue that is deleted and created again has another one.
    lineage : tuple of (str, int)
        The queue's incarnations, the present one first. Each has the offset below which its messages of the partition are the same as the
        present ones. A queue that was never promoted has one incarnation, whose name is its id.
    """

    start: int
    end: int
    epoch: int
    queue_id: str
    lineage: tuple[tuple[str, int], ...]

    @property
    def incarnation(self) -> str:
        """The present incarnation, under which a position is kept."""
        return self.lineage[0][0]

    def first_missing(self, recorded: Mapping[str, int]) -> int:
        """The offset from which on messages are missing; at least `start`.

        Parameters
        ----------
        recorded : dict
            By incarnation, the position that was kept for this partition.
        """
        return max(self.start, recorded_to(self.lineage, recorded))

    def moved(self, recorded: Mapping[str, int]) -> dict[str, int]:
        """The positions to keep with the rows, by incarnation: also for consumers that still deliver under an earlier incarnation."""
        ends = {incarnation: min(self.end, shared) for incarnation, shared in self.lineage}
        return {i: end for i, end in ends.items() if end > recorded.get(i, -1)}


def lineage(incarnation: str, former: tuple[Former, ...], partition: int) -> tuple[tuple[str, int], ...]:
    """The incarnations of a queue for a partition, as in `Position.lineage`."""
    return tuple(_lineage(incarnation, former, partition))


def _lineage(incarnation: str, former: tuple[Former, ...], partition: int) -> Iterator[tuple[str, int]]:
    shared = MOST
    yield incarnation, shared
    for before in former:
        shared = min(shared, before.ends.get(partition, 0))
        yield before.incarnation, shared


def recorded_to(incarnations: Iterable[tuple[str, int]], recorded: Mapping[str, int]) -> int:
    """The offset up to which a table has the messages of a partition.

    Parameters
    ----------
    incarnations : iterable
        As `Position.lineage`.
    recorded : dict
        By incarnation, the position that was kept for this partition.
    """
    return max(min(recorded.get(incarnation, 0), shared) for incarnation, shared in incarnations)


def position_app(group: str, name: str | None, incarnation: str, partition: int, since: int = 0) -> str:
    """The application transaction of a table that holds a group's position in a partition.

    Parameters
    ----------
    name : str, optional
        Tells apart several sinks of one group that write into one table.
    since : int
        The epoch with which the group began to read the partition again, if the table shall then have its messages again.
    """
    names = [] if name is None else [name]
    return "/".join(["partq:" + group, *names, *([f"since-{since}"] if since else []), incarnation, str(partition)])


def missing(batch: Mapping[PartitionId, Position], recorded: Recorded) -> dict[PartitionId, int]:
    """By partition, the offset from which on a table lacks messages of the micro-batch. Partitions of which it has all messages are left out."""
    first = {place: position.first_missing(recorded.get(place, {})) for place, position in batch.items()}
    return {place: offset for place, offset in first.items() if offset < batch[place].end}


def beyond(batch: Mapping[PartitionId, Position], recorded: Recorded) -> dict[PartitionId, int]:
    """The positions of a table that lie beyond the micro-batch: another consumer is further, or the queue was restored to an older state."""
    kept = {place: recorded.get(place, {}).get(position.incarnation, 0) for place, position in batch.items()}
    return {place: offset for place, offset in kept.items() if offset > batch[place].end}


def positions_of(offset: StreamOffset) -> dict[QueuePartition, Position]:
    """The messages that were planned for a micro-batch, by partition. A replay may hold fewer."""
    return {
        (queue, number): Position(
            r.start,
            r.end,
            r.epoch,
            offset.queue_ids[queue],
            lineage(offset.incarnations[queue], offset.former.get(queue, ()), number),
        )
        for (queue, number), r in offset.ranges.items()
    }
