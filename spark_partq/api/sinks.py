"""Writing from Spark: messages into queues, and what became of messages into Delta tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from spark_partq.core.delivery.positions import Position
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

    With `exactly_once` the rows come from other queues of one group, row by row, and keep ``_queue``, ``_partition`` and ``_offset``, as for
    `delta_sink`. What became of each message is then in the queue once, whichever consumer delivers it, and in the order of the
    messages. Without it, a micro-batch that another consumer delivers again is another micro-batch.

    The driver writes a micro-batch of up to 20,000 rows and 16 MiB itself if the one before was as small; executors write all others.

    Several queries of a program may have the same function: their micro-batches take turns. With a `sink_id` and without `exactly_once` that
    is refused, as for each two queries with one `sink_id`.

    Parameters
    ----------
    order_by : str or list of str, optional
        Columns that give the order of messages inside a micro-batch (Q4); None keeps the order in which Spark read them,
        which over several files is not that of their names. With `exactly_once` also ``_offset``, which is the order in the queue that the
        rows come from: a join that shuffles gives them in another one.
    sink_id : str, optional
        The name under which the queue recognizes replayed batches; None takes the streaming query's id. With `exactly_once` it tells
        several sinks of one group apart that write into one queue.
    exactly_once : bool
        See above. The DataFrame's columns that the source adds are left out.

    Raises
    ------
    QueueNotFoundError, NotAStoreError, InvalidArgumentError
        At once.
    SchemaMismatchError, SinkAheadError
        From a micro-batch, before anything of it is written.
    InvalidArgumentError
        From a second call in a micro-batch with other rows: give all to one call, as the queue would take them for those that it has. In a
        thread that a function starts itself, and that is no ``pyspark.InheritableThread``, such a call is not noticed.
    """
    columns = [order_by] if isinstance(order_by, str) else list(order_by or ())
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

    With `sink_id` and `batch_id` (rising from 0) a repeated call adds nothing (Q5) and returns 0 for a batch that is already in.

    Raises
    ------
    InvalidArgumentError
        If only one of the two ids is given.
    """
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

    The rows come from queues of one group, row by row (select, filter, explode, a join with a table), and keep ``_queue``, ``_partition`` and
    ``_offset``. They are committed together with the group's position in each partition. So it does not matter that a consumer is killed, is
    too slow, or hands a partition over, that the queue is resized, or that a checkpoint is lost: a row is neither lost nor there twice.

    Several queries of a program may have the same function: their micro-batches take turns.

    Parameters
    ----------
    table : str or path
        A folder, or an object store's URI. Delta's ``OPTIMIZE``, ``VACUUM`` and readers may use the table meanwhile.
    partition_by : str or list of str, optional
        Columns that partition a table that is made.
    create : bool
        Make the table if there is none, with the columns of the first micro-batch.
    merge_schema : bool
        Add columns that the table lacks, as nullable ones. ``_queue``, ``_partition``, ``_offset`` and the others that the source adds are
        columns only of a table that was made with them.
    name : str, optional
        Tells several sinks of one group apart that write into one table; each has positions of its own.

    Raises
    ------
    InvalidArgumentError, SchemaMismatchError, ConstraintViolatedError, UnsupportedTableError
        From a micro-batch, before anything of it is committed.
    """
    from spark_partq.spark.delta_sink import DeltaSink  # here, as it loads delta-rs

    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    return DeltaSink(Store.at(table, storage_options), columns, name, create=create, merge_schema=merge_schema)


def positions(batch: DataFrame) -> dict[QueuePartition, Position]:
    """Where the messages of each partition begin and end in a micro-batch, as a value for a transaction of your own.

    For use in a ``foreachBatch`` function, with its DataFrame; it runs a Spark job. Keep ``end`` by group, incarnation and partition where
    the results are, in the same transaction, and leave out messages below what is kept there: see `Position.first_missing` and
    `Position.moved`.

    Raises
    ------
    InvalidArgumentError
        Outside of a micro-batch, or if the query reads queues by several groups, or the rows do not say which messages they come from.
    """
    from spark_partq.spark.micro_batch import delivered

    return delivered(batch)
