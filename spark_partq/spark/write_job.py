"""The Spark job that writes the messages' files, each task those of its rows (Q3, Q4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark_partq.core.ids import QueuePartition
from spark_partq.core.queue.manifest import NewFile
from spark_partq.spark.hashing import quoted
from spark_partq.spark.micro_batch import SOURCE
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.write_task import RESULT, Task, count_task, write_task
from spark_partq.storage.wanted import Wanted, foreign_row

_PARTITION, _ORDER = "__partq_partition", "__partq_order"

# Up to here the rows are not shuffled: each task writes a file for each partition it has rows of. Beyond, that would
# be too many files, so one task gathers a partition's rows.
_DIRECT_TASKS = 8
_DIRECT_PARTITIONS = 256


class WrittenRows(NamedTuple):
    """What a job has written, or counted.

    Attributes
    ----------
    files : list of NewFile
        In the order of their rows.
    ends : dict
        Of each partition from which rows come, the offset after the last of their messages.
    counted : int
        How many rows there are, if they were counted instead of written.
    """

    files: list[NewFile]
    ends: dict[QueuePartition, int]
    counted: int = 0


def write_files(
    batch: DataFrame, queue: Queue, order_by: Sequence[str], partition: Column, wanted: Wanted | None = None
) -> WrittenRows:
    """Run the job; null is written into columns of the queue that the batch lacks.

    Parameters
    ----------
    wanted : dict, optional
        Write only rows that come from these messages; the batch says it in `SOURCE`.

    Raises
    ------
    InvalidArgumentError
        If a row comes from a message that is none of the micro-batch.
    """
    state = queue.state
    fields = StructType.fromJson(state.schema).fields
    columns, given = [field.name for field in fields], set(batch.columns)
    values = [quoted(f.name) if f.name in given else sf.lit(None).cast(f.dataType) for f in fields]
    # By number: mapInArrow looks columns up by name and takes a dot or a backtick in one for syntax.
    rows = batch.select(
        *(value.alias(f"_{i}") for i, value in enumerate(values)),
        partition.alias(_PARTITION),
        sf.monotonically_increasing_id().alias(_ORDER),
        *([] if wanted is None else _source()),
    )
    slots = max(1, batch.sparkSession.sparkContext.defaultParallelism)
    partitions = max(1, state.partition_count)
    direct = not order_by and slots <= _DIRECT_TASKS and partitions <= _DIRECT_PARTITIONS
    if direct:
        rows = rows.coalesce(slots)
    else:
        tasks = min(partitions, slots)
        order = [f"_{columns.index(c)}" for c in order_by]
        rows = rows.repartitionById(tasks, _PARTITION if state.partition_count else sf.lit(0)).sortWithinPartitions(
            _PARTITION, *order, _ORDER
        )
    return _run(rows, write_task(queue.store, state.name, columns, state.key, not direct, wanted))


def count_rows(batch: DataFrame, wanted: Wanted) -> WrittenRows:
    """Count the rows that come from these messages, instead of writing them."""
    return _run(batch.select(*_source()), count_task(wanted))


def _source() -> list[Column]:
    types = ("string", "long", "long")
    return [sf.col(name).cast(type_).alias(name) for name, type_ in zip(SOURCE, types, strict=True)]


def _run(rows: DataFrame, task: Task) -> WrittenRows:
    found = [json.loads(row[RESULT]) for row in rows.mapInArrow(task, f"{RESULT} string").collect()]
    foreign = [result["foreign"] for result in found if "foreign" in result]
    if foreign:
        raise foreign_row(*foreign[0])
    ends: dict[QueuePartition, int] = {}
    for queue, partition, end in (result["end"] for result in found if "end" in result):
        ends[queue, partition] = max(end, ends.get((queue, partition), 0))
    files = [NewFile(**result["file"]) for result in found if "file" in result]
    count = sum(result["count"] for result in found if "count" in result)
    return WrittenRows(sorted(files, key=lambda file: file.order), ends, count)
