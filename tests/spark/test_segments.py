"""Small files are put together between the micro-batches of a query, and under it (Q6, Q7, Q8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from tests.helpers import consume, flat, opened, read
from tests.storage.procedures.test_added_columns import make
from tests.storage.procedures.test_make_segments import ago, commit, merged


@pytest.fixture
def old(store: str) -> str:
    """Two partitions with ten files of three hours ago each."""
    make(store, partitions=2)
    for n in range(10):
        for partition in range(2):
            commit(store, "abc"[: 1 + n % 3], ago(3) + 1_000_000 * n, partition)
    return store


def messages(rows: list[Row]) -> list[tuple[object, ...]]:
    return sorted((r._partition, r._offset, r.k, r.v, r._enqueued_at) for r in rows)


def test_a_dataframe_has_the_same_rows(spark: SparkSession, old: str) -> None:
    """Also where it begins and ends in the midst of a segment, by an offset or by a time."""
    options = [
        {},
        {"startingOffsets": '{"q":{"0":5,"1":6}}', "endingOffsets": '{"q":{"0":9,"1":11}}'},
        {"startingTimestamp": (ago(3) + 4_000_000) // 1000, "endingTimestamp": (ago(3) + 8_000_000) // 1000},
    ]
    before = [messages(read(spark, old, **o).collect()) for o in options]
    assert merged(old) == 18 and [len(table.index) for table in opened(old).partitions] == [1, 1]
    assert [messages(read(spark, old, **o).collect()) for o in options] == before
    assert len(before[1]) == 9 and 0 < len(before[2]) < len(before[0])


def test_a_query_goes_on(spark: SparkSession, old: str, tmp_path: Path) -> None:
    """Files are put together under the first micro-batch; the query ends behind the next, and another process goes on, after a resize."""
    whole = messages(read(spark, old).collect())

    def beside(_: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            assert merged(old) == 18
        if batch_id == 2:
            raise RuntimeError("stopped")

    options = {"group": "g", "maxRowsPerTrigger": 7}
    first: list[list[Row]] = []

    def take(df: DataFrame, batch_id: int) -> None:
        first.append(df.collect())
        beside(df, batch_id)

    with pytest.raises(StreamingQueryException, match="stopped"):
        consume(spark, old, tmp_path / "checkpoint", each=take, **options)
    partq.scale(old, "q", 3)
    rest = consume(spark, old, tmp_path / "checkpoint", **options)
    rows = [*flat(first[:2]), *flat(rest)]
    assert messages(rows) == whole
    assert messages([row for row in flat(rest) if row._redelivered]) == messages(first[2])
