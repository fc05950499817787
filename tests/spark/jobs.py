"""How the tests start jobs: in processes of their own, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.helpers import ROOT
from tests.jvm import QUICK

SPARK_SUBMIT = str(Path(sys.executable).parent / "spark-submit")
# Both executors are up before the job goes on.
CLUSTER = ["--master", "local-cluster[2,1,1024]", "--conf", f"spark.executor.extraJavaOptions={QUICK}"]
CLUSTER += ["--conf", "spark.cores.max=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]


Start = Callable[..., "subprocess.Popen[str]"]


def process(command: list[str], folder: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
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
        cwd=folder,
        env={**env, **environment},
        start_new_session=True,
    )


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
