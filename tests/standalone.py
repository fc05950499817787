"""A standalone cluster of Spark: a master and its workers, each a process of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.helpers import eventually
from tests.jvm import QUICK
from tests.processes import executors_below, kill_with_children

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_SIZE = ("--cores", "1", "--memory", "1g")
_LISTENS = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass
class Cluster:
    master: str  # spark://host:port
    workers: Sequence[subprocess.Popen[bytes]]

    def executors(self, number: int) -> list[psutil.Process]:
        """The executors that run on a worker."""
        return executors_below(self.workers[number].pid)

    @property
    def arguments(self) -> list[str]:
        """For spark-submit: one executor with one core on each worker, and all are there before the job goes on."""
        conf = {
            "spark.cores.max": len(self.workers),
            "spark.executor.cores": 1,
            "spark.executor.memory": "600m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        }
        return [
            "--master",
            self.master,
            *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        ]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a master and workers on this machine; whatever they started is ended with them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([str(_SPARK_CLASS), *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        started.append(process)
        return log

    folder.mkdir()
    try:
        free = ("--port", "0", "--webui-port", "0")
        log = start("master", _MASTER, "--host", "127.0.0.1", *free)
        master = eventually(lambda: _LISTENS.search(log.read_text()), "a master")[1]
        logs = [
            # Each on a host of its own, or no task would be tried on another one while it runs.
            start(
                f"worker-{n}", _WORKER, "--host", f"127.0.0.{1 + n}", *free, *_SIZE, "--work-dir", str(folder), master
            )
            for n in range(workers)
        ]
        eventually(lambda: all(_REGISTERED in log.read_text() for log in logs), "workers that the master knows")
        yield Cluster(master, started[1:])
    finally:
        kill_with_children(reversed(started))
