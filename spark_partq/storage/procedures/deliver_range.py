"""Messages of one partition of a queue go into another queue: each once, whichever process moves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.delivery.positions import Position, lineage, position_app, recorded_to
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.procedures.prepared import Prepared


@dataclass(frozen=True)
class Source:
    """Where messages come from: a partition of a queue, and a range of it.

    Attributes
    ----------
    lineage : tuple of (str, int)
        As in `Position`: the incarnations of the queue whose positions count.
    since : int
        As in `deliver_once`.
    """

    place: PartitionId
    lineage: tuple[tuple[str, int], ...]
    messages: Range
    since: int = 0


def deliver_range(
    target: PositionsQueue,
    reader: str,
    source: Source,
    files: Callable[[int], Sequence[NewFile]],
) -> bool:
    """Append the results of a range of messages, as far as the target lacks them; never discard any. Returns whether the target lacked any.

    Parameters
    ----------
    reader : str
        The owner of the positions.
    files : function
        Writes files of the results of the messages from an offset to the end of the range.

    Raises
    ------
    IngressDisabledError
        If the target takes no messages now, whatever its `reject_to_sender` says.
    ClockSkewError, CommitFailedError, CorruptTableError
    """
    place, messages = source.place, source.messages
    position = Position(messages.start, messages.end, messages.epoch, place[0], source.lineage)

    def write(left: Mapping[PartitionId, int]) -> Written[Prepared]:
        first = left[place]
        return Written([target.prepare(lambda: files(first), None)], {place: messages.end})

    target.begin()
    return deliver_once(
        target, target.queue.store.runtime, reader, None, {place: position}, write, since={place: source.since}
    )


def delivered_to(positions: Mapping[str, int], reader: str, queue: QueueState, partition: int) -> int:
    """The offset up to which a target with these positions has the messages of a partition that `deliver_range` moves; 0 if it has none."""
    incarnations = lineage(queue.incarnation, queue.former, partition)
    apps = {name: position_app(reader, None, name, partition) for name, _ in incarnations}
    return recorded_to(incarnations, {name: positions.get(app, 0) for name, app in apps.items()})
