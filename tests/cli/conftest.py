"""The command, run in the process of the tests, and a group that it is about."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

import spark_partq as partq
from spark_partq import cli
from tests.cli.outcome import Command, Outcome
from tests.groups import Consumer
from tests.helpers import put


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process: run(*arguments) -> Outcome."""
    monkeypatch.delenv("SPARK_PARTQ_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["spark-partq", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers:  # `rebalance` puts its own in place
                    signal.signal(number, handler)
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def command(run: Command, store: str) -> Command:
    """The same, about the store of the test."""
    return lambda *arguments: run("--store", store, *arguments)


@pytest.fixture
def group(store: str) -> Consumer:
    """Group `g` on queue `q` of 4 partitions with 10 messages each; it has read 3 of partition 0. Its session lasts 300 ms."""
    return _member(store, session_timeout_ms=300)


@pytest.fixture
def living(store: str) -> Consumer:
    """The same, whose session lasts longer than a test."""
    return _member(store, session_timeout_ms=600_000)


def _member(store: str, session_timeout_ms: int) -> Consumer:
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=100, max_handoff_time_ms=200)
    for p in range(4):
        put(store, p, range(10))
    member = Consumer(store, "a", 2, session_timeout_ms=session_timeout_ms)
    member.ack(0, 3)
    return member
