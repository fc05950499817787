"""Positions that an operator sets, with Spark: queries are given messages again, whatever their checkpoints say (H4)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import spark_partq as partq
from tests.helpers import ROOT, consume, flat, put, run_through, stream, two_partitions

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def queue(store: str) -> str:
    """20 messages in each of two partitions."""
    return two_partitions(store, 20)


def given(rows: list[Any]) -> dict[int, list[int]]:
    """Offsets by partition, in the order in which they came."""
    return {n: [row._offset for row in rows if row._partition == n] for n in sorted({row._partition for row in rows})}


@pytest.mark.long
def test_all_again(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """With the same checkpoint, and with a new one: everything comes again, in order, and each message is marked."""
    everything = {0: list(range(20)), 1: list(range(20))}
    first = flat(consume(spark, queue, tmp_path / "cp", group="g"))
    assert given(first) == everything and not any(row._redelivered for row in first)
    assert flat(consume(spark, queue, tmp_path / "cp", group="g")) == []
    for checkpoint in ("cp", "new"):
        assert [reset.again for reset in partq.reset_offsets(queue, "g", "earliest")] == [20, 20]
        again = flat(consume(spark, queue, tmp_path / checkpoint, group="g"))
        assert given(again) == everything and all(row._redelivered for row in again)
        assert min(row._epoch for row in again) > max(row._epoch for row in first)
    put(queue, 1, range(3))
    fresh = flat(consume(spark, queue, tmp_path / "cp", group="g"))
    assert given(fresh) == {1: [20, 21, 22]} and not any(row._redelivered for row in fresh)


@pytest.mark.long
def test_a_step_forward(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    flat(consume(spark, queue, tmp_path / "cp", group="g"))
    put(queue, 0, range(5))
    put(queue, 1, range(5))
    (reset,) = partq.reset_offsets(queue, "g", {"q": {1: 23}})
    assert (reset.old, reset.new, reset.again, reset.skipped) == (20, 23, 0, 3)
    assert given(flat(consume(spark, queue, tmp_path / "cp", group="g"))) == {0: [20, 21, 22, 23, 24], 1: [23, 24]}


def test_a_table_of_results_gets_nothing_twice(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """What the table has stays; what it lacks is written when the group comes to it."""
    table = tmp_path / "t"

    def run() -> list[tuple[int, int]]:
        run_through(stream(spark, queue, group="g"), tmp_path / "cp", partq.delta_sink(table))
        columns = DeltaTable(str(table)).to_pyarrow_table().select(["_partition", "_offset"]).to_pylist()
        return sorted((row["_partition"], row["_offset"]) for row in columns)

    everything = [(number, offset) for number in range(2) for offset in range(20)]
    assert run() == everything
    partq.reset_offsets(queue, "g", "earliest")
    put(queue, 0, range(2))
    assert run() == sorted([*everything, (0, 20), (0, 21)])
    assert partq.describe_group(queue, "g").lag == 0


def test_the_example_of_the_document(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/operations.md, as it stands there."""
    from tests.groups import Consumer

    member = Consumer(queue, "a", group="billing")
    member.ack(0, 15)
    member.leave()
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    exec(compile(example, "operations.md", "exec"), {"partq": partq, "store": queue})  # the document is the program
    assert capsys.readouterr().out == (
        "partition 0: 15 to 0, 15 messages again\npartition 1: 0 to 0, 0 messages again\n"
    )
    assert partq.describe_group(queue, "billing").partitions[0].position == 0
