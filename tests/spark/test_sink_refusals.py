"""What the sink refuses: other columns, batches out of order, queues that are gone (Q5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from tests.helpers import read, run_through, stream
from tests.spark.messages import ORDERS, numbers, orders


@pytest.mark.parametrize(
    ("columns", "faults"),
    [
        (["k"], ["missing n long"]),
        (["k", "n", "1 x"], ["extra x integer"]),
        (["k", "cast(n as int) n"], ["n is integer, not long"]),
        (["n k", "1 x"], ["missing n long", "extra x integer", "k is long, not string"]),
        (["k", "n", "n"], ["occurs twice"]),
        (["k", "n N"], ["missing n long", "extra N long"]),
    ],
    ids=str,
)
def test_schema_mismatch(spark: SparkSession, store: str, columns: list[str], faults: list[str]) -> None:
    """Bad input: every difference is named and nothing is written."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    with pytest.raises(partq.SchemaMismatchError) as caught:
        partq.append(orders(spark, 0, 5).selectExpr(*columns), store, "q")
    assert all(fault in str(caught.value) for fault in faults)
    assert partq.describe_queue(store, "q").depth == 0
    assert not list(Path(store).rglob("partition=*/*.parquet"))


def test_columns_in_another_order(spark: SparkSession, store: str) -> None:
    """Columns are matched by name."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=1)
    partq.append(spark.sql("select 5L n, 'x' k"), store, "q")
    (row,) = read(spark, store).collect()
    assert (row.k, row.n) == ("x", 5)


def query_of(spark: SparkSession, source: str, checkpoint: str, sink: Callable[[DataFrame, int], None]) -> None:
    query = (
        spark.readStream.schema(ORDERS)
        .json(source)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_sink_ahead_of_a_new_checkpoint(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q5: a sink_id used with a new checkpoint would skip batches; it is refused, and goes on with its own one."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    source = str(tmp_path / "in")
    orders(spark, 0, 10, files=1).write.json(source)
    query_of(spark, source, str(tmp_path / "one"), partq.queue_sink(store, "q", sink_id="s"))
    with pytest.raises(
        StreamingQueryException, match=r"\[SINK_AHEAD\].*own checkpoint\. .*choose a new one and another sink_id"
    ):
        query_of(spark, source, str(tmp_path / "two"), partq.queue_sink(store, "q", sink_id="s"))
    orders(spark, 10, 10, files=1).write.mode("append").json(source)
    query_of(spark, source, str(tmp_path / "one"), partq.queue_sink(store, "q", sink_id="s"))
    assert numbers(read(spark, store).collect()) == list(range(20))
    query_of(spark, source, str(tmp_path / "three"), partq.queue_sink(store, "q"))
    assert numbers(read(spark, store).collect()) == sorted([*range(20), *range(20)])


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_second_call_in_a_micro_batch(spark: SparkSession, store: str, tmp_path: Path, sinks: int) -> None:
    """Q5: its rows would be taken for those of the first one. When the query starts again, the first call adds nothing, and all goes on."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    source, checkpoint = str(tmp_path / "in"), str(tmp_path / "checkpoint")
    orders(spark, 0, 10, files=1).write.json(source)
    made = [partq.queue_sink(store, "q") for _ in range(sinks)]

    def both(batch: DataFrame, batch_id: int) -> None:
        made[0](batch.filter("n < 4"), batch_id)
        made[-1](batch.filter("n >= 4"), batch_id)

    with pytest.raises(StreamingQueryException, match=r"\[INVALID_ARGUMENT\].*Leave the first call as it is"):
        query_of(spark, source, checkpoint, both)
    named = made[0], partq.queue_sink(store, "q", sink_id="large")

    def each(batch: DataFrame, batch_id: int) -> None:
        named[0](batch.filter("n < 4"), batch_id)
        named[1](batch.filter("n >= 4"), batch_id)

    query_of(spark, source, checkpoint, each)
    assert numbers(read(spark, store).collect()) == list(range(10))


@pytest.mark.parametrize("exactly_once", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.long), "delta"])
def test_parts_that_are_read_back_from_one_path(
    spark: SparkSession, store: str, tmp_path: Path, kind: str, exactly_once: bool
) -> None:
    """Q5: both calls have the same plan, and other rows in the files that they read."""
    for name in ("from", "q"):
        partq.create_queue(store, name, ORDERS, key="k", partitions=1)
    partq.append(orders(spark, 0, 10, files=1), store, "from")
    sink, path = partq.queue_sink(store, "q", exactly_once=exactly_once), str(tmp_path / "part")
    again = []

    def in_parts(batch: DataFrame, batch_id: int) -> None:
        for part in ("n < 4", "n >= 4"):
            batch.filter(part).write.mode("overwrite").format(kind).save(path)
            rows = spark.read.format(kind).load(path)
            given = rows if exactly_once else rows.select("k", "n")
            sink(given, batch_id)
            sink(given, batch_id)
            again.append(sink.added)

    with pytest.raises(StreamingQueryException, match=r"\[INVALID_ARGUMENT\].*Leave the first call as it is"):
        run_through(stream(spark, store, "from", group="g"), tmp_path / "cp", in_parts)
    assert again == [0]


@pytest.mark.long
def test_parts_that_are_chosen_by_a_subquery(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q5: the same of files that only a subquery reads."""
    for name in ("from", "q"):
        partq.create_queue(store, name, ORDERS, key="k", partitions=1)
    partq.append(orders(spark, 0, 10, files=1), store, "from")
    sink, path = partq.queue_sink(store, "q"), str(tmp_path / "chosen")

    def in_parts(batch: DataFrame, batch_id: int) -> None:
        for part in ("n < 4", "n >= 4"):
            batch.filter(part).select("n").write.mode("overwrite").parquet(path)
            sink(batch.filter(f"n IN (SELECT n FROM parquet.`{path}`)").select("k", "n"), batch_id)

    with pytest.raises(StreamingQueryException, match=r"\[INVALID_ARGUMENT\].*Leave the first call as it is"):
        run_through(stream(spark, store, "from", group="g"), tmp_path / "cp", in_parts)
    assert numbers(read(spark, store).collect()) == list(range(4))


def test_batch_ids_of_append(spark: SparkSession, store: str) -> None:
    """Q5: an id alone, or one that is no count, is refused; an older batch than the last too."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    df = orders(spark, 0, 4, files=1)
    wrong: list[dict[str, Any]] = [{"sink_id": "s"}, {"batch_id": 0}]
    wrong += [{"sink_id": "s", "batch_id": b} for b in (-1, True, "3", 1.0, 2**63)]
    wrong += [{"sink_id": s, "batch_id": 0} for s in ("", "a/b", "..")]
    for ids in wrong:
        with pytest.raises(partq.InvalidArgumentError):
            partq.append(df, store, "q", **ids)
    assert partq.describe_queue(store, "q").depth == 0
    partq.append(df, store, "q", sink_id="s", batch_id=5)
    with pytest.raises(partq.SinkAheadError):
        partq.append(df, store, "q", sink_id="s", batch_id=4)
    with pytest.raises(partq.InvalidArgumentError, match="sink_id"):
        partq.queue_sink(store, "q")(df, 0)
    assert partq.describe_queue(store, "q").depth == 4


def test_queue_deleted_under_a_sink(spark: SparkSession, store: str) -> None:
    """A running sink notices that its queue has gone, and that another has taken its name, before it writes."""
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    partq.create_queue(store, "other", ORDERS, key="k", partitions=2)
    sink = partq.queue_sink(store, "q", sink_id="s")
    sink(orders(spark, 0, 5, files=1), 0)
    partq.delete_queue(store, "q")
    with pytest.raises(partq.QueueNotFoundError, match="was deleted"):
        sink(orders(spark, 5, 5, files=1), 1)
    assert partq.list_queues(store) == ["other"]
    partq.create_queue(store, "q", ORDERS, key="k", partitions=2)
    with pytest.raises(partq.QueueNotFoundError, match="created again"):
        sink(orders(spark, 5, 5, files=1), 1)
    assert partq.describe_queue(store, "q").depth == 0
    partq.queue_sink(store, "q", sink_id="s")(orders(spark, 0, 5, files=1), 0)
    assert partq.describe_queue(store, "q").depth == 5


def test_unknown_queue(spark: SparkSession, store: str) -> None:
    with pytest.raises(partq.NotAStoreError):
        partq.queue_sink(store, "q")
    partq.create_queue(store, "q", ORDERS)
    with pytest.raises(partq.QueueNotFoundError, match="its queues: q"):
        partq.append(orders(spark, 0, 1), store, "p")
