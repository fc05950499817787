"""Queries without Spark for the tests of this folder, and their end."""

from collections.abc import Iterator

import pytest

from spark_partq.storage.procedures.consume.planner import Planner
from tests.planners import Query


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    """They leave after the test."""
    found: list[Query] = []
    yield found
    for query in found:
        query.planner.leave()


@pytest.fixture(autouse=True)
def _no_threads_are_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of planners that did not leave end with the test: a later one counts what is committed."""
    started: list[Planner] = []
    start = Planner._start_threads

    def start_threads(planner: Planner) -> None:
        started.append(planner)
        start(planner)

    monkeypatch.setattr(Planner, "_start_threads", start_threads)
    yield
    for planner in started:
        planner.membership.stopping.set()
