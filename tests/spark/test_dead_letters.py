"""Messages that nobody can process, with Spark: one that ends its Python worker, some that the application rejects; and put back."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from typer.testing import CliRunner

import spark_partq as partq
from spark_partq.cli import app
from tests.helpers import put, run_through, stream
from tests.spark.test_delta_sink import Failing, values

PAGE = Path(__file__).parents[2] / "docs" / "dead-messages.md"

pytestmark = pytest.mark.usefixtures("stopped_queries")


def make(store: str, **settings: Any) -> None:
    partq.create_queue(
        store, "q", "v bigint", key="v", partitions=2, rebalance_delay_ms=0, dead_letter_queue="dead", **settings
    )
    put(store, 0, range(10))
    put(store, 1, range(10, 20))


def deadly(v: int) -> int:
    if v == 13:
        os._exit(1)
    return v


def dead(store: str) -> dict[int, tuple[str, int]]:
    return {
        m.payload["v"]: (m.origin["dead_reason"], m.origin["origin_offset"]) for m in partq.dead_letters(store, "q")
    }


@pytest.mark.long
def test_message_that_ends_its_worker(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """It ends in the dead-message queue after `max_deliveries`, and all others are in the result once."""
    make(store, max_deliveries=2)
    sink, starts = partq.delta_sink(tmp_path / "t"), 0
    died = sf.udf(deadly, "bigint")
    while True:
        starts += 1
        assert starts < 12
        rows = stream(spark, store, group="g").withColumn("v", died("v"))
        try:
            run_through(rows, tmp_path / "cp", sink)
        except StreamingQueryException:
            continue
        break
    assert starts > 2
    assert values(tmp_path / "t") == [v for v in range(20) if v != 13]
    assert dead(store) == {13: ("dead", 3)}


def test_messages_that_are_rejected(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Each is in the dead-message queue once, whatever happens to the query, and comes back once."""
    make(store)
    sink = partq.delta_sink(tmp_path / "t")
    refused = [sf.col("v") % 5 == 0, sf.col("v") == 7]

    def both(batch: DataFrame, batch_id: int) -> None:
        for number, which in enumerate(refused):
            partq.reject(batch.filter(which), f"bad {number}")
        sink(batch.filter(~refused[0] & ~refused[1]), batch_id)

    bad = {0, 5, 7, 10, 15}
    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        run_through(stream(spark, store, group="g"), tmp_path / "cp", Failing(both))
    run_through(stream(spark, store, group="g"), tmp_path / "fresh", both)
    assert values(tmp_path / "t") == sorted(set(range(20)) - bad)
    assert {v: reason for v, (reason, _) in dead(store).items()} == {v: "bad 1" if v == 7 else "bad 0" for v in bad}
    read = spark.read.format("partq").option("path", store).option("queue", "dead").load()
    assert read.filter("origin_offset = _offset").count() <= read.count() == 5
    assert partq.redrive(store, "q") == {"q": 5}
    refused[:] = [sf.lit(False), sf.lit(False)]
    run_through(stream(spark, store, group="g"), tmp_path / "fresh", both)
    assert values(tmp_path / "t") == list(range(20))


def test_examples(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """The page's programs, across a resize and a lost checkpoint; what the command line then says."""
    blocks = re.findall(r"```(python|console)\n(.*?)```", PAGE.read_text(), re.S)
    assert [language for language, _ in blocks] == ["python", "console", "python", "console"]
    names: dict[str, Any] = {}

    def run(block: str) -> None:
        block = re.sub(r'"(billed|checkpoints/\w+)"', lambda m: repr(str(tmp_path / m[1])), block)
        exec(compile(block.replace('"queues"', repr(store)), str(PAGE), "exec"), names)

    def send(first: int) -> None:
        rows = spark.range(first, first + 20).selectExpr(
            "concat('o', id) order_id", "cast(id % 10 as double) - 1 amount"
        )
        partq.append(rows, store, "orders")

    run(blocks[0][1])
    for number in range(2):
        send(20 * number)
        run(blocks[2][1].replace("checkpoints/bills", f"checkpoints/bills{number}"))
        (query,) = spark.streams.active
        query.processAllAvailable()
        query.stop()
        if number == 0:
            partq.scale(store, "orders", 5)
    good = sorted(f"o{i}" for i in range(40) if i % 10)
    assert values(tmp_path / "billed", "order_id") == good
    wide = {"COLUMNS": "120"}  # so that no reason takes two lines
    told, in_order = (
        [
            CliRunner(env=wide).invoke(app, [store if w == "queues" else w for w in line.split("#")[0].split()[2:]])
            for line in block.splitlines()
        ]
        for block in (blocks[3][1], blocks[1][1])
    )
    assert [result.exit_code for result in in_order] == [0] * 4
    assert [result.exit_code for result in told] == [0, 0]
    assert told[0].output.count("no valid amount") == 4
    assert told[1].output == "put 4 messages back into queue orders\n"


def test_what_cannot_be_rejected(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """The errors of `tests/refused`, with real DataFrames; nothing is in the dead-message queue but what was rejected before."""
    make(store)
    with pytest.raises(partq.InvalidArgumentError, match="foreachBatch"):
        partq.reject(spark.range(1), "bad")
    said: list[str] = []

    def try_all(batch: DataFrame, _: int) -> None:
        partq.reject(batch.filter("v = 3").withColumn("seen", sf.lit(True)), "bad")
        for rows, reason in (
            (batch, ""),
            (batch.drop("v"), "other"),
            (batch.drop("_enqueued_at"), "other"),
            (batch.groupBy("v").count(), "other"),
            (batch, "bad"),
            (batch.withColumn("_queue", sf.lit("another")), "other"),
            (batch.withColumn("_queue", sf.lit(None).cast("string")), "other"),
        ):
            with pytest.raises(partq.PartqError) as caught:
                partq.reject(rows, reason)
            said.append(caught.value.message)

    run_through(stream(spark, store, group="g"), tmp_path / "cp", try_all)
    for text, part in zip(
        said,
        (
            "1 to 10000",
            "missing v long",
            "missing _enqueued_at timestamp",
            "no _queue",
            "for the same reason before",
            "'another', which is none",
            "None, which is none",
        ),
        strict=True,
    ):
        assert part in text
    assert dead(store) == {3: ("bad", 3)}
