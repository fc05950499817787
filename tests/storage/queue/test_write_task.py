"""What a task of a queue's sink does with its rows: files of those that are wanted, and what it tells of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.partition_table import SOURCE_SHIFT
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.queue.write_task import RESULT, count_task, write_task
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import Wanted

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
Source = tuple[str, int, int]


@pytest.fixture(name="place")
def place_fixture(store: str) -> Store:
    """With queue `q` of three partitions."""
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=3)
    return Store(store)


def batch(
    values: Sequence[int], partitions: Sequence[int], order: int, source: Sequence[Source] = ()
) -> pa.RecordBatch:
    """Rows as Spark gives them: columns by number, then partition and place, then the message from which each comes."""
    columns: dict[str, Any] = {
        "_0": pa.array([f"k{v}" for v in values], pa.string()),
        "_1": pa.array(values, pa.int64()),
        "partition": pa.array(partitions, pa.int32()),
        "order": pa.array(range(order, order + len(values)), pa.int64()),
    }
    if source:
        queues, numbers, offsets = zip(*source, strict=True)
        columns |= {"queue": queues, "number": pa.array(numbers, pa.int64()), "offset": pa.array(offsets, pa.int64())}
    return pa.RecordBatch.from_pydict(columns)


def sources(*rows: Source) -> pa.RecordBatch:
    """Of rows that are only counted, the messages from which they come."""
    return batch([0] * len(rows), [0] * len(rows), 0, rows).select(["queue", "number", "offset"])


def told(
    place: Store, batches: Sequence[pa.RecordBatch], wanted: Wanted | None = None, sorted_input: bool = False
) -> list[Any]:
    task = write_task(place, "q", SCHEMA.names, ["k"], sorted_input, wanted)
    return [json.loads(text) for found in task(batches) for text in found.column(RESULT).to_pylist()]


def files(place: Store, results: Sequence[Any]) -> list[tuple[int, int, list[int]]]:
    """Of each file its partition, the place of its first row, and its values; each key is that of its value."""
    found = []
    for file in (result["file"] for result in results if "file" in result):
        piece = Slice("q", file["partition"], file["path"], 0, file["rows"], 0, 0, file["rows"])
        rows = [row for _, part in read_slice(place, piece, SCHEMA) for row in part.to_pylist()]
        assert all(row["k"] == f"k{row['v']}" for row in rows)
        found.append((file["partition"], file["order"], [row["v"] for row in rows]))
    return sorted(found)


def test_a_file_for_each_partition(place: Store) -> None:
    """Q4: with the rows of all batches in their order; and it tells how much it has read."""
    batches = [batch([1, 2, 3], [2, 0, 2], 5), batch([], [], 8), batch([4, 5], [0, 2], 8)]
    results = told(place, batches)
    assert files(place, results) == [(0, 6, [2, 4]), (2, 5, [1, 3, 5])]
    assert results[2:] == [{"read": [5, sum(each.nbytes for each in batches)]}]


@pytest.mark.parametrize(("second", "sorted_input", "count"), [(1, False, 1), (2, False, 2), (2, True, 1)])
def test_a_task_that_reads_two_input_partitions(place: Store, second: int, sorted_input: bool, count: int) -> None:
    """Q3: where it passes over one, which another task reads, its files end; not if the rows are sorted already."""
    batches = [batch([1, 2], [0, 0], 0), batch([3], [0], second << SOURCE_SHIFT)]
    assert len(files(place, told(place, batches, sorted_input=sorted_input))) == count


def test_only_what_is_wanted_is_written(place: Store) -> None:
    """Q5: the columns that tell from which message a row comes are not written; and it tells how far each partition was read."""
    wanted = {("p", 0): (0, 10, 3), ("p", 7): (0, 10, 0)}
    batches = [
        batch([1, 2, 3], [1, 2, 1], 0, [("p", 0, 2), ("p", 0, 3), ("p", 7, 0)]),
        batch([4, 5], [1, 1], 3, [("p", 0, 0), ("p", 0, 1)]),  # nothing of it
        batch([6, 7], [2, 0], 5, [("p", 0, 4), ("p", 7, 1)]),  # all of it
    ]
    results = told(place, batches, wanted)
    assert files(place, results) == [(0, 6, [7]), (1, 2, [3]), (2, 1, [2, 6])]
    ends = [{"end": ["p", 0, 5]}, {"end": ["p", 7, 2]}]
    assert results[3:] == [*ends, {"read": [7, sum(each.nbytes for each in batches)]}]


def test_a_row_of_no_message_of_the_micro_batch(place: Store) -> None:
    """Q5: it is told, and nothing is left of a file of the rows before it."""
    batches = [batch([1], [0], 0, [("p", 0, 2)]), batch([2, 3], [0, 0], 1, [("p", 0, 3), ("p", 0, 10)])]
    assert told(place, batches, {("p", 0): (0, 10, 0)}) == [{"foreign": ["p", 0, 10]}]
    folder = Path(place.uri, "queues", "q", "partitions", "partition=0")
    assert [path.name for path in folder.iterdir()] == ["_delta_log"]


def test_no_rows(place: Store) -> None:
    assert told(place, []) == [{"read": [0, 0]}]


def test_only_what_is_wanted_is_counted() -> None:
    """Q5: it also tells how far each partition was read, or which row is of no message of the micro-batch."""
    count = count_task({("p", 0): (0, 10, 3), ("p", 7): (0, 10, 0)})
    batches = [sources(("p", 0, 2), ("p", 0, 3), ("p", 7, 0)), sources(("p", 0, 4), ("p", 0, 1))]
    foreign = sources(("p", 7, 1), ("p", 0, 10))
    for given, results in (
        (batches, [{"count": 3}, {"end": ["p", 0, 5]}, {"end": ["p", 7, 1]}]),
        ([], [{"count": 0}]),
        ([*batches, foreign], [{"foreign": ["p", 0, 10]}]),
    ):
        assert [json.loads(text) for found in count(given) for text in found.column(RESULT).to_pylist()] == results
