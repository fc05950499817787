"""The applications of all tests, and how they start jobs."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

import spark_partq as partq
from spark_partq.spark import write_job
from tests.applications import Scenario
from tests.helpers import ROOT
from tests.processes import Kind, Pool
from tests.spark.jobs import SPARK_SUBMIT, Here, Lent, Outcome, Start, process
from tests.spark.scenarios import NewScenario


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Pool]]:
    """One pool of each kind."""
    found: dict[Kind, Pool] = {kind: Pool(tmp_path_factory.mktemp(kind), kind) for kind in get_args(Kind)}
    yield found
    for pool in found.values():
        pool.close()


@pytest.fixture
def pool(pools: dict[Kind, Pool], request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Of the kind that the test asks for; afterwards every query is stopped."""
    found = pools[request.param]
    yield found
    found.clear()


@pytest.fixture
def start() -> Iterator[Start]:
    """start(job, *arguments, by="spark-submit" or "python", conf=[…]) -> process; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(
        job: str, *arguments: str, by: str = "spark-submit", conf: list[str] | None = None
    ) -> subprocess.Popen[str]:
        program = [sys.executable] if by == "python" else [SPARK_SUBMIT, *(conf or [])]
        started.append(process([*program, str(ROOT / "jobs" / f"{job}.py"), *arguments], COLUMNS="200"))
        return started[-1]

    yield run
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


@pytest.fixture(params=["driver", "job"])
def written_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes the files of small batches: the driver, as ever, or a Spark job, as those of large ones."""
    if request.param == "job":
        monkeypatch.setattr(write_job, "_SMALL_BYTES", -1)
    return str(request.param)


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


@pytest.fixture
def scenario(pool: Pool, tmp_path: Path) -> Iterator[NewScenario]:
    """Makes the queue; afterwards every query is stopped."""
    made: list[Scenario] = []

    def new(partitions: int, **settings: Any) -> Scenario:
        made.append(Scenario(pool, tmp_path, partitions, **settings))
        return made[-1]

    yield new
    for s in made:
        s.let_go()
