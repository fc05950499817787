"""`jobs/produce.py`: what becomes of malformed rows, and what it tells of its micro-batches (U1)."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

import spark_partq as partq
from tests.helpers import put, read, run_through, stream
from tests.spark.jobs import Here, Outcome

# A file of each format with a whole row and one whose n is no number, and what Spark needs to read it.
MALFORMED = {
    "csv": ("a,1\nbad,zzz\n", []),
    "json": ('{"k": "a", "n": 1}\n{"k": "bad", "n": "zzz"}\n', []),
    "xml": ("<r><row><k>a</k><n>1</n></row><row><k>bad</k><n>zzz</n></row></r>", ["rowTag=row"]),
}


def produce(inside: Here, store: str, folder: Path, format: str, *more: str) -> Outcome:
    arguments = ["--store", store, "--queue", "q", "--format", format, "--path", str(folder / "in")]
    return inside("produce", *arguments, "--checkpoint", str(folder / "checkpoint"), *more)


def options(*given: str) -> list[str]:
    return [word for option in given for word in ("--source-option", option)]


def rows(spark: SparkSession, store: str) -> list[tuple[str | None, int | None]]:
    return sorted((row.k, row.n) for row in read(spark, store).collect())


@pytest.mark.parametrize("written_by", ["driver", pytest.param("job", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("format", MALFORMED)
def test_a_malformed_row(
    inside: Here, spark: SparkSession, store: str, tmp_path: Path, format: str, written_by: str
) -> None:
    """One line says which file and which row, and nothing of the micro-batch is in; once the file is mended the same start writes all of it."""
    text, needed = MALFORMED[format]
    whole = re.sub('"?zzz"?', "7", text)
    partq.create_queue(store, "q", "k string, n long", "k", partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "whole.txt").write_text(whole)
    (tmp_path / "in" / "broken.txt").write_text(text)
    refused = produce(inside, store, tmp_path, format, *options(*needed))
    assert refused.code == 1
    where = (
        rf"a row of file:/*{tmp_path}/in/broken\.txt is not of the columns; as far as it can be read it is \[bad,null\]"
    )
    said = rf"error: \[SCHEMA_MISMATCH\] {where}\. Nothing of this micro-batch was written\. [^\n]*zzz[^\n]*\n"
    assert re.fullmatch(said, refused.err)
    assert partq.describe_queue(store, "q").depth == 0
    (tmp_path / "in" / "broken.txt").write_text(whole.replace("7", "8"))
    mended = produce(inside, store, tmp_path, format, *options(*needed))
    assert not mended.code, mended.err
    assert rows(spark, store) == [("a", 1), ("a", 1), ("bad", 7), ("bad", 8)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--malformed", "drop"], [("a", 1)]),
        (["--malformed", "null"], [("a", 1), ("bad", None)]),
        (options("Mode=PERMISSIVE"), [("a", 1), ("bad", None)]),
        (["--malformed", "fail"], None),
        (options("mode=failfast"), None),
    ],
    ids=str,
)
def test_what_becomes_of_malformed_rows(
    inside: Here, spark: SparkSession, store: str, tmp_path: Path, given: list[str], expected: object
) -> None:
    partq.create_queue(store, "q", "k string, n long", "k", partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text(MALFORMED["csv"][0])
    done = produce(inside, store, tmp_path, "csv", *given)
    if expected is None:
        assert done.code == 1 and "rows.csv" in done.err
    else:
        assert not done.code, done.err
        assert rows(spark, store) == expected


@pytest.mark.parametrize(("header", "row"), [("n,k", "1,a"), ("n,k,more", "1,a,x")])
def test_a_header_with_other_columns(
    inside: Here, spark: SparkSession, store: str, tmp_path: Path, header: str, row: str
) -> None:
    """Spark goes by their places unless it is told otherwise: values would be in the wrong columns."""
    partq.create_queue(store, "q", "k string, n string", "k", partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text(f"{header}\n{row}\n")
    done = produce(inside, store, tmp_path, "csv", *options("header=true"))
    told = r"error: \[SCHEMA_MISMATCH\] the header of a CSV file does not name the columns, or not in their order\. [^\n]*rows\.csv[^\n]*\n"
    assert done.code == 1 and re.fullmatch(told, done.err), done.err
    assert partq.describe_queue(store, "q").depth == 0
    schema = ", ".join(f"{name} string" for name in header.split(","))
    done = produce(
        inside, store, tmp_path, "csv", *options("header=true"), "--schema", schema, "--select", "k", "--select", "n"
    )
    assert not done.code, done.err
    assert [(row.k, row.n) for row in read(spark, store).collect()] == [("a", "1")]


def test_messages_are_counted_as_they_are_committed(
    inside: Here, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each micro-batch with what it has added, without another look at its rows; nothing, if it was in already."""
    monkeypatch.setattr(DataFrame, "count", lambda _: pytest.fail("the rows were counted"))
    partq.create_queue(store, "q", "k string, n long", "k", partitions=2)
    (tmp_path / "in").mkdir()
    for number, count in enumerate((1_000, 200, 1)):
        pd.DataFrame({"k": ["a"] * count, "n": range(count)}).to_parquet(tmp_path / "in" / f"{number}.parquet")
    one_by_one = ["--max-files-per-trigger", "1"]
    done = produce(inside, store, tmp_path, "parquet", *one_by_one)
    assert not done.code
    *batches, total = done.err.splitlines()
    told = [re.fullmatch(rf"micro-batch {number}: (.*) committed", line) for number, line in enumerate(batches)]
    assert sorted(found[1] for found in told if found) == ["1 message", "1,000 messages", "200 messages"]
    assert total == "1,201 messages written to queue q"
    (tmp_path / "checkpoint" / "commits" / "2").unlink()  # as after a crash behind the commit to the queue
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()
    again = produce(inside, store, tmp_path, "parquet", *one_by_one)
    assert (again.code or 0, again.err) == (0, "micro-batch 2: nothing new\n0 messages written to queue q\n")
    assert partq.describe_queue(store, "q").depth == 1_201


@pytest.mark.long
def test_a_sink_knows_how_many_messages_it_has_added(
    spark: SparkSession, store: str, tmp_path: Path, stopped_queries: None
) -> None:
    """Q5: from queue to queue: those of the micro-batch, then none, as they are in already, then none, as the queue takes none."""
    for name in ("q", "b"):
        partq.create_queue(store, name, "v bigint", key="v", partitions=2, reject_to_sender="off")
    put(store, 0, range(10))
    sink, added = partq.queue_sink(store, "b", exactly_once=True), []

    def write(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            sink(batch.filter("v != 3"), batch_id)
            added.append(sink.added)

    run_through(stream(spark, store, group="g"), tmp_path / "checkpoint", write)
    assert added == [9, 0]
    partq.set_ingress(store, "b", enabled=False)
    put(store, 0, range(10, 15))
    run_through(stream(spark, store, group="g"), tmp_path / "checkpoint", write)
    assert added == [9, 0, 0, 0]
