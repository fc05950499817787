"""When a session is listened to: once a query needs it, and each session once. Sessions of Spark are stood in for."""

from __future__ import annotations

import atexit
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_partq.spark import spark_events
from spark_partq.spark.channel import DriverClient
from spark_partq.spark.spark_events import SparkEvents
from tests.driver.ends import GREETING, Handler, own_driver


@dataclass(frozen=True)
class Session:
    """An object of Python, of which several stand for one session of the JVM."""

    _jsparkSession: str
    sparkContext: Any


def context(stopped: bool = False) -> SimpleNamespace:
    return SimpleNamespace(_jsc=None if stopped else object(), applicationId="app-1")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions to which a listener was added, which opens PySpark's callback server."""
    added: list[str] = []
    monkeypatch.setattr(spark_events, "_listen", lambda spark, _: added.append(spark._jsparkSession))
    return added


def events() -> Any:
    handler: Any = None
    return SparkEvents(handler)


def test_nothing_is_opened_before_a_query_joins(heard: list[str]) -> None:
    made = events()
    made.add(Session("a", context()))
    assert heard == []
    made.listen()
    assert heard == ["a"]
    made.add(Session("b", context()))
    assert heard == ["a", "b"]


def test_each_session_has_one_listener(heard: list[str]) -> None:
    """The session of a micro-batch is another object each time."""
    made, running = events(), context()
    for name in "aabab":
        made.add(Session(name, running))
        made.listen()
    assert heard == ["a", "b"] and made.knows(Session("b", running)) and not made.knows(Session("c", running))


def test_stopped_sessions_are_forgotten(heard: list[str]) -> None:
    made, ending = events(), context()
    made.add(Session("a", ending))
    made.listen()
    ending._jsc = None
    made.add(Session("b", context()))
    assert not made.knows(Session("a", ending)) and heard == ["a", "b"]


def test_a_planner_that_comes_has_spark_listened_to() -> None:
    with tempfile.TemporaryDirectory(prefix="pt", dir="/tmp") as folder, own_driver(folder) as driver:
        assert driver.address is not None
        listen: Any = SparkEvents.listen
        assert listen.call_count == 0
        client = DriverClient(driver.address, GREETING, Handler())
        assert client.request({"joins": True}) == {}  # and before its first micro-batch
        assert listen.call_count == 1


def test_a_spark_that_cannot_be_listened_to(caplog: pytest.LogCaptureFixture) -> None:
    made, broken = events(), SimpleNamespace(_jsparkSession="a", streams=None, sparkContext=context())
    with caplog.at_level(logging.WARNING):
        made.add(broken)
        made.listen()
        made.listen()
    (record,) = caplog.records
    assert "handoffs take longer" in record.message


def test_only_the_process_that_added_a_listener_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has its connection to the JVM, and may end sooner."""
    ends: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", ends.append)
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda _: None)
    session = MagicMock()
    spark_events._listen(session, MagicMock())
    (end,), removed = ends, session.streams._jsqm.removeListener
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        end()
    assert not removed.called
    end()
    assert removed.call_count == 1
