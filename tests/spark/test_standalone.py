"""The jobs on a standalone cluster, whose processes die (U1)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import spark_partq as partq
from tests import standalone
from tests.helpers import eventually, finished, put
from tests.processes import kill_with_children
from tests.scaled import stored
from tests.spark.jobs import Start
from tests.spark.test_jobs import produce_and_consume

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("v", pa.int64())])

# Writes each micro-batch once, in tasks that wait until this micro-batch, or all, may go on.
HANDLER = """
import pathlib, time
from pyspark import TaskContext

def slow(folder):
    folder = pathlib.Path(folder)
    def handle(batch, batch_id):
        def wait(frames):
            (folder / f"task-{batch_id}-{TaskContext.get().taskAttemptId()}").touch()
            while not any((folder / name).exists() for name in (f"go-{batch_id}", "go")):
                time.sleep(0.02)
            yield from frames
        batch.mapInPandas(wait, batch.schema).write.mode("overwrite").parquet(str(folder / "out" / str(batch_id)))
    return handle
"""

# Writes each micro-batch into another queue. The first task stands still until it is tried again beside that.
STRAGGLER = """
import pathlib, time
import spark_partq as partq
from pyspark import TaskContext

def straggler(store, folder):
    folder = pathlib.Path(folder)
    sink = partq.queue_sink(store, "out", sink_id="s")
    def wait(frames):
        context = TaskContext.get()
        again = folder / f"again-{context.getLocalProperty('partq.test')}"
        if context.attemptNumber():
            again.touch()
        while context.partitionId() == 0 and not again.exists():
            time.sleep(0.02)
        yield from frames
    def handle(batch, batch_id):
        batch.sparkSession.sparkContext.setLocalProperty("partq.test", str(batch_id))
        sink(batch.select("v").mapInPandas(wait, "v long"), batch_id)
    return handle
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
}


def test_produce_and_consume(start: Start, tmp_path: Path) -> None:
    """By spark-submit, to a master with two workers."""
    with standalone.cluster(tmp_path / "cluster") as cluster:

        def run(*arguments: str) -> None:
            finished(start(*arguments, conf=cluster.arguments))

        produce_and_consume(run, run, tmp_path, cluster=True)


def test_speculation(start: Start, tmp_path: Path) -> None:
    """Q5: a task that reads a partition and writes messages runs twice at once; each message is in once."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v long", partitions=2)
    partq.create_queue(store, "out", "v long", partitions=3)
    for number in range(2):
        put(store, number, range(100 * number, 100 * number + 100))
    (tmp_path / "my_handlers.py").write_text(STRAGGLER)
    arguments = ["--store", store, "--queue", "q", "--group", "g", "--flows", "2", "--max-rows-per-trigger", "80"]
    arguments += ["--handler", "my_handlers:straggler", "--handler-arg", f"store={store}"]
    arguments += ["--handler-arg", f"folder={tmp_path}", "--trigger", "available-now"]
    with standalone.cluster(tmp_path / "cluster") as cluster:
        conf = [*cluster.arguments, "--py-files", str(tmp_path / "my_handlers.py")]
        conf += [word for name, value in SPECULATION.items() for word in ("--conf", f"{name}={value}")]
        finished(start("consume", *arguments, "--checkpoint", str(tmp_path / "checkpoint"), conf=conf))
    assert len(list(tmp_path.glob("again-*"))) == 3
    found = [v for rows in stored(store, SCHEMA, "out").values() for (v,) in rows]
    assert sorted(found) == list(range(200))
    assert partq.describe_group(store, "g").lag == 0


def test_an_executor_a_worker_and_the_driver_die(start: Start, tmp_path: Path) -> None:
    """W1, H1: an executor, then a whole worker, then the driver, each in the middle of a micro-batch. The driver is started again from its
    checkpoint. Each message is in the result once, in its partition's order."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v long", partitions=4)
    for number in range(4):
        put(store, number, range(100 * number, 100 * number + 100))
    (tmp_path / "my_handlers.py").write_text(HANDLER)
    arguments = ["--store", store, "--queue", "q", "--group", "g", "--flows", "2", "--max-rows-per-trigger", "40"]
    arguments += ["--handler", "my_handlers:slow", "--handler-arg", f"folder={tmp_path}", "--trigger", "available-now"]
    consume = ["consume", *arguments, "--checkpoint", str(tmp_path / "checkpoint")]

    def tasks(batch: int) -> int:
        return len(list(tmp_path.glob(f"task-{batch}-*")))

    def batches() -> int:
        return len(list(tmp_path.glob("out/*/_SUCCESS")))

    def go_on(batch: int) -> None:
        (tmp_path / f"go-{batch}").touch()
        eventually(lambda: batches() == batch + 1, f"the end of micro-batch {batch}")

    with standalone.cluster(tmp_path / "cluster") as cluster:
        conf = [*cluster.arguments, "--py-files", str(tmp_path / "my_handlers.py")]
        first = start(*consume, conf=conf)
        eventually(lambda: tasks(0) == 2, "a task on each worker")
        for executor in cluster.executors(0):
            executor.kill()
        eventually(lambda: tasks(0) >= 3, "the lost task on another executor")
        go_on(0)
        eventually(lambda: cluster.executors(0), "another executor of the first worker")
        eventually(lambda: tasks(1) >= 2, "a task on each worker")
        kill_with_children(cluster.workers[1:])
        go_on(1)
        assert tasks(1) >= 3  # the lost task ran again, on the other worker
        eventually(lambda: tasks(2) >= 1, "a task of the micro-batch in which the driver dies")
        assert first.poll() is None and batches() == 2
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        (tmp_path / "go").touch()
        finished(start(*consume, conf=conf))
    assert batches() == 10
    found = pd.concat([pd.read_parquet(folder) for folder in (tmp_path / "out").iterdir()])
    assert sorted(found["v"]) == list(range(400))
    assert {group["_offset"].nunique() for _, group in found.groupby("_partition")} == {100}
    assert partq.describe_group(store, "g").lag == 0
