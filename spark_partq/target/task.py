"""What a task of the Delta sink does with its rows: it leaves out rows that the table has, checks the others, and writes files.

Nothing here needs Spark or delta-rs, which a worker would have to import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from spark_partq.core.errors import ConstraintViolatedError, InvalidArgumentError
from spark_partq.core.ids import QueuePartition
from spark_partq.core.payload.schema import Struct
from spark_partq.storage.arrow import array_of, arrow_schema, integers
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import Wanted, foreign_row, sorted_out
from spark_partq.target.files import TableFile, TableWriter, unnamed

RESULT = "result"  # the job's one column: a file, the end of a partition's messages, or a problem, as JSON

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Problem:
    """A row at fault: which row, and the number of the constraint that it does not fulfil, or the partition column whose value no folder can have.

    Neither: the row is not from a message of the micro-batch.
    """

    queue: str | None
    partition: int | None
    offset: int | None
    constraint: int | None = None
    column: str | None = None

    def error(
        self, what: str, constraints: Sequence[tuple[str, str]]
    ) -> InvalidArgumentError | ConstraintViolatedError:
        """The error that says why nothing is written into the table. `constraints`: their names and conditions."""
        message = f"message {self.offset} of partition {self.partition} of queue {self.queue!r}"
        if self.constraint is not None:
            name, condition = constraints[self.constraint]
            return ConstraintViolatedError(
                f"a row of {message} does not fulfil {name} ({condition}) of {what}. Nothing of the micro-batch was written. Filter such rows, "
                "or change the constraint, and start the query again",
                constraint=name,
                queue=self.queue,
                partition=self.partition,
                offset=self.offset,
            )
        if self.column is not None:
            return InvalidArgumentError(
                f"a row of {message} has a value in the partition column {self.column!r} that the log of {what} cannot hold: dates and times there are "
                "of the years 1 to 9999, and texts in UTF-8. Nothing of the micro-batch was written. Filter such rows, or write into a table that is not "
                "partitioned by this column, and start the query again",
                column=self.column,
                queue=self.queue,
                partition=self.partition,
                offset=self.offset,
            )
        return foreign_row(self.queue, self.partition, self.offset)


def taken(results: Iterable[str]) -> tuple[list[TableFile], dict[QueuePartition, int], Problem | None]:
    """The files that all tasks have written, where each partition's messages in them end, and the first row at fault, if there is one."""
    found = [json.loads(result) for result in results]
    ends: dict[QueuePartition, int] = {}
    for queue, partition, end in (result["end"] for result in found if "end" in result):
        ends[queue, partition] = max(end, ends.get((queue, partition), 0))
    problems = [Problem(**result["problem"]) for result in found if "problem" in result]
    return (
        [TableFile(**result["file"]) for result in found if "file" in result],
        ends,
        problems[0] if problems else None,
    )


def write_task(
    place: Store, columns: Struct, partition_by: Sequence[str], constraints: int, wanted: Wanted
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(columns)
        writer = TableWriter(place, schema, partition_by)
        try:
            found = _write_rows(writer, schema, constraints, wanted, batches)
        except BaseException:
            writer.discard()
            raise
        if found:
            yield pa.RecordBatch.from_arrays([array_of(found, pa.string())], [RESULT])

    return write


def _write_rows(
    writer: TableWriter, schema: pa.Schema, constraints: int, wanted: Wanted, batches: Batches
) -> list[str]:
    """Write the rows that are wanted. Returns the files, or the first problem, as JSON."""
    width, ends = len(schema), dict[QueuePartition, int]()
    for batch in batches:
        keep, foreign = sorted_out(batch.columns[-3:], wanted, ends)
        problem = None
        if foreign is not None:
            problem = _problem(batch, foreign)
        for number in range(constraints):
            held = batch.column(width + number)
            if problem is None and held.true_count < batch.num_rows:
                broken = [i for i, value in enumerate(held.to_pylist()) if not value and keep[i]]
                problem = _problem(batch, broken[0], number) if broken else None
        for number, field in enumerate(schema):
            if problem is None and field.name in writer.partition_by:
                at_fault = np.flatnonzero(unnamed(batch.column(number)) & keep)
                problem = _problem(batch, int(at_fault[0]), column=field.name) if at_fault.size else None
        if problem is not None:
            writer.discard()
            return [json.dumps({"problem": asdict(problem)})]
        if keep.any():
            columns = [_cast(batch.column(i), field.type) for i, field in enumerate(schema)]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            writer.write(rows if keep.all() else rows.take(integers(np.flatnonzero(keep))))
    files = [json.dumps({"file": asdict(file)}) for file in writer.finish()]
    return files + [json.dumps({"end": [*place, end]}) for place, end in ends.items()]


def _problem(batch: pa.RecordBatch, row: int, constraint: int | None = None, column: str | None = None) -> Problem:
    queue, partition, offset = (of[row].as_py() for of in batch.columns[-3:])
    return Problem(queue, partition, offset, constraint, column)


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
