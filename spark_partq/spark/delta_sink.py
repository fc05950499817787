"""The sink for Delta tables: the tasks write a micro-batch's files, then the driver commits them with the positions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.errors import InvalidArgumentError, PartqError, SchemaMismatchError
from spark_partq.core.ids import PartitionId, QueuePartition
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import (
    MESSAGE_COLUMNS,
    Struct,
    forbids_nulls_inside,
    normalized,
    quoted,
    sql_type,
    stripped,
    type_name,
)
from spark_partq.spark.micro_batch import (
    MicroBatch,
    Run,
    check_traceable,
    micro_batch,
    open_sources,
    queue_ends,
    writing_once,
)
from spark_partq.spark.turns import in_turn
from spark_partq.spark.worker import WorkerFunction
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import Wanted
from spark_partq.target.files import TableFile, is_partition_type
from spark_partq.target.table import DeltaTarget
from spark_partq.target.task import RESULT, taken, write_task

_ADDED = frozenset(field["name"] for field in MESSAGE_COLUMNS["fields"])


class DeltaSink:
    """Writes micro-batches into a Delta table; made by `delta_sink`, for ``writeStream.foreachBatch``."""

    def __init__(
        self, place: Store, partition_by: Sequence[str], name: str | None, *, create: bool, merge_schema: bool
    ) -> None:
        self._turn = threading.RLock()
        self._place, self._partition_by = place, list(partition_by)
        self._name = None if name is None else check_name("sink", name)
        self._create, self._merge_schema = create, merge_schema
        self._target: DeltaTarget | None = None
        self._run: Run | None = None  # of the query that opened the target
        self._sources: dict[str, Queue] = {}  # by their ids

    @in_turn
    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        again = (
            f"this micro-batch has been written to {self._place.uri} by a sink of the same name before: those rows are in, and the table takes these "
            "rows for them. Leave the first call as it is, and give the second sink a name of its own. One call with all rows (union) would leave "
            "out the second call's rows of this micro-batch"
        )
        with writing_once(batch, "delta", self._place.uri, self._name or "", otherwise=again) as run:
            if self._run is not run:
                self._target, self._run = None, run  # a query that is started again takes the table as it is now
            self._deliver_once(batch)

    def _deliver_once(self, batch: DataFrame) -> None:
        planned = micro_batch(batch)
        given = _columns_of(batch)
        if self._reads_durable(batch, planned):
            self._place.force_writes()
        target = self._opened(given)

        def write(left: Mapping[PartitionId, int]) -> Written[TableFile]:
            columns = self._columns(target, given)
            target.begin_files()
            files, ends = self._write(batch, target, columns, planned.wanted(left))
            return Written(files, planned.with_ids(ends))

        ends = partial(queue_ends, batch, planned)
        deliver_once(target, self._place.runtime, planned.group, self._name, planned.by_id, write, ends)

    def _reads_durable(self, batch: DataFrame, planned: MicroBatch) -> bool:
        """Whether one of the queues has ``durability=disk`` now, or cannot be asked."""
        wanted = {queue_id for queue_id, _ in planned.by_id}
        if wanted - self._sources.keys():
            self._sources = {queue.state.queue_id: queue for queue in open_sources(batch, planned)}
        try:
            for queue in self._sources.values():
                queue.control.refresh()
        except PartqError:  # the planner reports it, if it lasts
            return True
        return not wanted <= self._sources.keys() or any(q.state.settings.durable for q in self._sources.values())

    def _opened(self, given: Struct) -> DeltaTarget:
        if self._target is None:
            if self._create and not DeltaTarget.exists(self._place):
                self._check_partitioning(given)
                DeltaTarget.create(self._place, given, self._partition_by)
            target = DeltaTarget(self._place)
            if self._partition_by and target.partition_by != self._partition_by:
                raise InvalidArgumentError(
                    f"{target.what} is partitioned by {target.partition_by}, not by {self._partition_by}; leave partition_by out",
                    table=self._place.uri,
                )
            self._target = target
        return self._target

    def _check_partitioning(self, given: Struct) -> None:
        types = {f["name"]: f["type"] for f in given["fields"]}
        for name in self._partition_by:
            if name not in types or not is_partition_type(types[name]):
                has = f"is {type_name(types[name])}" if name in types else f"is none of {', '.join(types)}"
                raise InvalidArgumentError(
                    f"partition_by column {name!r} {has}; choose a column with texts, whole numbers, dates or truth values",
                    column=name,
                )

    def _columns(self, target: DeltaTarget, given: Struct) -> list[dict[str, Any]]:
        """The columns to write, in the table's order. Columns that the source adds are left out if the table lacks them.

        Raises
        ------
        SchemaMismatchError
            Naming each column at fault.
        """
        faults = _faults(target, given, may_add=self._merge_schema)
        if self._merge_schema and not faults:
            target.add_columns([f for f in given["fields"] if f["name"] not in _ADDED])
            faults = _faults(target, given, may_add=False)
        if faults:
            raise SchemaMismatchError(
                f"{target.what} does not take the rows: {'; '.join(faults)}. Nothing was written. Select and cast the columns of the table, or "
                "let it get new columns with merge_schema=True",
                table=self._place.uri,
                faults="; ".join(faults),
            )
        have, types = {f["name"] for f in given["fields"]}, _types_of(target)
        return [{**f, "type": types[f["name"]], "metadata": {}} for f in target.schema["fields"] if f["name"] in have]

    def _write(
        self, batch: DataFrame, target: DeltaTarget, columns: Sequence[Mapping[str, Any]], wanted: Wanted
    ) -> tuple[list[TableFile], dict[QueuePartition, int]]:
        """Run the job and return the files of all tasks, and where their messages end. If a row is at fault, no file is left."""
        constraints = target.constraints
        # A folder cannot have an empty name, so an empty text becomes null, as Delta's own writers do. This comes before the
        # constraints are checked.
        texts = [f["name"] for f in columns if f["name"] in target.partition_by and f["type"] == "string"]
        batch = batch.withColumns({name: sf.nullif(sf.col(quoted(name)), sf.lit("")) for name in texts})
        if constraints:  # constraints may name columns that the rows lack; these are null
            lacking = [f for f in target.schema["fields"] if f["name"] not in batch.columns]
            batch = batch.withColumns({f["name"]: sf.lit(None).cast(sql_type(f["type"])) for f in lacking})
        rows = batch.select(
            *(sf.col(quoted(f["name"])).alias(f"_{i}") for i, f in enumerate(columns)),
            *(sf.expr(f"boolean({condition})").alias(f"c{i}") for i, condition in enumerate(constraints.values())),
            sf.col("_queue").cast("string").alias("queue"),
            sf.col("_partition").cast("long").alias("partition"),
            sf.col("_offset").cast("long").alias("offset"),
        )
        task = write_task(
            self._place, {"type": "struct", "fields": list(columns)}, target.partition_by, len(constraints), wanted
        )
        results = rows.mapInArrow(WorkerFunction(task), f"{RESULT} string").collect()
        files, ends, problem = taken(row[RESULT] for row in results)
        if problem is not None:
            target.discard(files)
            raise problem.error(target.what, list(constraints.items()))
        return files, ends


def _columns_of(batch: DataFrame) -> Struct:
    """The columns of the rows, each nullable.

    Raises
    ------
    InvalidArgumentError
        If the rows cannot be traced to messages, or a column cannot be kept in a table.
    """
    given: Struct = batch.schema.jsonValue()
    check_traceable(batch)
    return normalized(given)


def _types_of(target: DeltaTarget) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in stripped(target.schema)["fields"]}


def _faults(target: DeltaTarget, given: Struct, *, may_add: bool) -> list[str]:
    """What is wrong with the columns of the rows, for this table. With `may_add` the table may lack columns."""
    have = {f["name"]: f["type"] for f in given["fields"]}
    table, types = {f["name"]: f for f in target.schema["fields"]}, _types_of(target)
    names = {name.lower(): name for name in table}
    faults = [f"its column {names[n.lower()]} differs from {n} by case" for n in have if names.get(n.lower(), n) != n]
    faults += [
        f"it has no column {n} {type_name(t)}"
        for n, t in have.items()
        if n not in table and n.lower() not in names and n not in _ADDED and not may_add
    ]
    faults += [
        f"its column {n} is {type_name(types[n])}, not {type_name(t)}" for n, t in have.items() if types.get(n, t) != t
    ]
    faults += [
        f"its column {n} must not hold nulls inside, which this sink does not check"
        for n in have
        if n in table and forbids_nulls_inside(table[n]["type"])
    ]
    faults += [
        f"its column {n} must not be null, and the rows have none of that name"
        for n, f in table.items()
        if n not in have and not f["nullable"]
    ]
    return faults + [
        f"its partition column {n} is {type_name(table[n]['type'])}, of which no folder can be named"
        for n in target.partition_by
        if not is_partition_type(table[n]["type"])
    ]
