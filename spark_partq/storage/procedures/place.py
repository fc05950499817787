"""The rows of a batch, written into files of the partitions where they belong, without Spark.

A Spark sink does the same with a job of its own (`spark.sink`); the hash of a key is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import CommitFailedError, CorruptTableError
from spark_partq.core.payload.keys import key_hash
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import target
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.arrow import arrow_schema, exact_type, exact_values
from spark_partq.storage.murmur2 import positive_murmur2s
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageWriter, read_slice
from spark_partq.storage.queue.slices import Slice

T = TypeVar("T")


def write_rows(
    queue: Queue,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    hashes: Callable[[int, pa.RecordBatch], Sequence[int]] | None = None,
) -> list[NewFile]:
    """Write rows where the map in force puts them, and return the files in the order of their rows.

    Parameters
    ----------
    batches : iterable
        Each: the number of the first row, and rows with exactly the queue's payload columns.
    hashes : function, optional
        Takes such a pair and returns a hash of each row. Without this function, a row without a key is placed by its
        number.

    Raises
    ------
    CommitFailedError
        If the store takes no files. Then no file is left.
    """
    state = queue.state

    def numbered(first: int, batch: pa.RecordBatch) -> list[int]:
        return key_hashes(state, batch, range(first, first + batch.num_rows))

    hashes = hashes or numbered
    writer = MessageWriter(queue.store, queue.name, arrow_schema(state.schema), state.key, sorted_input=False)
    for first, batch in batches:
        places = np.array([target(hash_, state.partition_count) for hash_ in hashes(first, batch)])
        writer.write(batch, places, np.arange(first, first + batch.num_rows))
    return sorted(writer.finish(), key=lambda file: file.order)


def place_again(queue: Queue, files: Sequence[NewFile]) -> list[NewFile]:
    """Write the rows of files that an earlier map placed again: in their order, where the map in force puts them.

    Raises
    ------
    CommitFailedError
        If the store takes no files.
    CorruptTableError
        If one of the files cannot be read.
    """

    def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
        before = 0
        for file in files:
            piece = Slice(queue.name, file.partition, file.path, 0, file.rows, 0, 0, file.rows, queue.state.added)
            for first, batch in read_slice(queue.store, piece, arrow_schema(queue.state.schema)):
                yield before + first, batch
            before += file.rows

    return write_rows(queue, rows())  # the new manifest says where a row without a key is


def place_unnamed_again(queue: Queue, files: Sequence[NewFile]) -> list[NewFile]:
    """As `place_again`, of files that no manifest names, so that maintenance deletes them at some age.

    Raises
    ------
    CommitFailedError
        Also if it has.
    """
    try:
        return place_again(queue, files)
    except CorruptTableError as error:
        partitions = ", ".join(map(str, sorted({file.partition for file in files})))
        raise CommitFailedError(
            f"files that were written for queue {queue.name!r} are so old that maintenance may have deleted them: this machine stood still, or its "
            f"clock did. The queue itself is whole. The rows of partitions {partitions} are not in it: write them again",
            queue=queue.name,
        ) from error


def key_hashes(state: QueueState, batch: pa.RecordBatch, otherwise: Sequence[T]) -> list[int | T]:
    """For a row with a key, the hash that every sink computes; for a row without one, its number in `otherwise`."""
    if state.key_hash == "murmur2":
        (column,) = map(batch.column, state.key)
        found = zip(positive_murmur2s(column).tolist(), column.is_null().to_pylist(), otherwise, strict=True)
        return [other if is_null else hash_ for hash_, is_null, other in found]
    return identities(state, batch, otherwise)


def identities(state: QueueState, batch: pa.RecordBatch, otherwise: Sequence[T]) -> list[int | T]:
    """The 64-bit hash that stands for a row's key, whichever hash places it; without a key, the row's value in `otherwise`."""
    if not state.key:
        return list(otherwise)
    keys = zip(*map(exact_values, map(batch.column, state.key), state.key_types), strict=True)
    types = [exact_type(type_) for type_ in state.key_types]
    return [
        other if all(value is None for value in key) else key_hash(key, types)
        for key, other in zip(keys, otherwise, strict=True)
    ]
