"""The rows of a batch, written into files of the partitions where they belong, without Spark.

A Spark sink does the same with a job of its own (`spark.sink`); the hash of a key is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_partq.core.payload.keys import key_hash
from spark_partq.core.queue.partition_map import is_in, target
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.produce import Written
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.queue.partition_table import NewFile


def write_rows(
    queue: Queue,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    hashes: Callable[[int, pa.RecordBatch], Sequence[int]],
    written: Written,
) -> list[NewFile]:
    """Write those rows that no partition holds, and return the files in the order of their rows.

    Parameters
    ----------
    batches : iterable
        The number of a first row, and rows of exactly the queue's payload columns from there on.
    hashes : function
        Takes the same; gives a hash of each row, the same at every call.
    written : dict
        By generation of the map, the partitions that hold the batch.

    Raises
    ------
    CommitFailedError
        If the store takes no files; none is left then.
    """
    state = queue.state
    writer = MessageWriter(queue.store, queue.name, arrow_schema(state.schema), state.key, sorted_input=False)
    for first, batch in batches:
        of_rows = hashes(first, batch)
        rows = [i for i, hash_ in enumerate(of_rows) if not is_in(hash_, state.generations, written)]
        if rows:
            places = np.array([target(of_rows[i], state.partition_count) for i in rows])
            writer.write(batch.take(pa.array(rows)), places, np.array(rows) + first)
    return sorted(writer.finish(), key=lambda file: file.order)


def key_hashes(state: QueueState, batch: pa.RecordBatch, otherwise: Sequence[int]) -> list[int]:
    """Of a row with a key what every sink makes of it; of one without, the number that `otherwise` has for it."""
    if not state.key:
        return list(otherwise)
    columns, types = zip(*map(_plain, map(batch.column, state.key), state.key_types), strict=True)
    keys = zip(*(column.to_pylist() for column in columns), strict=True)
    return [
        other if all(value is None for value in key) else key_hash(key, types)
        for key, other in zip(keys, otherwise, strict=True)
    ]


def _plain(column: pa.Array, type_: Any) -> tuple[pa.Array, Any]:
    """Times as the integers that are hashed of them: Python has no year 10000."""
    if type_ in ("timestamp", "timestamp_ntz"):
        return column.cast(pa.int64()), "long"
    if type_ == "date":
        return column.cast(pa.int32()), "integer"
    return column, type_
