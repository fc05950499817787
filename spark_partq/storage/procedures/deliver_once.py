"""A micro-batch's rows go into a table together with its positions, in one compare-and-set: each message's rows exactly once.

It does not matter who delivers: a consumer that was killed and comes back, one that lost a partition and does not know it yet, its
successor. Whoever commits first moves the positions, and every other one then leaves out what they cover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from spark_partq.core.delivery.positions import Position, Recorded, gaps, missing, position_app
from spark_partq.core.ids import PartitionId
from spark_partq.storage.log import retrying
from spark_partq.storage.runtime import Runtime

F = TypeVar("F")
G = TypeVar("G", contravariant=True)

_log = logging.getLogger("spark_partq")


class Target(Protocol[G]):
    """A table with application transactions.

    Attributes
    ----------
    what : str
        What the table is, for messages.
    """

    what: str

    def refresh(self) -> None:
        """Read what is new in the table."""
        ...

    def recorded(self, app: str) -> int | None:
        """The last version of an application transaction, as of the last refresh."""
        ...

    def commit(self, files: Sequence[G], transactions: Mapping[str, int]) -> None:
        """Add the files and set the transactions in one commit on top of the last refresh, or raise `Conflict`."""
        ...

    def discard(self, files: Sequence[G]) -> None:
        """Delete files that nobody has tried to commit."""
        ...


def deliver_once(
    target: Target[F],
    runtime: Runtime,
    group: str,
    name: str | None,
    batch: Mapping[PartitionId, Position],
    write: Callable[[Mapping[PartitionId, int]], Sequence[F]],
) -> bool:
    """Add the rows of a micro-batch that the table lacks, and move its positions; whether there was anything left to do.

    Parameters
    ----------
    group, name : str
        Whose positions they are (`position_app`).
    batch : dict
        What the micro-batch holds.
    write : function
        Writes files of the rows at or above an offset in each of the partitions given. Called again if another consumer was faster
        with some of them, as the files hold too much then.

    Raises
    ------
    CommitFailedError
        If the table takes no commit.
    """
    apps = {
        place: {incarnation: position_app(group, name, incarnation, place[1]) for incarnation, _ in position.lineage}
        for place, position in batch.items()
    }
    files: Sequence[F] = ()
    written_from: dict[PartitionId, int] | None = None  # where the files begin
    tried = False  # to commit them: from then on another process may have read that they are in

    def refreshed() -> Recorded:
        target.refresh()
        return {place: _known(target, of_place) for place, of_place in apps.items()}

    def moved(left: Iterable[PartitionId], recorded: Recorded) -> dict[str, int]:
        return {
            apps[place][incarnation]: end
            for place in left
            for incarnation, end in batch[place].moved(recorded[place]).items()
        }

    def attempt() -> bool:
        nonlocal files, written_from, tried
        recorded = refreshed()
        while written_from != (left := missing(batch, recorded)):
            if not tried:
                target.discard(files)
            files, written_from, tried = (), left, False
            if left:
                _warn_of_gaps(target.what, group, batch, recorded)
                files = write(left)
                recorded = refreshed()  # that may have taken long
        if left:
            tried = True
            target.commit(files, moved(left, recorded))
        return bool(left)

    return retrying(runtime, attempt, target.what)


def _known(target: Target[F], apps: Mapping[str, str]) -> dict[str, int]:
    """By incarnation what the table has recorded."""
    found = {incarnation: target.recorded(app) for incarnation, app in apps.items()}
    return {incarnation: offset for incarnation, offset in found.items() if offset is not None}


def _warn_of_gaps(what: str, group: str, batch: Mapping[PartitionId, Position], recorded: Recorded) -> None:
    for (queue_id, number), offsets in gaps(batch, recorded).items():
        _log.warning(
            "%s has group %s's messages of partition %s (queue id %s) below offset %s, and this micro-batch begins at %s: the messages "
            "between were skipped (positions that were set forward, or messages that were removed before they were read)",
            what, group, number, queue_id, offsets.start, offsets.stop,
        )  # fmt: skip
