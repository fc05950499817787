"""One Spark session and fresh stores for all tests."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

import spark_partq as partq
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.testing.simulation.__main__ import seldom_collected
from tests import jvm, queries
from tools import versitygw

collect_ignore = ["plugins"]  # a package that only applications of tests see

# The zone of the session, of the driver's Python and of the workers all differ from UTC, where faults would hide.
ZONE = "America/New_York"
os.environ["TZ"] = ZONE
time.tzset()

os.environ |= jvm.environment()

settings.register_profile(
    "partq",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("partq")


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "of tests/spark only the scenarios whose applications have no JVM, or all but these"
    parser.addoption("--plain", choices=["only", "without"], help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--plain")
    if wanted is None:
        return
    kept, left = [], []
    for item in items:
        fits = not _in_spark(item) or _is_plain(item) == (wanted == "only")
        (kept if fits else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish() -> None:
    """What is imported stays to the end: to look through it for cycles again and again took a tenth of the tests' time."""
    seldom_collected()


def _in_spark(item: pytest.Item) -> bool:
    return Path(__file__).parent / "spark" in item.path.parents


def _is_plain(item: pytest.Item) -> bool:
    """One of its parameters says that its applications have no JVM."""
    return isinstance(item, pytest.Function) and hasattr(item, "callspec") and "plain" in item.callspec.params.values()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the tests, with a session time zone that is not UTC.

    It interprets queries: to generate code and compile it takes longer than each of these few rows. Other programs that tests start do compile.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    warehouse = tmp_path_factory.mktemp("warehouse")
    interpret = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
    places = {"spark.sql.session.timeZone": ZONE, "spark.sql.warehouse.dir": str(warehouse)}
    session = partq.session("tests", "local[2]", places | interpret)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_threads_are_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of planners that did not leave end with the test: a later one counts what is read and committed."""
    started: list[Planner] = []
    start = Planner._start_threads

    def start_threads(planner: Planner) -> None:
        started.append(planner)
        start(planner)

    monkeypatch.setattr(Planner, "_start_threads", start_threads)
    yield
    for planner in started:
        planner.membership.stopping.set()
    for thread in threading.enumerate():
        if started and thread.name in ("partq-heartbeats", "partq-coordinator"):
            thread.join(timeout=5)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The path of a store that does not exist yet."""
    return str(tmp_path / "store")


@pytest.fixture
def stopped_queries(spark: SparkSession) -> Iterator[None]:
    """Whatever a test leaves running is stopped after it."""
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def ended_queries() -> Iterator[None]:
    """The same of queries without a JVM."""
    yield
    queries.stop_all()


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that this process forces to the disk, in order; "" is all."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(os, "sync", lambda: found.append(""))
    return found


@pytest.fixture(scope="session")
def needs_gateway() -> None:
    """Without Go, or where versitygw cannot be fetched, the test is left out."""
    try:
        versitygw.program()
    except versitygw.NoGatewayError as error:
        pytest.skip(str(error))
