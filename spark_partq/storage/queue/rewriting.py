"""Files of messages are written again: without some of their messages, or several as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_partq.core.errors import CommitFailedError, CorruptTableError
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.files import FileMissing
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.file_index import Ints
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageFile, why_unwritten
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Slice

Rows = Iterator[tuple[Ints, pa.RecordBatch, Ints]]


def was_replaced(table: PartitionTable, files: Sequence[Slice]) -> bool:
    """Whether the partition no longer has one of the files, as another process has rewritten or removed it; refreshes the table."""
    table.refresh()
    paths = set(table.index.paths)
    return any(part.path not in paths for part in files)


def rewrite(
    queue: Queue,
    table: PartitionTable,
    files: Sequence[Slice],
    rows: Rows,
    age: FileAge,
    generation: int | None = None,
) -> bool:
    """Put one file in the place of some that follow each other; False if one of them is not there any more.

    Parameters
    ----------
    files : sequence of Slice
        Each as a whole.
    rows : iterator
        Of the messages that are left their offsets, they themselves with every column that the queue has by now, and when they were
        enqueued.
    age : FileAge
        When the new file was begun: not before the queue was read, as the grace may have been lowered since.
    generation : int, optional
        Not if the partition is sealed under this generation of the map.

    Raises
    ------
    FilesTooOld
        If this took so long that maintenance may delete the new file before it is committed.
    Fenced
        If the queue's replica takes over.
    CommitFailedError, CorruptTableError
    """
    base, segment = files[0].base_offset, len(files) > 1 or files[0].segment
    schema = arrow_schema(queue.state.schema)
    try:
        file = MessageFile(queue.store, queue.name, table.partition, schema, queue.state.key, segment=segment)
        try:
            for offsets, batch, times_us in rows:
                file.write(batch, offsets - base, times_us if segment else None)
            new = file.close()
        except BaseException:
            file.discard()
            raise
    except CorruptTableError:
        if not was_replaced(table, files):
            raise
        return False
    except (OSError, FileMissing) as error:
        raise CommitFailedError(
            f"a file of partition {table.partition} of queue {queue.name!r} cannot be written again: {why_unwritten(error)}; the file in question was not "
            "changed. Check the space that is left and the permissions, and run this again",
            queue=queue.name,
            partition=table.partition,
        ) from error
    return table.replace([part.path for part in files], new, age, generation)
