"""One of several writers of a Delta table: ``python benchmarks/delta_sink_worker.py HOW TABLE NUMBER COMMITS GO`` prints JSON.

HOW is ``delta_sink``, whose commits carry positions, or ``append``, delta-rs' own. It begins when the file GO is there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from spark_partq.core.delivery.positions import Position
from spark_partq.core.ids import PartitionId
from spark_partq.core.payload.ddl import parse_ddl
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.store import Store
from spark_partq.target.files import TableFile
from spark_partq.target.table import DeltaTarget
from spark_partq.target.task import RESULT, taken, write_task

COLUMNS = parse_ddl("k string, v bigint")
ROWS = 1000
QUEUE = "orders"


class CountedTarget(DeltaTarget):
    tries = 0

    def commit(self, files: Sequence[TableFile], transactions: Mapping[str, int]) -> None:
        self.tries += 1
        super().commit(files, transactions)


def batch(number: int, first: int) -> pa.RecordBatch:
    values = list(range(first, first + ROWS))
    return pa.RecordBatch.from_pydict(
        {"k": [f"k{number}-{v % 100}" for v in values], "v": pa.array(values, pa.int64())}
    )


def by_delta_sink(table: str, number: int) -> tuple[Callable[[int], None], Callable[[], int]]:
    place = Store(table)
    target = CountedTarget(place)

    def deliver(at: int) -> None:
        first = at * ROWS
        rows = batch(number, first)
        places = pa.array([QUEUE] * ROWS), pa.array([number] * ROWS, pa.int64()), rows.column("v")
        traced = pa.RecordBatch.from_arrays([*rows.columns, *places], ["k", "v", "queue", "partition", "offset"])

        def write(left: Mapping[PartitionId, int]) -> Written[TableFile]:
            target.begin_files()
            (since,) = left.values()
            task = write_task(place, COLUMNS, [], 0, {(QUEUE, number): (first, first + ROWS, since)})
            results = [result for found in task([traced]) for result in found.column(RESULT).to_pylist()]
            files, ends, _ = taken(results)
            return Written(files, dict(ends))

        position = Position(first, first + ROWS, 1, QUEUE, ((QUEUE, 2**62),))
        deliver_once(target, place.runtime, "g", None, {(QUEUE, number): position}, write)

    return deliver, lambda: target.tries


def by_append(table: str, number: int) -> tuple[Callable[[int], None], Callable[[], int]]:
    def append(at: int) -> None:
        write_deltalake(table, pa.Table.from_batches([batch(number, at * ROWS)]), mode="append")

    return append, lambda: 0


def main(how: str, table: str, number: str, commits: str, go: str) -> None:
    deliver, tries = {"delta_sink": by_delta_sink, "append": by_append}[how](table, int(number))
    print("ready", flush=True)
    while not Path(go).exists():
        time.sleep(0.001)
    for at in range(int(commits)):
        deliver(at)
    print(json.dumps({"ended_s": time.time(), "tries": tries()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
