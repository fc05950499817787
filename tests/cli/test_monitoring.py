"""The commands for monitors: an endpoint for Prometheus, and a check for probes."""

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
from pathlib import Path
from typing import Any

import pytest

from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import PROGRAM
from tests.groups import Consumer
from tests.helpers import ROOT


# ---- check
def test_check(command: Command, store: str, living: Consumer) -> None:
    """Exit code 0 while it gets on or has nothing to read, 1 if not."""
    stands = command("check", "g", "--within", "100ms")
    assert (stands.code, stands.err) == (1, "")
    assert stands.out.startswith(
        "group g makes no progress: 37 messages are left, and none was acknowledged within 0.1 s."
    )
    ended = threading.Event()

    def read() -> None:
        offset = 3
        while not ended.wait(0.05):
            offset += 1
            living.ack(0, min(offset, 10))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        assert re.fullmatch(
            r"group g is healthy: it has acknowledged \d messages? within \d+\.\d s\n", command("check", "g").out
        )
    finally:
        ended.set()
        reading.join()
    for number in range(4):
        living.ack(number, 10)
    assert command("check", "g").out == "group g is healthy: it has nothing to read\n"


def test_check_of_a_group_that_nobody_reads_for(command: Command, store: str, group: Consumer) -> None:
    """R4: its member was killed, and the session of 300 ms ends while the check watches; then it is taken out."""
    told = command("check", "g", "--within", "10m", "--json")
    found = json.loads(told.out)
    assert told.code == 1 and set(found) == {"group", "state", "healthy", "lag", "acknowledged", "waited_s", "why"}
    assert (found["state"], found["healthy"], found["lag"]) == ("Expired", False, 37)
    group.leave()
    assert "no query is in the group" in command("check", "g").out


def test_the_document_lists_the_fields_of_check(command: Command, store: str, group: Consumer) -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    sentence = text[text.index("`--json` prints the fields") :].split("\n\n")[0].partition("fields")[2]
    found = json.loads(command("check", "g", "--within", "0", "--json").out)
    assert set(re.findall(r"`(\w+)`", sentence)) == set(found)


def test_check_refuses(command: Command, store: str, group: Consumer) -> None:
    assert_refused(command("check", "nobody"), "GROUP_NOT_FOUND", "'nobody'")
    assert_refused(command("check", "g", "--within", "soon"), "INVALID_ARGUMENT", "'soon'")


# ---- metrics
def test_metrics(store: str, living: Consumer, tmp_path: Path) -> None:
    """It serves what it said until it is told to stop, and then ends with exit code 0."""
    arguments = [*PROGRAM, "--store", store, "metrics", "--port", "0"]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert running.stdout is not None
        told = re.fullmatch(
            rf"metrics of {re.escape(store)} at (http://127\.0\.0\.1:\d+/metrics)\n", running.stdout.readline()
        )
        assert told is not None
        with urllib.request.urlopen(told[1], timeout=60) as answer:
            assert 'partq_group_members{group="g"} 1.0' in answer.read().decode()
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out, err) == (0, "", "")


def test_metrics_where_another_program_listens(command: Command, store: str, living: Consumer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_refused(command("metrics", "--port", str(port)), "INVALID_ARGUMENT", f"port {port}", "--port")


def test_metrics_without_prometheus_client(
    command: Command, store: str, living: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how to install it; what is wrong with another package is not hidden."""
    for name in [name for name in sys.modules if name.startswith(("prometheus_client", "spark_partq.metrics."))]:
        monkeypatch.delitem(sys.modules, name)
    missing, importing = "prometheus_client", builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    refused = command("metrics", "--port", "0")
    assert_refused(
        refused, "INVALID_ARGUMENT", "prometheus_client is not installed", "pip install 'spark_partq[metrics]'"
    )
    missing = "wsgiref"
    with pytest.raises(ModuleNotFoundError):
        command("metrics", "--port", "0")


def test_metrics_of_something_else(command: Command, store: str) -> None:
    assert_refused(command("metrics"), "NOT_A_STORE", store)
