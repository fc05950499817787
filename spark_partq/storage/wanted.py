"""The rows of a micro-batch that a target lacks, told by the messages from which they come.

Nothing here needs Spark or delta-rs, which a worker would have to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition

# Of a partition the micro-batch's start and end, and from where on rows are wanted
Wanted = Mapping[QueuePartition, tuple[int, int, int]]


def sorted_out(
    source: Sequence[pa.Array], wanted: Wanted, ends: dict[QueuePartition, int]
) -> tuple[NDArray[np.bool_], int | None]:
    """Which rows are wanted, and the first that is no message of the micro-batch, if there is one.

    Parameters
    ----------
    source : three arrays
        Of each row the message's queue, partition and offset.
    ends : dict
        Of each partition the offset after the last message that has a wanted row; raised by these.
    """
    queues, partitions, offsets = source
    for column in (queues, partitions, offsets):
        if column.null_count:
            return np.zeros(len(column), bool), column.is_null().index(pa.scalar(True)).as_py()
    named = queues.dictionary_encode()
    numbers, at = np.from_dlpack(partitions), np.from_dlpack(offsets)
    codes = np.from_dlpack(named.indices).astype(np.int64) * 2**32 + numbers
    keep, own = np.zeros(len(codes), bool), np.zeros(len(codes), bool)
    for code in np.unique(codes):
        rows = codes == code
        first = int(np.flatnonzero(rows)[0])
        place = queues[first].as_py(), int(numbers[first])
        start, end, since = wanted.get(place, (0, 0, 0))
        own |= rows & (at >= start) & (at < end)
        chosen = rows & (at >= since)
        keep |= chosen
        if chosen.any():
            ends[place] = max(int(at[chosen].max()) + 1, ends.get(place, 0))
    return keep & own, None if own.all() else int(np.flatnonzero(~own)[0])


def foreign_row(queue: str | None, partition: int | None, offset: int | None) -> InvalidArgumentError:
    """A row says that it comes from a message that is none of the micro-batch."""
    return InvalidArgumentError(
        f"a row says that it comes from message {offset} of partition {partition} of queue {queue!r}, which is none of this micro-batch. "
        "Nothing was written. Keep _queue, _partition and _offset as they are; what keeps rows for later micro-batches (a stateful "
        "operator) cannot be written exactly once",
        queue=queue,
        partition=partition,
        offset=offset,
    )
