"""Files of messages are written again: without some of their messages, or several as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import CommitFailedError
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageFile
from spark_partq.storage.queue.partition_table import FilesTooOld, PartitionTable
from spark_partq.storage.queue.slices import Slice

Rows = Iterator[tuple[Ints, pa.RecordBatch]]


def rewrite(
    queue: Queue, table: PartitionTable, files: Sequence[Slice], rows: Rows, generation: int | None = None
) -> bool:
    """Put one file in the place of some that follow each other; False if one of them is not there any more, or this took too long.

    Parameters
    ----------
    files : sequence of Slice
        Each as a whole.
    rows : iterator
        Of the messages that are left their offsets, and they themselves, with every column that the queue has by now.
    generation : int, optional
        Not if the partition is sealed under this generation of the map.

    Raises
    ------
    Fenced
        If the queue's replica takes over.
    CommitFailedError, CorruptTableError
    """
    deadline_s = queue.store.runtime.monotonic_s() + queue.state.settings.vacuum_grace_ms / 2000
    ends = np.concatenate([part.base_offset + _ends(part) for part in files])
    base, left = files[0].base_offset, np.zeros(len(ends), dtype=np.int64)
    try:
        file = MessageFile(queue.store, queue.name, table.partition, arrow_schema(queue.state.schema), queue.state.key)
        try:
            for offsets, batch in rows:
                file.write(batch, offsets - base)
                left += np.bincount(np.searchsorted(ends, offsets, side="right"), minlength=len(ends))
            new = file.close()
        except BaseException:
            file.discard()
            raise
    except (OSError, FileMissing) as error:
        raise CommitFailedError(
            f"a file of partition {table.partition} of queue {queue.name!r} cannot be written again: {error}; the file in question was not "
            "changed. Check the space that is left and the permissions, and run this again",
            queue=queue.name,
            partition=table.partition,
        ) from error
    try:
        return table.replace([part.path for part in files], new, left.tolist(), deadline_s, generation)
    except FilesTooOld:
        return False


def _ends(part: Slice) -> Ints:
    """Behind the last row of each file for which this one stands."""
    return np.array([end for end, _ in part.parts] or [part.last_row])
