"""Which messages a running micro-batch holds, as Spark's own log of offsets says: also of rows that a filter has dropped."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.delivery.positions import Position, lineage
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition


class MicroBatch(NamedTuple):
    """A group's messages in a micro-batch."""

    group: str
    positions: dict[QueuePartition, Position]


def micro_batch(batch: DataFrame) -> MicroBatch:
    """What the micro-batch holds whose `foreachBatch` function calls this with its DataFrame, or with one made from it.

    Raises
    ------
    InvalidArgumentError
        Outside of such a function, with Spark Connect, or if the query reads no queue, or queues by several groups.
    """
    if is_remote():
        raise InvalidArgumentError("positions of a micro-batch are not known with Spark Connect; use a classic session")
    context = batch.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch_id is None:
        raise InvalidArgumentError(
            "positions are those of a micro-batch: call this in a function for writeStream.foreachBatch"
        )
    running = batch.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(_java(batch).java.util.UUID.fromString(query_id))
    offsets = execution.offsetLog().get(int(batch_id)).get().offsets()
    found = [_of_queues(offsets.apply(i).get().json()) for i in range(offsets.size()) if offsets.apply(i).isDefined()]
    planned = [offset for offset in found if offset is not None]
    groups = sorted({offset.group for offset in planned})
    if len(groups) != 1:
        read = f"reads queues by groups {', '.join(groups)}" if groups else "reads no queue"
        raise InvalidArgumentError(f"this query {read}; positions are those of one group. Use a query for each group")
    positions: dict[QueuePartition, Position] = {}
    for offset in planned:
        for place, r in offset.ranges.items():
            if r.end > r.start and place in positions and positions[place].end > positions[place].start:
                raise InvalidArgumentError(
                    f"this micro-batch reads partition {place[1]} of queue {place[0]!r} twice; read each queue once in a query",
                    queue=place[0],
                )
            if r.end > r.start or place not in positions:
                positions[place] = _position(offset, place, r)
    return MicroBatch(groups[0], positions)


def _position(offset: StreamOffset, place: QueuePartition, r: Range) -> Position:
    queue, number = place
    incarnations = lineage(offset.incarnations[queue], offset.former.get(queue, ()), number)
    return Position(r.start, r.end, r.epoch, offset.queue_ids[queue], incarnations)


def _java(batch: DataFrame) -> Any:
    return batch.sparkSession.sparkContext._jvm


def _of_queues(text: str) -> StreamOffset | None:
    """An offset of this package's source; None if it is another source's."""
    value = json.loads(text)
    return StreamOffset.from_json(value) if isinstance(value, dict) and {"group", "queues"} <= value.keys() else None
