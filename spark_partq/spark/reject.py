"""Messages that an application finds bad go to their dead-message queue, each once."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.schema import Struct, check_same_columns, quoted, with_columns
from spark_partq.core.queue.sink_ids import rejected_sink
from spark_partq.core.stored import MAX_TEXT
from spark_partq.spark.micro_batch import (
    MicroBatch,
    check_traceable,
    micro_batch,
    queue_ends,
    stores_read,
    writing_once,
)
from spark_partq.spark.sink import append_once
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.store import Store

# The columns that the dead-message queue gets for each message, besides its payload and its place.
_TOLD = ("_enqueued_at", "timestamp"), ("_redelivered", "boolean")


def reject(rows: DataFrame, reason: str | Column, store: Store | None) -> None:
    """See `api.dead_letters.reject`."""
    name = _name_of(reason)
    planned = micro_batch(rows)
    check_traceable(rows)
    opened = store or _store_of(rows, planned.group)
    by_target = _by_dead_letter_queue(opened, planned)
    for queues in by_target.values():
        for queue in queues:
            _check_columns(rows, queue)
    again = (
        "this micro-batch has rejected messages for the same reason before, and those are in the dead-message queue. Leave the first call as it is, "
        "and give the second another reason. One call for both would leave out the second call's messages of this micro-batch"
    )
    with writing_once(rows, "reject", opened.uri, name, otherwise=again):
        _append(rows, reason, name, opened, planned, by_target)


def _append(
    rows: DataFrame,
    reason: str | Column,
    name: str,
    store: Store,
    planned: MicroBatch,
    by_target: dict[str, list[Queue]],
) -> None:
    group = open_group(store, planned.group).state
    came_from = sf.coalesce(sf.col("_queue"), sf.lit(""))
    for number, (dead_letter_queue, queues) in enumerate(by_target.items()):
        read = [queue.name for queue in queues]
        of_queues = {place: position for place, position in planned.positions.items() if place[0] in read}
        others = {queue for queue, _ in planned.positions} - set(read)
        # The first target also gets the rows of no queue of the micro-batch, and refuses them before anything is written.
        is_own = came_from.isin(read) if number else ~came_from.isin(sorted(others))
        dead = _dead_messages(rows.filter(is_own), queues[0], planned.group, reason)
        target = PositionsQueue(open_queue(store, dead_letter_queue), rejected_sink(planned.group))
        of_target = MicroBatch(planned.group, of_queues)
        # A micro-batch that was planned before the group began to read again still counts as the first reading.
        since = {
            p: epoch for p, position in of_target.by_id.items() if position.epoch >= (epoch := group.reading_since(p))
        }
        append_once(target, of_target, dead, (), name, partial(queue_ends, rows, of_target), since)


def _name_of(reason: str | Column) -> str:
    """A name that tells apart the rejections of a micro-batch, also after a restart: each reason has its own positions."""
    if isinstance(reason, Column):
        return "by-column"
    if not isinstance(reason, str) or not 0 < len(reason) <= MAX_TEXT:
        raise InvalidArgumentError(
            f"reason={reason!r:.60}: give a text of 1 to {MAX_TEXT} characters, or a column", reason=str(reason)[:60]
        )
    return sha256(reason.encode()).hexdigest()[:16]


def _store_of(rows: DataFrame, group: str) -> Store:
    """The store that the query reads."""
    found = stores_read(rows)
    if len(found) != 1:
        read = " and ".join(sorted(store.uri for store in found))
        raise InvalidArgumentError(
            f"group {group!r} reads {read or 'a store that this process does not know'}; name the store: reject(rows, reason, store=...)",
            group=group,
        )
    return found[0]


def _by_dead_letter_queue(store: Store, planned: MicroBatch) -> dict[str, list[Queue]]:
    found: dict[str, list[Queue]] = {}
    for name in sorted({queue for queue, _ in planned.positions}):
        queue = open_queue(store, name)
        target = queue.state.settings.dead_letter_queue
        if target is None:
            raise InvalidArgumentError(
                f"queue {name!r} has no dead_letter_queue, so its messages cannot be rejected; give it one with alter-queue",
                queue=name,
            )
        found.setdefault(target, []).append(queue)
    return found


def _check_columns(rows: DataFrame, queue: Queue) -> None:
    """Refuse rows that are no longer whole messages. Further columns of the rows do not matter.

    Raises
    ------
    SchemaMismatchError
    """
    given: Struct = rows.schema.jsonValue()
    wanted = with_columns(queue.state.schema, *_TOLD)
    names = {field["name"] for field in wanted["fields"]}
    kept: Struct = {**given, "fields": [field for field in given["fields"] if field["name"] in names]}
    next_step = "Reject rows of the micro-batch that still have all of its columns"
    if queue.state.added:  # without these columns the dead message would lack values that the message has
        next_step += f"; start the query again if it began before {', '.join(queue.state.added)} came, and add such a column to all queues that it reads"
    check_same_columns(wanted, kept, "the DataFrame", f"queue {queue.name!r}", next_step)


def _dead_messages(rows: DataFrame, queue: Queue, group: str, reason: str | Column) -> DataFrame:
    """The columns of the dead-message queue, and those that say which message a row comes from."""
    payload = [sf.col(quoted(f["name"])) for f in queue.state.schema["fields"]]
    return rows.select(
        *payload,
        sf.col("_queue").alias("origin_queue"),
        sf.col("_partition").alias("origin_partition"),
        sf.col("_offset").alias("origin_offset"),
        sf.col("_enqueued_at").alias("origin_enqueued_at"),
        sf.lit(group).alias("origin_group"),
        sf.when(~sf.col("_redelivered"), sf.lit(1)).cast("long").alias("delivery_count"),
        (sf.lit(reason) if isinstance(reason, str) else reason.cast("string")).alias("dead_reason"),
        sf.current_timestamp().alias("dead_at"),
        "_queue",
        "_partition",
        "_offset",
    )
