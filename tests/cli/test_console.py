"""The command that shows a store in a browser: it says where, warns, and ends when it is told to."""

from __future__ import annotations

import builtins
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import spark_partq.console
from spark_partq.storage.inspect.watch import StoreWatch
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import HEEDS_CTRL_C
from tests.groups import Consumer
from tests.helpers import ROOT


@contextmanager
def running(store: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the line that it prints when it listens."""
    arguments = [sys.executable, "-c", HEEDS_CTRL_C, "--store", store, "console", "--port", "0", *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(store: str, living: Consumer, number: signal.Signals) -> None:
    """At once, also while a browser keeps its connection, with exit code 0 and without a word."""
    with running(store) as (process, line):
        told = re.fullmatch(rf"console of {re.escape(store)} at (http://127\.0\.0\.1:(\d+)/)\n", line)
        assert told is not None
        with socket.create_connection(("127.0.0.1", int(told[2]))) as kept:
            kept.sendall(b"GET /api/store HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(15) == b"HTTP/1.1 200 OK"
            with urllib.request.urlopen(f"{told[1]}api/groups/g", timeout=60) as answer:
                assert json.load(answer)["description"]["lag"] == 37
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_address_has_a_token_with_actions(store: str, living: Consumer) -> None:
    with running(store, "--actions") as (_, line):
        told = re.search(r" at (http://127\.0\.0\.1:\d+/)#token=([\w-]{32,})\n$", line)
        assert told is not None
        body, headers = b'{"action":"ingress","queue":"q","enabled":false}', {"origin": told[1].rstrip("/")}
        request = urllib.request.Request(f"{told[1]}api/actions", body, {**headers, "x-partq-token": told[2]})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer) == {"done": "ingress of queue q is disabled"}


def test_a_warning_where_others_reach_it(store: str, living: Consumer) -> None:
    with running(store, "--host", "0.0.0.0") as (process, line):
        assert line.startswith(f"console of {store} at http://0.0.0.0:")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    first, *more = err.splitlines()
    assert first.startswith("warning: other machines can reach the console") and all(x.startswith("  ") for x in more)


def test_refused(command: Command, store: str, living: Consumer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_refused(command("console", "--port", str(port)), "INVALID_ARGUMENT", f"port {port}", "--port")


def test_something_else_than_a_store(command: Command, store: str) -> None:
    assert_refused(command("console"), "NOT_A_STORE", store)


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_extra(
    command: Command, store: str, living: Consumer, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """It says how to install it; what is wrong with another package is not hidden."""
    monkeypatch.setattr(spark_partq, "console", spark_partq.console)  # what is imported once more goes after the test
    for name in [name for name in sys.modules if name.startswith((package, "spark_partq.console"))]:
        monkeypatch.delitem(sys.modules, name)
    missing, importing = package, builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    refused = command("console", "--port", "0")
    assert_refused(refused, "INVALID_ARGUMENT", f"{package} is not installed", "pip install 'spark_partq[console]'")
    missing = "hashlib" if package == "starlette" else "hmac"
    for name in [name for name in sys.modules if name.startswith("spark_partq.console")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError):
        command("console", "--port", "0")


def test_nothing_is_read_before_somebody_asks(store: str, living: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_partq.console.server import serving
    from spark_partq.storage.store import Store

    monkeypatch.setattr(StoreWatch, "look", lambda _: pytest.fail("it was read"))
    before = threading.active_count()
    with serving(Store(store), "127.0.0.1", 0):
        assert threading.active_count() > before
