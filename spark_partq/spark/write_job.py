"""The Spark job that writes the messages' files: each task writes the files of its rows. The driver writes the files of a small batch (Q3, Q4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.ids import QueuePartition
from spark_partq.core.payload.schema import forbids_nulls_inside, quoted, sql_type
from spark_partq.core.queue.manifest import NewFile
from spark_partq.spark.hashing import Expression, selected
from spark_partq.spark.micro_batch import SOURCE
from spark_partq.spark.worker import WorkerFunction
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.write_task import RESULT, Task, count_task, write_task
from spark_partq.storage.wanted import Wanted, foreign_row

_PARTITION, _ORDER = "__partq_partition", "__partq_order"

# Up to these numbers the rows are not shuffled: each task writes a file for each partition of which it has rows. Beyond them that would be
# too many files, so one task gathers a partition's rows.
_DIRECT_TASKS = 8
_DIRECT_PARTITIONS = 256

# Up to these sizes a batch is small: bringing its rows to the driver takes less time than a job with Python workers.
_SMALL_ROWS = 20_000
_SMALL_BYTES = 16 << 20
_SMALL_COLUMNS = 100  # Spark's optimizer takes far longer for a filter over many computed columns
_ROW_IN_TASK = (1 << 33) - 1  # in monotonically_increasing_id, the bits below the task's number


class WrittenRows(NamedTuple):
    """What was written, or counted.

    Attributes
    ----------
    files : list of NewFile
        In the order of their rows.
    ends : dict
        For each partition from which rows come, the offset after the last of their messages.
    counted : int
        How many rows there are, if they were counted instead of written.
    rows_read, bytes_read : int
        How much the job read, including rows that were not wanted; bytes in memory.
    """

    files: list[NewFile]
    ends: dict[QueuePartition, int]
    counted: int = 0
    rows_read: int = 0
    bytes_read: int = 0


def write_files(
    batch: DataFrame,
    queue: Queue,
    order_by: Sequence[str],
    partition: Expression,
    wanted: Wanted | None = None,
    last: WrittenRows | None = None,
) -> WrittenRows:
    """Write the files of a batch's messages; null is written into columns of the queue that the batch lacks.

    Parameters
    ----------
    order_by : sequence of str
        Columns of the queue, and with `wanted` also of `SOURCE`.
    wanted : dict, optional
        Write only rows that come from these messages. The batch has the columns `SOURCE`, which name the message of each row.
    last : WrittenRows, optional
        What the sink wrote last. If that was small, the driver writes this batch itself, unless the batch turns out to be larger.

    Raises
    ------
    InvalidArgumentError
        If a row comes from a message that is not in the micro-batch.
    """
    state = queue.state
    columns = [field["name"] for field in state.schema["fields"]]
    given = {field["name"]: field["type"] for field in batch.schema.jsonValue()["fields"]}
    values = [_value(f["name"], f["type"], given.get(f["name"])) for f in state.schema["fields"]]
    # Columns are named by number: mapInArrow looks columns up by name, and takes a dot or a backtick in a name for syntax.
    numbered = [f"_{i}" for i in range(len(columns))]
    source, names = ([], []) if wanted is None else (_source(), SOURCE)
    rows = selected(
        batch, [*values, partition, "monotonically_increasing_id()", *source], [*numbered, _PARTITION, _ORDER, *names]
    )
    task = partial(write_task, queue.store, state.name, columns, state.key, wanted=wanted)
    order = [f"_{columns.index(c)}" if c in columns else c for c in order_by]
    slots = max(1, batch.sparkSession.sparkContext.defaultParallelism)
    if not order and slots <= _DIRECT_TASKS:
        rows = rows.coalesce(slots)
    if (
        len(columns) <= _SMALL_COLUMNS
        and _is_small(rows, last)
        and (found := _brought_here(rows, order, last)) is not None
    ):
        return _written(task(sorted_input=False)(found.to_batches()))
    partitions = max(1, state.partition_count)
    direct = not order and slots <= _DIRECT_TASKS and partitions <= _DIRECT_PARTITIONS
    if not direct:
        tasks = min(partitions, slots)
        number = sf.col(_PARTITION).cast("int") if state.partition_count else sf.lit(0)
        rows = rows.repartitionById(tasks, number).sortWithinPartitions(_PARTITION, *order, _ORDER)
    return _run(rows, task(sorted_input=not direct))


def _value(name: str, type_: Any, given: Any) -> str:
    """A column of the queue, as SQL; `given` is its type in the batch, None if the batch lacks it.

    Where Spark knows that parts of a struct are never null, Arrow takes no row in which the struct itself is. A cast makes all parts nullable.
    """
    if given is None:
        return f"cast(null as {sql_type(type_)})"
    return f"cast({quoted(name)} as {sql_type(type_)})" if forbids_nulls_inside(given) else quoted(name)


def _is_small(rows: DataFrame, last: WrittenRows | None) -> bool:
    """Whether the batch is probably small: whether the sink's last batch was small, or, for the sink's first batch, by Spark's estimate."""
    if last is not None:
        return last.rows_read <= _SMALL_ROWS and last.bytes_read <= _SMALL_BYTES
    estimate: int = rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return estimate <= _SMALL_BYTES


def _brought_here(rows: DataFrame, order: Sequence[str], last: WrittenRows | None = None) -> pa.Table | None:
    """The rows of a batch, in order; None if they are more than a small batch has.

    There are few tasks, and none returns more than one row too many. So if rows are as wide as in the batch before, each task returns at
    most about as much as a small batch has. Spark refuses to bring more than `spark.driver.maxResultSize` to the driver.
    """
    most = _SMALL_ROWS
    if last is not None and last.rows_read:
        most = min(most, max(1, _SMALL_BYTES * last.rows_read // max(1, last.bytes_read)))
    some = rows.coalesce(_DIRECT_TASKS).where(f"(monotonically_increasing_id() & {_ROW_IN_TASK}L) <= {most}")
    if order:
        some = some.repartition(1).sortWithinPartitions(*order, _ORDER)
    try:
        found = some.toArrow()
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        return None
    if found.num_rows > most:
        return None
    place = found.schema.get_field_index(_ORDER)
    # Of a cached DataFrame, `coalesce` puts partitions together that lie on one machine, whether or not they follow each other.
    if not order and np.any(np.diff(found.column(place).to_numpy()) < 0):
        found = found.sort_by(_ORDER)
    # In this order the rows are one sequence, whichever tasks have read them.
    return found.set_column(place, _ORDER, pa.array(np.arange(found.num_rows)))


def count_rows(batch: DataFrame, wanted: Wanted) -> WrittenRows:
    """Count the rows that come from these messages, instead of writing them."""
    return _run(selected(batch, _source(), SOURCE), count_task(wanted))


def _source() -> list[str]:
    return [f"cast({quoted(name)} as {type_})" for name, type_ in zip(SOURCE, ("string", "long", "long"), strict=True)]


def _run(rows: DataFrame, task: Task) -> WrittenRows:
    return _written(rows.mapInArrow(WorkerFunction(task), f"{RESULT} string").toArrow().to_batches())


def _written(results: Iterable[pa.RecordBatch]) -> WrittenRows:
    found = [json.loads(result) for batch in results for result in batch.column(0).to_pylist()]
    foreign = [result["foreign"] for result in found if "foreign" in result]
    if foreign:
        raise foreign_row(*foreign[0])
    ends: dict[QueuePartition, int] = {}
    for queue, partition, end in (result["end"] for result in found if "end" in result):
        ends[queue, partition] = max(end, ends.get((queue, partition), 0))
    files = [NewFile(**result["file"]) for result in found if "file" in result]
    count = sum(result["count"] for result in found if "count" in result)
    read = [sum(of_tasks) for of_tasks in zip(*(result["read"] for result in found if "read" in result), strict=True)]
    return WrittenRows(sorted(files, key=lambda file: file.order), ends, count, *read)
