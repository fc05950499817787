"""A micro-batch's rows go into a table together with its positions, in one compare-and-set: each message's rows exactly once.

It does not matter which consumer delivers: one that was killed and comes back, one that lost a partition and does not know it yet, or
its successor. The consumer that commits first moves the positions. Every other one then leaves out the messages that the positions
cover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from spark_partq.core.delivery.positions import Position, Recorded, beyond, missing, position_app
from spark_partq.core.errors import TargetAheadError
from spark_partq.core.ids import PartitionId
from spark_partq.storage.log import retrying
from spark_partq.storage.runtime import Runtime

F = TypeVar("F")
G = TypeVar("G", contravariant=True)


class Target(Protocol[G]):
    """A table with application transactions.

    Attributes
    ----------
    what : str
        What the table is, for error texts.
    """

    what: str

    def refresh(self) -> None:
        """Read what is new in the table."""
        ...

    def recorded(self, app: str) -> int | None:
        """The last version of an application transaction, as of the last refresh."""
        ...

    def are_fit(self, files: Sequence[G]) -> bool:
        """Whether files that were written a while ago may still be committed. If not, they are written again."""
        ...

    def commit(self, files: Sequence[G], transactions: Mapping[str, int]) -> None:
        """Add the files and set the transactions in one commit on top of the last refresh, or raise `Conflict`."""
        ...

    def discard(self, files: Sequence[G]) -> None:
        """Delete files that no process has tried to commit."""
        ...


@dataclass(frozen=True)
class Written(Generic[F]):
    """Files of rows.

    Attributes
    ----------
    ends : dict
        For each partition that has rows in the files, the offset after the last message that has rows.
    """

    files: Sequence[F]
    ends: Mapping[PartitionId, int]


_NOTHING: Written[Any] = Written((), {})


def deliver_once(
    target: Target[F],
    runtime: Runtime,
    group: str,
    name: str | None,
    batch: Mapping[PartitionId, Position],
    write: Callable[[Mapping[PartitionId, int]], Written[F]],
    next_offsets: Callable[[Collection[PartitionId]], Mapping[PartitionId, int]] | None = None,
    since: Mapping[PartitionId, int] | None = None,
) -> bool:
    """Add the rows of a micro-batch that the table lacks, and move its positions. Returns whether any were added.

    A position moves as far as there are rows, not to the end of the planned range: a replay leaves out partitions that the query has
    lost since, and their messages come to the next owner.

    Parameters
    ----------
    group, name : str
        The owner of the positions (`position_app`).
    batch : dict
        The messages that were planned for the micro-batch.
    write : function
        Writes files of the rows at or above an offset in each of the given partitions. Called again if another consumer has committed
        some of the rows first, as the files then hold too much, or if the files are not fit any more.
    next_offsets : function, optional
        Reads where partitions of the queue end. It is called, before anything is written, if the table's positions lie beyond the
        micro-batch.
    since : dict, optional
        For partitions whose messages are added again if the group reads them again: `GroupState.reading_since`.

    Raises
    ------
    TargetAheadError
        If the table has messages that the queue does not have.
    CommitFailedError
        If the table takes no commit.
    """
    apps = {
        place: {
            incarnation: position_app(group, name, incarnation, place[1], (since or {}).get(place, 0))
            for incarnation, _ in position.lineage
        }
        for place, position in batch.items()
    }
    written: Written[F] = _NOTHING
    written_from: dict[PartitionId, int] | None = None  # where the files begin, by partition
    tried = False  # to commit the files: after that another process may have read that they are in

    def refreshed() -> Recorded:
        target.refresh()
        recorded = {place: _known(target, of_place) for place, of_place in apps.items()}
        if next_offsets is not None:
            _check_not_ahead(target.what, batch, recorded, next_offsets)
        return recorded

    def moved(recorded: Recorded) -> dict[str, int]:
        return {
            apps[place][incarnation]: offset
            for place, end in written.ends.items()
            for incarnation, offset in replace(batch[place], end=end).moved(recorded[place]).items()
        }

    def attempt() -> bool:
        nonlocal written, written_from, tried
        recorded = refreshed()
        while written_from != (left := missing(batch, recorded)) or not target.are_fit(written.files):
            if not tried:
                target.discard(written.files)
            written, written_from, tried = _NOTHING, left, False
            if left:
                written = write(left)
                recorded = refreshed()  # the write may have taken long
        if written.ends:
            tried = True
            target.commit(written.files, moved(recorded))
        return bool(written.ends)

    return retrying(runtime, attempt, target.what)


def _check_not_ahead(
    what: str,
    batch: Mapping[PartitionId, Position],
    recorded: Recorded,
    next_offsets: Callable[[Collection[PartitionId]], Mapping[PartitionId, int]],
) -> None:
    """
    Raises
    ------
    TargetAheadError
    """
    further = beyond(batch, recorded)
    ends = next_offsets(further) if further else {}
    for (queue_id, number), offset in further.items():
        end = ends.get((queue_id, number))
        if end is not None and end < offset:
            raise TargetAheadError(
                f"{what} has the messages of partition {number} of queue {queue_id} up to {offset}, but that partition ends at {end}: the queue "
                "was put back to an older state, and will give other messages these offsets. Nothing was written. Restore the queue, or write "
                "to another target, or as another group",
                table=what,
                queue_id=queue_id,
                partition=number,
                position=offset,
                end=end,
            )


def _known(target: Target[F], apps: Mapping[str, str]) -> dict[str, int]:
    """For each incarnation, the position that the table has recorded."""
    found = {incarnation: target.recorded(app) for incarnation, app in apps.items()}
    return {incarnation: offset for incarnation, offset in found.items() if offset is not None}
