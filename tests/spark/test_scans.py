"""A source that stands several times in a query is planned once for each time: a micro-batch is the same for all of them (Q7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.helpers import put, run_through, stream

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.mark.parametrize(
    "counted", [pytest.param({}, marks=pytest.mark.long), {"max_deliveries": 3, "dead_letter_queue": "dead"}]
)
def test_a_union_with_itself(spark: SparkSession, store: str, tmp_path: Path, counted: dict[str, Any]) -> None:
    """Also when it comes again after a crash: each branch has its rows of it, and it counts as one delivery."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, **counted)
    for number in range(2):
        put(store, number, range(10 * number, 10 * number + 10))
    seen: list[int] = []

    def dies(batch: DataFrame, batch_id: int) -> None:
        raise InterruptedError("the driver is gone")

    def run(act: Any) -> None:
        source = stream(spark, store, group="g", instanceId="a")
        both = source.filter("v % 2 = 0").union(source.filter("v % 2 = 1"))
        run_through(both, tmp_path / "cp", act)

    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        run(dies)
    run(lambda batch, _: seen.extend(row.v for row in batch.select("v").collect()))
    assert sorted(seen) == [*range(20)]
    assert not counted or [*partq.dead_letters(store, "q")] == []
