"""Writing messages from Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame

from spark_partq.spark.sink import QueueSink
from spark_partq.storage.store import Store, StorePath


def queue_sink(
    store: StorePath,
    queue: str,
    *,
    order_by: str | Iterable[str] | None = None,
    sink_id: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> QueueSink:
    """A function for ``writeStream.foreachBatch`` that writes each micro-batch into a queue exactly once (Q5).

    Parameters
    ----------
    order_by : str or list of str, optional
        Columns that give the order of messages inside a micro-batch (Q4); None keeps the order in which Spark read them,
        which over several files is not that of their names.
    sink_id : str, optional
        The name under which the queue recognizes replayed batches; None takes the streaming query's id.

    Raises
    ------
    QueueNotFoundError, NotAStoreError, InvalidArgumentError
        At once.
    SchemaMismatchError, SinkAheadError
        From a micro-batch, before anything of it is written.
    """
    columns = [order_by] if isinstance(order_by, str) else list(order_by or ())
    return QueueSink(Store.at(store, storage_options), queue, columns, sink_id)


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
