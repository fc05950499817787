"""What a task does first in a Python worker, without Spark."""

from __future__ import annotations

import gc
import itertools
import pickle
import socket
from collections.abc import Iterator
from unittest import mock

import pytest

from spark_partq.spark import worker
from spark_partq.spark.worker import WorkerFunction

QUICK = getattr(socket, "TCP_QUICKACK", None)


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    """Each test begins as a worker that had no task yet; this process is not frozen."""
    monkeypatch.setattr(worker, "_tasks", itertools.count())
    with mock.patch.object(gc, "freeze") as freeze:
        yield freeze


def received(function: WorkerFunction) -> WorkerFunction:
    """As a worker has it."""
    found: WorkerFunction = pickle.loads(pickle.dumps(function))
    return found


@pytest.mark.skipif(QUICK is None, reason="this system has no TCP_QUICKACK")
def test_a_task_is_acknowledged_as_it_comes() -> None:
    """On each TCP socket, of which one waited for something to send along; others are left alone."""
    assert QUICK is not None
    local, other = socket.socketpair()
    with (
        local,
        other,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as spark,
        server.accept()[0] as here,
    ):
        here.setsockopt(socket.IPPROTO_TCP, QUICK, 0)
        assert not here.getsockopt(socket.IPPROTO_TCP, QUICK)
        received(WorkerFunction(len))
        assert here.getsockopt(socket.IPPROTO_TCP, QUICK)
        for sender, receiver in ((spark, here), (local, other)):
            sender.sendall(b"1")
            assert receiver.recv(1) == b"1"


def test_the_second_task_freezes_what_the_first_one_needed(frozen: mock.Mock) -> None:
    """Each collection after a task would go through all modules; once is enough."""
    called = []
    for _ in range(4):
        assert received(WorkerFunction(len))("abc") == 3
        called.append(frozen.call_count)
    assert called == [0, 1, 1, 1]


def test_without_the_option_a_task_runs_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    assert received(WorkerFunction(len))("abc") == 3
