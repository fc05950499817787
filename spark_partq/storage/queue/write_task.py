"""What a task of a queue's sink does with its rows: it leaves out what is in, and writes files of the rest.

Nothing here needs Spark, or what a worker would have to import besides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from spark_partq.core.ids import QueuePartition
from spark_partq.storage.arrow import array_of, integers
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import Wanted, sorted_out

RESULT = "result"  # the job's one column, JSON: a file, the end of a partition's messages, a size, a count, or a row at fault

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]


def write_task(
    store: Store, queue: str, columns: Sequence[str], key: Sequence[str], sorted_input: bool, wanted: Wanted | None
) -> Task:
    width = len(columns) + 2

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        writer: MessageWriter | None = None
        ends: dict[QueuePartition, int] = {}
        rows_read = bytes_read = 0
        for batch in batches:
            rows = batch
            rows_read, bytes_read = rows_read + batch.num_rows, bytes_read + batch.nbytes
            if wanted is not None:
                keep, foreign = sorted_out(batch.columns[-3:], wanted, ends)
                if foreign is not None:
                    if writer is not None:
                        writer.discard()
                    yield _foreign(batch, foreign)
                    return
                rows = batch if keep.all() else batch.take(integers(np.flatnonzero(keep)))
            if not rows.num_rows:
                continue
            *payload, partitions, order = rows.columns[:width]
            schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, columns, strict=False)])
            writer = writer or MessageWriter(store, queue, schema, key, sorted_input)
            writer.write(
                pa.RecordBatch.from_arrays(payload, schema=schema),
                np.from_dlpack(partitions).astype(np.int16),  # a stable sort of small integers is a radix sort
                np.from_dlpack(order).astype(np.int64, copy=False),
            )
        files = [{"file": asdict(file)} for file in writer.finish()] if writer else []
        yield from _results([*files, *_ends(ends), {"read": [rows_read, bytes_read]}])

    return write


def count_task(wanted: Wanted) -> Task:
    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        ends: dict[QueuePartition, int] = {}
        rows = 0
        for batch in batches:
            keep, foreign = sorted_out(batch.columns, wanted, ends)
            if foreign is not None:
                yield _foreign(batch, foreign)
                return
            rows += int(keep.sum())
        yield from _results([{"count": rows}, *_ends(ends)])

    return count


def _ends(ends: dict[QueuePartition, int]) -> list[dict[str, object]]:
    return [{"end": [*place, end]} for place, end in ends.items()]


def _foreign(batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
    place = [column[row].as_py() for column in batch.columns[-3:]]
    return next(_results([{"foreign": place}]))


def _results(found: Sequence[object]) -> Iterator[pa.RecordBatch]:
    if found:
        yield pa.RecordBatch.from_arrays([array_of([json.dumps(result) for result in found], pa.string())], [RESULT])
