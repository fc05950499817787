"""Offsets as text: those that users write in options, and those that Spark keeps in a checkpoint.

An offset is always that of the next message: a range ``[start, end)`` holds ``end - start`` messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_partq.core import format
from spark_partq.core.errors import CheckpointMismatchError, InvalidArgumentError, OffsetOutOfRangeError
from spark_partq.core.ids import PartitionId, QueuePartition
from spark_partq.core.queue.former import Former
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.stored import MALFORMED, MAX_PARTITIONS, MOST, flag, name, partition_number, text, whole

EARLIEST = -2
LATEST = -1

_VERSION = 1  # of the format of an offset in a checkpoint

JsonOffsets = dict[str, dict[int, int]]  # queue -> partition -> offset, EARLIEST or LATEST


def parse_offsets(option: str, text: str, partitions: Mapping[str, range]) -> int | JsonOffsets:
    """Read ``earliest``, ``latest`` or ``{"orders": {"0": 10, "1": -2}}``, as Spark's Kafka source does.

    Parameters
    ----------
    partitions : dict
        For each queue that is read, the numbers of its partitions.

    Raises
    ------
    InvalidArgumentError
        If the text is none of these, or names a queue or partition that is not read.
    """
    folded = text.strip().lower()
    if folded in ("earliest", "latest"):
        return EARLIEST if folded == "earliest" else LATEST
    try:
        parsed = json.loads(text)
        offsets = {str(q): {int(p): _integer(o) for p, o in parts.items()} for q, parts in parsed.items()}
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise InvalidArgumentError(
            f'{option}={text!r} is none of earliest, latest, {{"queue": {{"partition": offset}}}} '
            "(offset -2 for earliest, -1 for latest)",
            option=option,
        ) from None
    for queue, parts in offsets.items():
        if queue not in partitions:
            raise InvalidArgumentError(
                f"{option} names queue {queue!r}, which is not read here ({', '.join(partitions)} are)",
                option=option,
                queue=queue,
            )
        for partition, offset in parts.items():
            if partition not in partitions[queue]:
                raise InvalidArgumentError(
                    f"{option} names partition {partition} of queue {queue!r}, which has partitions {partitions[queue].start} to "
                    f"{partitions[queue].stop - 1}",
                    option=option,
                    queue=queue,
                    partition=partition,
                )
            if not EARLIEST <= offset <= MOST:
                raise InvalidArgumentError(
                    f"{option}: partition {partition} of queue {queue!r} can have no offset {offset}; offsets are 0 to 2^63 - 1, "
                    "-2 means earliest and -1 latest",
                    option=option,
                )
    return offsets


def resolve(
    option: str, requested: int, first: int, end: int, queue: str, partition: int, *, fail_on_data_loss: bool = True
) -> int:
    """The offset that `requested` (an offset, EARLIEST or LATEST) means in a partition that holds ``[first, end)``.

    Raises
    ------
    OffsetOutOfRangeError
        If the offset lies beyond the end, or, with `fail_on_data_loss`, before the first message that is left.
    """
    if requested == EARLIEST:
        return first
    if requested == LATEST:
        return end
    if requested > end:
        raise OffsetOutOfRangeError(
            f"{option}: partition {partition} of queue {queue!r} ends at offset {end}, {requested} lies beyond it; "
            "use an offset up to the end, or -1 for latest",
            queue=queue,
            partition=partition,
            offset=requested,
            end=end,
        )
    if requested < first:
        if fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{option}: messages {requested} to {first - 1} of partition {partition} of queue {queue!r} have been removed; "
                f"start at {first} or set failOnDataLoss=false",
                queue=queue,
                partition=partition,
                offset=requested,
                first=first,
            )
        return first
    return requested


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


@dataclass(frozen=True)
class Range:
    """Messages ``[start, end)`` of a partition, planned under an epoch."""

    epoch: int
    start: int
    end: int


@dataclass(frozen=True)
class StreamOffset:
    """What Spark stores for each micro-batch: everything that is needed to read it again.

    Attributes
    ----------
    group, instance : str
        The names of the planner's group and instance. A query that names none makes them up at its first start; its checkpoint keeps them.
    queue_ids : dict
        By queue name, the queue's UUID. It shows that a checkpoint is of a queue that was deleted and created again.
    incarnations : dict
        By queue name, the queue's incarnation. It shows that a checkpoint is from before a promotion. A queue that is left out was never
        promoted.
    ranges : dict
        By (queue name, partition), the last planned range.
    former : dict
        By queue name, the earlier incarnations, the latest first; only of queues that were promoted.
    by_hand : bool
        The application acknowledges by hand, so the end of a micro-batch finishes nothing.
    """

    group: str
    instance: str
    queue_ids: dict[str, str]
    ranges: dict[QueuePartition, Range]
    incarnations: dict[str, str] = field(default_factory=dict)
    former: dict[str, tuple[Former, ...]] = field(default_factory=dict)
    by_hand: bool = False

    def __post_init__(self) -> None:
        incarnations = {queue: self.incarnations.get(queue, queue_id) for queue, queue_id in self.queue_ids.items()}
        object.__setattr__(self, "incarnations", incarnations)

    @property
    def by_id(self) -> dict[PartitionId, Range]:
        """The ranges, by the UUIDs that the queues had then, and the partition."""
        return {(self.queue_ids[queue], partition): range_ for (queue, partition), range_ in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        """The dictionary that Spark turns into text; equal offsets give equal text.

        Examples
        --------
        >>> StreamOffset("g", "i", {"q": "u"}, {("q", 1): Range(1, 0, 7)}).to_json()
        {'group': 'g', 'instance': 'i', 'queues': {'q': {'id': 'u', 'incarnation': 'u', 'partitions': {'1': [1, 0, 7]}}}, 'version': 1}
        """
        queues: dict[str, Any] = {
            name: {"id": queue_id, "incarnation": self.incarnations[name], "partitions": {}}
            for name, queue_id in sorted(self.queue_ids.items())
        }
        for queue, incarnations in self.former.items():
            if incarnations:
                queues[queue]["former"] = [
                    [id_, {str(n): end for n, end in ends.items()}] for id_, ends in incarnations
                ]
        for (queue, partition), r in sorted(self.ranges.items()):
            queues[queue]["partitions"][str(partition)] = [r.epoch, r.start, r.end]
        by_hand = {"by_hand": True} if self.by_hand else {}
        return {"group": self.group, "instance": self.instance, "queues": queues, "version": _VERSION, **by_hand}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read back `to_json`.

        Raises
        ------
        CheckpointMismatchError
            If the checkpoint was written by another source.
        NewerStoreError
            If it was written by a newer release.
        """
        try:
            if value["version"] != _VERSION:
                _refuse_newer(value)
                raise ValueError("it has another version")
            queues = value["queues"]
            return cls(
                group=_name_or_empty(value["group"], "group"),
                instance=_name_or_empty(value["instance"], "instance"),
                queue_ids={name(queue, "queue"): text(q["id"], "id") for queue, q in queues.items()},
                incarnations={queue: text(q["incarnation"], "incarnation") for queue, q in queues.items()},
                ranges={
                    (queue, partition_number(p, queue, _PARTITIONS)): _range(*numbers)
                    for queue, q in queues.items()
                    for p, numbers in q["partitions"].items()
                },
                former={queue: tuple(_former(*f) for f in q["former"]) for queue, q in queues.items() if "former" in q},
                by_hand=flag(value.get("by_hand", False), "by_hand"),
            )
        except MALFORMED as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise CheckpointMismatchError(
                f"the checkpoint holds no offset of this source ({reason}); use another checkpointLocation"
            ) from None


_PARTITIONS = range(PARENT, MAX_PARTITIONS)


def _former(incarnation: object, ends: Mapping[str, object]) -> Former:
    ends_by_number = {partition_number(p, "ends", _PARTITIONS): whole(end, "end") for p, end in ends.items()}
    return Former(text(incarnation, "incarnation"), ends_by_number)


def _name_or_empty(value: object, kind: str) -> str:
    """Before the first micro-batch a query may have no name yet."""
    return "" if value == "" else name(value, kind)


def _range(epoch: object, start: object, end: object) -> Range:
    first = whole(start, "start")
    return Range(whole(epoch, "epoch"), first, whole(end, "end", first))


def _refuse_newer(value: Mapping[str, Any]) -> None:
    version, made_by = value["version"], value.get("made_by")
    if type(version) is int and version > _VERSION:
        upgrade = made_by if isinstance(made_by, str) else "the release that wrote it"
        raise format.newer(
            "an offset in the checkpoint", f"version {str(version)[:20]} of offsets", str(_VERSION), upgrade
        )
