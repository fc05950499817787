"""The jobs: in the session of the tests, and as users start them: by spark-submit, on one machine and on a cluster, and by Python (U1)."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_partq as partq
from spark_partq import analysis
from spark_partq.spark.jobs import refusal
from tests.helpers import eventually, finished, position, put, stream
from tests.spark.jobs import CLUSTER, Here, Start

Run = Callable[..., object]


def files(folder: Path, count: int = 4, rows: int = 50) -> None:
    folder.mkdir()
    for number in range(count):
        first = number * rows
        keys = [None if n % 7 == 3 else f"k{n % 11}" for n in range(first, first + rows)]
        # inside a file the rows stand backwards: the order has to come from order_by
        frame = pd.DataFrame({"k": keys, "n": range(first, first + rows)})[::-1]
        frame.to_parquet(folder / f"{number}.parquet", index=False)
        os.utime(folder / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))


@pytest.mark.long
def test_produce_and_consume(inside: Here, tmp_path: Path) -> None:
    """U1: the producer is started again and adds only what is new."""

    def run(job: str, *arguments: str) -> None:
        done = inside(job, *arguments)
        assert not done.code, done.err

    produce_and_consume(run, run, tmp_path, restart=True)


@pytest.mark.long
def test_produce_and_consume_by_spark_submit(start: Start, tmp_path: Path) -> None:
    """U1: the same by spark-submit on one machine."""

    def run(*arguments: str) -> None:
        finished(start(*arguments))

    produce_and_consume(run, run, tmp_path, restart=True)


@pytest.mark.parametrize("producer", ["here", pytest.param("cluster", marks=pytest.mark.long)])
def test_produce_and_consume_on_a_cluster(start: Start, inside: Here, tmp_path: Path, producer: str) -> None:
    """U1: by spark-submit, with executors that are processes of their own; with conf/, Spark says nothing but warnings and errors. Spark's event
    log, also with all that it can tell of a plan, has no value of a storage option.
    """
    events, options = tmp_path / "events", tmp_path / "options"
    events.mkdir()
    options.write_text("azure_storage_sas_key=HUNTER2XYZ\n")
    told = {"eventLog.enabled": "true", "eventLog.dir": events.as_uri(), "eventLog.compress": "false"}
    conf = [*CLUSTER]
    for name, value in {**told, "sql.ui.explainMode": "extended"}.items():
        conf += ["--conf", f"spark.{name}={value}"]

    def run(*arguments: str) -> None:
        job = start(*arguments, "--storage-option", f"@{options}", conf=conf)
        out, err = job.communicate(timeout=300)
        assert job.returncode == 0, out + err
        assert " INFO " not in err
        assert arguments[0] == "consume" or "200 messages written to queue orders\n" in err

    produce_and_consume(inside if producer == "here" else run, run, tmp_path, cluster=True)
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert f"--storage-option @{options}".encode() in logged and b"HUNTER2XYZ" not in logged


def produce_and_consume(
    producer: Run, consumer: Run, folder: Path, restart: bool = False, cluster: bool = False
) -> None:
    store = str(folder / "store")
    partq.create_queue(store, "orders", "k string, n long", "k", partitions=4)
    files(folder / "in")
    about = ["--store", store, "--queue", "orders"]
    produce = [*about, "--path", str(folder / "in"), "--max-files-per-trigger", "3", "--order-by", "n"]
    produce += ["--sink-id", "files", "--checkpoint", str(folder / "produce")]
    producer("produce", *produce)
    assert sum(p.next_offset for p in partq.describe_queue(store, "orders").partitions) == 200
    count = 200
    if restart:
        pd.DataFrame({"k": ["k0"], "n": [count]}).to_parquet(folder / "in" / "new.parquet")
        count += 1
        producer("produce", *produce)
        assert sum(p.next_offset for p in partq.describe_queue(store, "orders").partitions) == count

    target = "parquet" if cluster else "delta"  # with Delta three cold JVMs take twice as long
    consume = [*about, "--group", "g", "--flows", "2", "--format", target, "--path", str(folder / "out")]
    consume += ["--max-rows-per-trigger", "150", "--trigger", "available-now", "--checkpoint", str(folder / "consume")]
    consumer("consume", *consume)
    out = folder / "out"
    found = pd.read_parquet(out) if cluster else DeltaTable(out).to_pandas()
    found = found.sort_values(["_partition", "_offset"])
    assert sorted(found["n"]) == list(range(count))
    by_key = found[found["k"].notna()].groupby("k")["n"]
    assert by_key.ngroups == 11
    assert all(numbers.is_monotonic_increasing for _, numbers in by_key)
    assert found["_flow"].nunique() == 2
    described = partq.describe_queue(store, "orders")
    assert described.depth == 0
    assert described.groups == ("g",)
    facts = analysis.history(store, "g")
    (body,) = facts.loc[facts["kind"] == "MemberJoined", "body"]
    said = json.loads(body)
    assert said["application"].startswith("app-" if cluster else "local-")
    assert [executor.partition("@")[0] for executor in said["executors"]] == (["0", "1"] if cluster else ["driver"])
    assert all(executor.partition("@")[2] for executor in said["executors"])


def test_produce_selects_columns_of_any_source(inside: Here, store: str, tmp_path: Path) -> None:
    partq.create_queue(store, "ticks", "k string, n long, doubled long", "k", partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "numbers.csv").write_text("value\n" + "\n".join(map(str, range(50))))
    arguments = ["--store", store, "--queue", "ticks", "--format", "csv", "--source-option", "header=true"]
    arguments += ["--path", str(tmp_path / "in"), "--schema", "value long"]
    for column in ("concat('k', value % 3) as k", "value as n", "value * 2 as doubled"):
        arguments += ["--select", column]
    done = inside("produce", *arguments, "--checkpoint", str(tmp_path / "checkpoint"))
    assert not done.code, done.err
    tables = [DeltaTable(p) for p in (Path(store) / "queues" / "ticks" / "partitions").iterdir()]
    rows = pd.concat([table.to_pandas() for table in tables])
    assert sorted(rows["n"]) == list(range(50))
    assert (rows["doubled"] == rows["n"] * 2).all()
    assert (rows["k"] == "k" + (rows["n"] % 3).astype(str)).all()


# ---- stopping
HANDLER = """
import pathlib, time

def slow(folder):
    folder = pathlib.Path(folder)
    def handle(batch, batch_id):
        (folder / f"begun-{batch_id}").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        (folder / f"done-{batch_id}").write_text(str(batch.count()))
    return handle
"""


@pytest.fixture
def slow_consumer(tmp_path: Path) -> list[str]:
    """A job whose micro-batches wait until they may end, and its arguments."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(30))
    (tmp_path / "my_handlers.py").write_text(HANDLER)
    arguments = ["--store", store, "--queue", "q", "--group", "g", "--max-rows-per-trigger", "10"]
    arguments += ["--handler", "my_handlers:slow", "--handler-arg", f"folder={tmp_path}"]
    return ["consume", *arguments, "--checkpoint", str(tmp_path / "checkpoint")]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)], ids=lambda number: number.name
)
def test_a_signal_lets_the_running_batch_finish(
    inside: Here, slow_consumer: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """U1, W3: and begins no other; what ran is acknowledged, and the group knows at once that the member is gone."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_handlers", raising=False)

    def interrupt() -> None:
        eventually((tmp_path / "begun-0").exists, "the first micro-batch")
        os.kill(os.getpid(), number)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = inside(*slow_consumer)
    thread.join()
    assert not done.code and done.err == ""
    assert_one_batch_done(tmp_path)


SIGNALS = [("spark-submit", signal.SIGINT), ("spark-submit", signal.SIGTERM), ("python", signal.SIGINT)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("by", "number"),
    SIGNALS,
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_to_a_process(
    start: Start,
    slow_consumer: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    number: signal.Signals,
) -> None:
    """U1, W3: the same where JVM and Python are processes of their own, and a terminal signals both."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    job = start(*slow_consumer, by=by)
    eventually(lambda: (tmp_path / "begun-0").exists() or job.poll() is not None, "the first micro-batch", 180)
    if number == signal.SIGINT:
        os.killpg(job.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    else:
        job.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err
    assert "Traceback" not in out + err
    assert "error:" not in out + err
    assert_one_batch_done(tmp_path)


def assert_one_batch_done(folder: Path) -> None:
    assert (folder / "done-0").read_text() == "10"
    # Spark may have asked for one more, which is left to the next start
    begun = len(list(folder.glob("begun-*")))
    assert len(list(folder.glob("done-*"))) == begun <= 2
    assert position(str(folder / "store"), "g", 0) in (10 * begun, 10 * begun - 10)

    def left() -> list[str]:
        facts = analysis.history(str(folder / "store"), "g")
        return list(facts.loc[facts["kind"] == "MemberLeft", "cause"])

    (cause,) = eventually(left, "the end of the member")
    assert cause.endswith(" left"), "not expired"


# ---- refusals
def test_refusals_of_spark_are_one_line(inside: Here, store: str, tmp_path: Path) -> None:
    """A micro-batch that does not fit the queue, and a source that is not there."""
    partq.create_queue(store, "q", "k string, n long, missing double", "k")
    files(tmp_path / "in", count=1)
    about = ["--store", store, "--queue", "q"]
    fits = ["--path", str(tmp_path / "in"), "--schema", "k string, n long", "--checkpoint", str(tmp_path / "one")]
    there = ["--path", str(tmp_path / "nowhere"), "--checkpoint", str(tmp_path / "other")]
    misfit, nowhere = (inside("produce", *about, *arguments) for arguments in (fits, there))
    assert misfit.code == nowhere.code == 1
    assert re.fullmatch(r"error: \[SCHEMA_MISMATCH\] [^\n]*missing[^\n]*\n", misfit.err)
    assert re.fullmatch(rf"error: \[PATH_NOT_FOUND\] [^\n]*{tmp_path}/nowhere[^\n]*\n", nowhere.err)


def test_an_error_of_the_planner_is_told_as_our_own(
    spark: SparkSession, store: str, tmp_path: Path, stopped_queries: None
) -> None:
    partq.create_queue(store, "a", "v long", partitions=1)
    partq.create_queue(store, "b", "v long", partitions=1)

    def run(queue: str) -> None:
        writer = stream(spark, store, queue, group="g").writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    put(store, 0, range(3), queue="a")
    run("a")
    with pytest.raises(StreamingQueryException) as failed:
        run("b")
    line = refusal(failed.value)
    assert line is not None
    assert re.fullmatch(r"\[CHECKPOINT_MISMATCH\] the checkpoint belongs to queue 'a'[^\n]*", line)


def test_a_fault_of_a_handler_is_no_refusal(
    spark: SparkSession, store: str, tmp_path: Path, stopped_queries: None
) -> None:
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(3))

    def broken(batch: object, batch_id: int) -> None:
        raise ValueError("this handler has a fault")

    query = stream(spark, store, group="g").writeStream.foreachBatch(broken).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="this handler has a fault") as failed:
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert refusal(failed.value) is None
    assert refusal(ValueError("[QUEUE_NOT_FOUND] not one of ours")) is None
