"""A Kafka topic whose messages go into a queue, each once: the queue's positions say what is read next.

The queue keeps, with each batch, the next offset of each partition of the topic, as a sink keeps a group's positions
(`core.delivery.positions`). In place of the queue's incarnation these positions have the id that Kafka gives a topic: a topic that is deleted
and created again has another id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_partq.core.delivery.positions import Position, position_app
from spark_partq.core.errors import CheckpointMismatchError, DataLossError, InvalidArgumentError, TargetAheadError
from spark_partq.core.ids import QueuePartition
from spark_partq.core.names import is_name
from spark_partq.core.stored import MAX_PARTITIONS, MOST

_EARLIEST = -2  # in Spark's JSON of offsets


@dataclass(frozen=True)
class Topic:
    """A topic as its broker describes it.

    Attributes
    ----------
    topic_id : str
        UUID in Kafka's form; only zeros with a broker that gives none (before 2.8).
    bounds : dict
        For each partition, the offset of its first message, and its next offset.
    readable_ends : dict
        For some partitions, the offset up to which they can be read now, if that is less than the next offset: a transaction is open, and only
        committed messages are read.
    """

    name: str
    topic_id: str
    bounds: Mapping[int, tuple[int, int]]
    readable_ends: Mapping[int, int] = field(default_factory=dict)

    def checked(self) -> Topic:
        """The topic, if a queue can keep its positions.

        Raises
        ------
        InvalidArgumentError
        """
        if len(self.bounds) > MAX_PARTITIONS:
            raise InvalidArgumentError(
                f"topic {self.name!r} has {len(self.bounds):,} partitions; the positions of {MAX_PARTITIONS:,} can be kept at most",
                topic=self.name,
            )
        return self


def default_name(topic: str) -> str:
    """The name under which a queue keeps the positions of a topic, if it is given no other.

    Raises
    ------
    InvalidArgumentError
        If the topic's name cannot be used for it.
    """
    name = f"kafka.{topic}"
    if not is_name(name):
        raise InvalidArgumentError(
            f"the name of topic {topic!r} cannot be a sink_id: give a sink_id with --sink-id, of at most 128 characters of A-Z a-z 0-9 . _ -",
            topic=topic,
        )
    return name


def position_name(sink_id: str, topic: Topic, partition: int) -> str:
    """The name under which a queue keeps, for a partition, the next offset that it lacks."""
    return position_app(sink_id, None, topic.topic_id, partition)


def recorded(positions: Mapping[str, int], sink_id: str, topic: Topic) -> dict[int, int]:
    """For each partition of the topic that the queue has recorded, the next offset that the queue lacks.

    Parameters
    ----------
    positions : dict
        All positions that the sink has recorded.

    Raises
    ------
    CheckpointMismatchError
        If they are positions of another topic.
    """
    found = {n: positions.get(position_name(sink_id, topic, n)) for n in topic.bounds}
    known = {n: offset for n, offset in found.items() if offset is not None}
    others = sorted({app.split("/")[1] for app in positions if app.startswith(f"partq:{sink_id}/")} - {topic.topic_id})
    if others:
        raise CheckpointMismatchError(
            f"the queue has messages of another topic as sink {sink_id!r} (its id is {others[0]}), and topic {topic.name!r} has the id "
            f"{topic.topic_id}: it was deleted and created again, or is in another cluster. Nothing was written. To add all of its messages, use "
            "another --sink-id with a new checkpoint",
            topic=topic.name,
            topic_id=topic.topic_id,
            recorded=others[0],
            sink_id=sink_id,
        )
    return known


def check_reachable(topic: Topic, known: Mapping[int, int], fail_on_data_loss: bool) -> None:
    """Refuse to go on if the topic does not have the message that the queue lacks next.

    Raises
    ------
    DataLossError
        If the topic's retention has removed the message, and `fail_on_data_loss` is set.
    TargetAheadError
        If the topic ends before that message: the topic was restored to an older state.
    """
    for number, offset in sorted(known.items()):
        first, end = topic.bounds[number]
        where = {"topic": topic.name, "partition": number, "position": offset}
        if offset > end:
            raise TargetAheadError(
                f"the queue has the messages of partition {number} of topic {topic.name!r} up to {offset}, but that partition ends at {end}: the topic "
                "was put back to an older state, and gives other messages these offsets. Nothing was written. Restore the topic, or use another "
                "--sink-id with a new checkpoint, which adds all messages that the topic has",
                end=end,
                **where,
            )
        if offset < first and fail_on_data_loss:
            raise DataLossError(
                f"the next message of partition {number} of topic {topic.name!r} that the queue lacks has the offset {offset}, and the topic begins at "
                f"{first}: its retention time has removed {first - offset:,} offsets before they were read. Nothing was written. To go on "
                "without them, use --no-fail-on-data-loss",
                first=first,
                **where,
            )


def first_positions(topic: Topic, begin: str) -> dict[int, int]:
    """The positions that a queue without messages of the topic records before a message is read: for each partition, the offset where it begins.

    Parameters
    ----------
    begin : {"earliest", "latest"}
    """
    ends = topic.readable_ends
    return {n: ends.get(n, end) if begin == "latest" else first for n, (first, end) in topic.bounds.items()}


def starting_offsets(topic: Topic, known: Mapping[int, int]) -> str:
    """Where Spark begins to read the topic with a new checkpoint, in Spark's JSON.

    Each partition begins where the queue says; a partition that was added since begins with its first message.

    Examples
    --------
    >>> starting_offsets(Topic("t", "id", {0: (0, 9), 1: (0, 0)}), {0: 5})
    '{"t": {"0": 5, "1": -2}}'
    """
    bounds = sorted(topic.bounds.items())
    begins = {str(n): max(known[n], first) if n in known else _EARLIEST for n, (first, _) in bounds}
    return json.dumps({topic.name: begins})


def check_follows(topic: Topic, known: Mapping[int, int], starts: Mapping[str, int], name: str) -> None:
    """Refuse a micro-batch that begins after messages that the queue lacks.

    Parameters
    ----------
    starts : dict
        Where the micro-batch begins in each partition, by Spark's log of offsets.
    name : str
        The queue's name.

    Raises
    ------
    CheckpointMismatchError
    """
    for number, start in sorted((int(number), start) for number, start in starts.items()):
        first = topic.bounds.get(number, (0, 0))[0]  # messages removed by retention are not waited for
        if start > (lacks := max(known.get(number, 0), first)):
            raise CheckpointMismatchError(
                f"the checkpoint goes on with offset {start:,} of partition {number} of topic {topic.name!r}, and queue {name!r} has its messages up to "
                f"{lacks:,}: the checkpoint is of another queue or sink, or the queue was put back to an older state. Nothing was written. Use a new "
                "checkpoint: the queue says where to begin",
                topic=topic.name,
                partition=number,
                queue=name,
                position=lacks,
            )


def planned(topic: Topic, ends: Mapping[str, int]) -> dict[QueuePartition, Position]:
    """The messages that a micro-batch may hold, by partition.

    Parameters
    ----------
    ends : dict
        For each partition, the end of the micro-batch, by Spark's log of offsets.
    """
    shared = ((topic.topic_id, MOST),)
    return {(topic.name, int(number)): Position(0, end, 0, topic.topic_id, shared) for number, end in ends.items()}
