"""With `ack=manual` a replay begins at the group's position, in front of what was planned: targets have each row once all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.helpers import put, run_through, stream
from tests.spark.test_delta_sink import values
from tests.spark.test_queue_to_queue import stored

pytestmark = pytest.mark.usefixtures("stopped_queries")

Sink = Callable[[DataFrame, int], None]


@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0, dead_letter_queue="dead")
    partq.create_queue(store, "results", "v bigint", partitions=2)
    for first in (0, 10):
        put(store, 0, range(first, first + 10))
    return store


@pytest.mark.parametrize("wrote", [pytest.param(False, marks=pytest.mark.long), True])
def test_each_row_once(spark: SparkSession, queue: str, tmp_path: Path, wrote: bool) -> None:
    """The driver dies in its second micro-batch, before or after it has written, when a part of the first is acknowledged."""
    table = tmp_path / "t"

    def write(to_table: Sink, to_queue: Sink, batch: DataFrame, batch_id: int) -> None:
        to_table(batch, batch_id)
        to_queue(batch.filter("v % 10 < 8"), batch_id)  # its position does not reach the end of a micro-batch
        partq.reject(batch.filter("v % 5 = 0"), "a fifth", store=queue)

    def started(dies: bool) -> None:
        sinks = partq.delta_sink(table), partq.queue_sink(queue, "results", exactly_once=True)

        def act(batch: DataFrame, batch_id: int) -> None:
            spark.sparkContext.setJobGroup("mine", "the same in each run")
            if dies and batch_id == 1:
                partq.acknowledge(queue, "g", {("q", 0): 3})
                if wrote:
                    write(*sinks, batch, batch_id)
                raise InterruptedError("the driver is gone")
            write(*sinks, batch, batch_id)

        source = stream(spark, queue, group="g", instanceId="a", ack="manual", maxRowsPerTrigger=10)
        run_through(source, tmp_path / "cp", act)

    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        started(dies=True)
    put(queue, 0, range(20, 30))
    started(dies=False)
    assert values(table) == [*range(30)]
    assert stored(spark, queue, "results") == [v for v in range(30) if v % 10 < 8]
    assert stored(spark, queue, "dead") == [*range(0, 30, 5)]


@pytest.mark.long
def test_a_target_that_came_later_has_what_comes_again(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """It was not there when these messages were delivered first."""

    def started(act: Sink) -> None:
        source = stream(spark, queue, group="g", instanceId="a", ack="manual", maxRowsPerTrigger=10)
        run_through(source, tmp_path / "cp", act)

    def dies(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            partq.acknowledge(queue, "g", {("q", 0): 3})
            raise InterruptedError("the driver is gone")

    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        started(dies)
    started(partq.delta_sink(tmp_path / "t"))
    assert values(tmp_path / "t") == [*range(3, 20)]
