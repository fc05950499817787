"""The jobs: in the session of the tests, and as users start them: by spark-submit, on one machine and on a cluster, and by Python (U1)."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_partq as partq
from spark_partq import analysis
from spark_partq.spark.jobs import key_values, refusal
from tests.conftest import QUICK
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, finished, position, put, stream

SPARK_SUBMIT = str(Path(sys.executable).parent / "spark-submit")
# Both executors are up before the job goes on.
CLUSTER = ["--master", "local-cluster[2,1,1024]", "--conf", f"spark.executor.extraJavaOptions={QUICK}"]
CLUSTER += ["--conf", "spark.cores.max=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
# Nothing that a small machine spends its time on.
SMALL = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]  # fmt: skip

UNKNOWN = r"error: \[QUEUE_NOT_FOUND\] there is no queue 'nope'[^\n]*there\n"

Start = Callable[..., "subprocess.Popen[str]"]


def process(command: list[str], **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "SPARK_CONF_DIR": str(ROOT / "conf"), "PYSPARK_PYTHON": sys.executable}
    # the tests' own session must not be taken for the job's
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS"):
        env.pop(name, None)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**env, **environment},
        start_new_session=True,
    )


@pytest.fixture
def start() -> Iterator[Start]:
    """start(job, *arguments, by="spark-submit" or "python", conf=[…]) -> process; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(
        job: str, *arguments: str, by: str = "spark-submit", conf: list[str] | None = None
    ) -> subprocess.Popen[str]:
        program = [sys.executable] if by == "python" else [SPARK_SUBMIT, *SMALL, *(conf or [])]
        started.append(process([*program, str(ROOT / "jobs" / f"{job}.py"), *arguments], COLUMNS="200"))
        return started[-1]

    yield run
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


@dataclass
class Outcome:
    code: object
    out: str
    err: str


Here = Callable[..., Outcome]


class Lent:
    """The session of the tests for a job, which stops it at its end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        for query in self._spark.streams.active:
            query.stop()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """here(job, *arguments) -> Outcome: run in this process what ends before a Spark session is started."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(partq, "session", lambda *_: pytest.fail("a session was started"))
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]

    def run(job: str, *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", [f"{job}.py", *arguments])
        try:
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(str(ROOT / "jobs" / f"{job}.py"), run_name="__main__")
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
        return Outcome(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def inside(here: Here, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Here:
    """The same of what needs a session: it gets the one of the tests."""
    monkeypatch.setattr(partq, "session", lambda *_: Lent(spark))
    return here


def files(folder: Path, count: int = 4, rows: int = 50) -> None:
    folder.mkdir()
    for number in range(count):
        first = number * rows
        keys = [None if n % 7 == 3 else f"k{n % 11}" for n in range(first, first + rows)]
        # inside a file the rows stand backwards: the order has to come from order_by
        frame = pd.DataFrame({"k": keys, "n": range(first, first + rows)})[::-1]
        frame.to_parquet(folder / f"{number}.parquet", index=False)
        os.utime(folder / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))


Run = Callable[..., object]


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
    """U1: by spark-submit, with executors that are processes of their own."""

    def run(*arguments: str) -> None:
        finished(start(*arguments, conf=CLUSTER))

    produce_and_consume(inside if producer == "here" else run, run, tmp_path, cluster=True)


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


def test_produce_selects_columns_of_any_source(start: Start, store: str, tmp_path: Path) -> None:
    partq.create_queue(store, "ticks", "k string, n long, doubled long", "k", partitions=2)
    arguments = ["--store", store, "--queue", "ticks", "--format", "rate", "--source-option", "rowsPerSecond=200"]
    arguments += [
        "--select",
        "concat('k', value % 3) as k",
        "--select",
        "value as n",
        "--select",
        "value * 2 as doubled",
    ]
    arguments += ["--trigger", "1 second", "--checkpoint", str(tmp_path / "checkpoint")]
    job = start("produce", *arguments)
    eventually(lambda: partq.describe_queue(store, "ticks").depth or job.poll() is not None, "a message")
    job.send_signal(signal.SIGTERM)
    finished(job)
    tables = [DeltaTable(p) for p in (Path(store) / "queues" / "ticks" / "partitions").iterdir()]
    rows = pd.concat([table.to_pandas() for table in tables])
    assert len(rows) > 0
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_lets_the_running_batch_finish(
    inside: Here, slow_consumer: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """U1: and begins no other."""
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


@pytest.mark.parametrize(
    ("by", "number"),
    [SIGNALS[0], *(pytest.param(*signalled, marks=pytest.mark.long) for signalled in SIGNALS[1:])],
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
    """U1: the same where JVM and Python are processes of their own, and a terminal signals both."""
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


@pytest.mark.parametrize("by", ["python", pytest.param("spark-submit", marks=pytest.mark.long)])
def test_maintain_once_and_until_it_is_told_to_stop(start: Start, store: str, by: str) -> None:
    partq.create_queue(store, "q", "v long", partitions=1)
    expected = {"queue": "q", "removed_messages": 0, "vacuumed_files": 0, "waiting_for": []}
    once = start("maintain", "--store", store, by="python")
    job = start("maintain", "--store", store, "--queue", "q", "--every", "0.1", by=by)
    assert [json.loads(line) for line in finished(once).splitlines()] == [expected]
    assert job.stdout is not None
    assert [json.loads(job.stdout.readline()) for _ in range(2)] == [expected] * 2
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err
    assert "Traceback" not in out + err


# ---- scaling
def test_scale(here: Here, store: str) -> None:
    """U1, S1, S2: what is waited for and what the queue is then are lines of JSON; the same count again is refused."""
    partq.create_queue(store, "q", "v long", partitions=2)
    put(store, 1, range(5))
    about = ["--store", store, "--queue", "q", "--partitions"]
    done = here("scale", *about, "4")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert (told["queue"], told["operating_partitions"], told["status"], told["depth"]) == ("q", 4, "Ready", 5)
    again = here("scale", *about, "4")
    assert again.code == 1 and "has 4 partitions already" in again.err
    drain = here("scale", *about, "3", "--mode", "drain", "--timeout", "0")
    assert drain.code == 1
    assert re.fullmatch(r"error: \[SCALING_IN_PROGRESS\] [^\n]* run it again to go on\n", drain.err)
    waiting = {"what": "consumers to acknowledge what is left", "left": 5, "alone": True}
    assert json.loads(drain.out) == {"queue": "q", "waiting_for": waiting}
    assert json.loads(here("scale", *about, "4").out)["ingress"] is True  # taken back
    refused = here("scale", *about, "1", "--mode", "delete", "--confirm-lost", "4")
    assert (refused.code, refused.out) == (1, "")
    assert "would lose 5 messages" in refused.err
    assert json.loads(here("scale", *about, "1", "--mode", "delete", "--confirm-lost", "5").out)["lost"] == 5


@pytest.mark.parametrize("by", ["python", "spark-submit"])
def test_scale_that_is_told_to_stop(start: Start, here: Here, store: str, by: str) -> None:
    """U1: what it has begun is gone on with."""
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(5))
    arguments = ["--store", store, "--queue", "q", "--partitions", "2", "--mode", "drain"]
    job = start("scale", *arguments, by=by)
    assert job.stdout is not None
    assert json.loads(job.stdout.readline())["waiting_for"]["left"] == 5
    job.send_signal(signal.SIGTERM)
    assert re.fullmatch(r"error: \[SCALING_IN_PROGRESS\] told to stop [^\n]* run it again to go on", only_error(job))
    Consumer(store, "c").ack(0, 5)
    assert json.loads(here("scale", *arguments).out.splitlines()[-1])["operating_partitions"] == 2


# ---- refusals
def only_error(job: subprocess.Popen[str]) -> str:
    """The one line of stderr that the job itself has written, ending with exit code 1."""
    out, err = job.communicate(timeout=180)
    assert job.returncode == 1, out + err
    assert "Traceback" not in out + err
    # Before the job starts, spark-submit tells how it found the packages, under a heading ERRORS if a cache is odd.
    written = err.rpartition(" artifacts copied, ")[2]
    errors = [line for line in written.splitlines() if "error" in line.lower()]
    assert len(errors) == 1, err
    return errors[0]


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("produce", ["--path", "in", "--checkpoint", "c"]),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console"]),
        ("maintain", []),
        ("scale", ["--partitions", "3"]),
    ],
)
def test_an_unknown_queue_is_one_line(here: Here, store: str, job: str, arguments: list[str]) -> None:
    partq.create_queue(store, "there", "v long")
    refused = here(job, "--store", store, "--queue", "nope", *arguments)
    assert refused.code == 1
    assert re.fullmatch(UNKNOWN, refused.err)


def test_each_exit_code_of_a_process(start: Start, store: str) -> None:
    partq.create_queue(store, "there", "v long")
    about = ["--store", store, "--queue", "nope"]
    refused = start("consume", *about, "--group", "g", "--checkpoint", "c", "--format", "console", by="python")
    misused = start("produce", *about, by="python")
    told = start("maintain", "--help", by="python")
    _, err = refused.communicate(timeout=180)
    assert refused.returncode == 1 and re.fullmatch(UNKNOWN, err)
    _, err = misused.communicate(timeout=180)
    assert misused.returncode == 2 and "--checkpoint" in err and "Traceback" not in err
    assert "--every" in finished(told)


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


@pytest.mark.parametrize(
    ("job", "arguments", "word"),
    [
        ("consume", ["--group", "g", "--checkpoint", "c"], "--handler"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--handler", "a:b"], "not both"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "delta"], "--path"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "nocolon"], "package.module:function"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "no_such_module:f"], "no_such_module"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "os:no_such"], "no_such"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "os:sep"], "function"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--trigger", "often"], "often"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--read-option", "x"], "name=value"),
        ("produce", ["--checkpoint", "c", "--trigger", "-1 seconds"], "-1 seconds"),
        ("produce", ["--checkpoint", "c", "--max-files-per-trigger", "0"], "--max-files-per-trigger"),
        ("produce", [], "--checkpoint"),
        ("maintain", ["--every", "soon"], "--every"),
        ("scale", [], "--partitions"),
        ("scale", ["--partitions", "many"], "--partitions"),
        ("scale", ["--partitions", "3", "--mode", "fast"], "--mode"),
        ("scale", ["--partitions", "3", "--timeout", "soon"], "--timeout"),
        ("scale", ["--partitions", "1", "--confirm-lost", "3"], "--confirm-lost"),
    ],
)
def test_wrong_usage(here: Here, store: str, job: str, arguments: list[str], word: str) -> None:
    refused = here(job, "--store", store, "--queue", "q", *arguments)
    assert refused.code == 2
    assert word in refused.err
    assert not Path(store).exists()


@pytest.mark.parametrize("job", ["produce", "consume", "maintain", "rebalance", "scale"])
def test_help_tells_of_every_option(here: Here, job: str) -> None:
    told = here(job, "--help").out
    source = (ROOT / "jobs" / f"{job}.py").read_text()
    parameters = re.findall(r"^    (\w+): Annotated\[", source, re.MULTILINE)
    assert len(parameters) >= 3
    for name in parameters:
        option = "--" + name.strip("_").replace("_", "-")
        assert re.search(rf"{option}\s.*\w+ \w+", told), f"{option} is not explained"


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


def test_key_values() -> None:
    assert key_values(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert key_values(None) == {}
