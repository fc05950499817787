"""Writing from Spark: messages into queues, and the results of messages into Delta tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from spark_partq.core import arguments
from spark_partq.core.delivery.positions import Position
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition
from spark_partq.spark.sink import QueueSink
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from spark_partq.spark.delta_sink import DeltaSink


def queue_sink(
    store: StorePath,
    queue: str,
    *,
    order_by: str | Iterable[str] | None = None,
    sink_id: str | None = None,
    exactly_once: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> QueueSink:
    """A function for ``writeStream.foreachBatch`` that writes each micro-batch into a queue exactly once (Q5).

    With `exactly_once` the rows come from other queues that one group reads, row by row, and keep ``_queue``, ``_partition`` and ``_offset``,
    as for `delta_sink`. Then the results of each message are in the queue once, whichever consumer delivers the message, and in the order of
    the messages. Without it, a micro-batch that another consumer delivers again counts as another micro-batch.

    The driver itself writes a micro-batch of up to 20,000 rows, 16 MiB and 100 columns if the previous micro-batch was as small; executors write all others.

    Several queries of a program may use the same function: their micro-batches take turns. With a `sink_id` and without `exactly_once` this
    is refused, as any two queries with the same `sink_id` are refused.

    Parameters
    ----------
    order_by : str or list of str, optional
        Columns that give the order of messages inside a micro-batch (Q4). None keeps the order in which Spark read the rows; over several
        files that is not the order of the files' names. With `exactly_once` it may be ``_offset``, too: the order in the queue that the rows
        come from. A join that shuffles changes that order.
    sink_id : str, optional
        The name by which the queue recognizes replayed batches; None takes the streaming query's id. With `exactly_once` the name tells apart
        several sinks of one group that write into one queue.
    exactly_once : bool
        See above. The columns that the source adds to the DataFrame are not written.

    Raises
    ------
    QueueNotFoundError, NotAStoreError, InvalidArgumentError
        At once.
    SchemaMismatchError, SinkAheadError
        From a micro-batch, before anything of it is written.
    InvalidArgumentError
        From a second call in a micro-batch with other rows. Give all rows to one call: the queue would take the second rows for the rows that it
        has already. Such a call is not noticed in a thread that a function starts itself and that is no ``pyspark.InheritableThread``.
    """
    columns = arguments.names("order_by", order_by)
    return QueueSink(Store.at(store, storage_options), queue, columns, sink_id, exactly_once)


def append(
    df: DataFrame,
    store: StorePath,
    queue: str,
    *,
    order_by: str | Iterable[str] | None = None,
    sink_id: str | None = None,
    batch_id: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Write a batch DataFrame into a queue and return how many messages were added.

    With `sink_id` and `batch_id` (rising from 0), a repeated call adds nothing (Q5): it returns 0 for a batch that is already in the queue.

    Raises
    ------
    InvalidArgumentError
        If only one of the two ids is given, or `df` is no batch DataFrame.
    """
    if getattr(df, "isStreaming", True):
        raise InvalidArgumentError(
            f"df={df!r} is no batch DataFrame; write a stream with writeStream.foreachBatch(queue_sink(…))",
            argument="df",
        )
    sink = queue_sink(store, queue, order_by=order_by, sink_id=sink_id, storage_options=storage_options)
    return sink.append(df, batch_id)


def delta_sink(
    table: StorePath,
    *,
    partition_by: str | Iterable[str] | None = None,
    create: bool = True,
    merge_schema: bool = False,
    name: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """A function for ``writeStream.foreachBatch`` that writes each message's rows into a Delta table exactly once.

    The rows come from queues that one group reads, row by row (select, filter, explode, a join with a table), and keep ``_queue``,
    ``_partition`` and ``_offset``. The sink commits the rows together with the group's position in each partition. So no row is lost and no
    row is there twice, even if a consumer is killed, is too slow, or hands a partition over, the queue is resized, or a checkpoint is lost.

    Several queries of a program may use the same function: their micro-batches take turns.

    Parameters
    ----------
    table : str or path
        A folder, or an object store's URI. Readers may use the table meanwhile. ``OPTIMIZE`` and other writers may only where their commits
        and the sink's exclude each other: delta-spark's do not on a local disk, nor in S3 with its default ``LogStore``
        (docs/exactly-once.md).
    partition_by : str or list of str, optional
        Columns that partition the table, if the sink makes it.
    create : bool
        Make the table if it does not exist, with the columns of the first micro-batch.
    merge_schema : bool
        Add the columns that the table lacks, as nullable ones. ``_queue``, ``_partition``, ``_offset`` and the other columns that the source
        adds are never added: only a table that was made with them has them.
    name : str, optional
        Tells apart several sinks of one group that write into one table; each has its own positions.

    Raises
    ------
    InvalidArgumentError, SchemaMismatchError, ConstraintViolatedError, UnsupportedTableError
        From a micro-batch, before anything of it is committed.
    """
    from spark_partq.spark.delta_sink import DeltaSink  # here, as it loads delta-rs

    columns = arguments.names("partition_by", partition_by)
    return DeltaSink(Store.at(table, storage_options), columns, name, create=create, merge_schema=merge_schema)


def positions(batch: DataFrame) -> dict[QueuePartition, Position]:
    """Where the messages of each partition begin and end in a micro-batch, as a value for a transaction of your own.

    For use in a ``foreachBatch`` function, with its DataFrame; it runs a Spark job. Keep ``end``, by group, incarnation and partition, in the
    place of the results, and write it in the same transaction. Leave out messages below the offset that is kept there: see
    `Position.first_missing` and `Position.moved`.

    Raises
    ------
    InvalidArgumentError
        Outside of a micro-batch, or if the query reads queues for several groups, or the rows do not say which messages they come from.
    """
    from spark_partq.spark.micro_batch import delivered

    return delivered(batch)
