"""The examples of commands in docs/options.md and docs/scaling.md run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import spark_partq as partq
from tests.cli.outcome import Command
from tests.core.test_documents import section
from tests.groups import Consumer
from tests.helpers import ROOT

LINE = re.compile(r"^    spark-partq ((?:--|list)[^\n#]*)", re.MULTILINE)


def test_settings_and_tail(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    part = section((ROOT / "docs" / "options.md").read_text(), "Settings of a queue")
    lines = LINE.findall(part)
    assert {"create-queue", "alter-queue", "tail"} <= {word for line in lines for word in shlex.split(line)}
    for line in lines:
        done = run(*shlex.split(line))
        assert (done.code, done.err) == (0, ""), line
    settings = partq.describe_queue("store", "orders").settings
    assert (settings["retention_ms"], settings["max_handoff_time_ms"]) == (None, 10_000)


def test_the_command_line(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "v long")
    lines = LINE.findall(section((ROOT / "docs" / "options.md").read_text(), "On the command line"))
    assert len(lines) == 2
    for line in lines:
        assert run(*shlex.split(line)).code == 0, line


def test_scaling(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1, S2, S4, S6: each mode, to the counts that the page names. The last line shows that the queue is exclusive."""
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "k string, v long", key="k", partitions=8)
    lines = LINE.findall(section((ROOT / "docs" / "scaling.md").read_text(), "In short"))
    counts = []
    for line in lines:
        done = run(*shlex.split(line))
        assert (done.code, done.err) == (0, ""), line
        counts.append(partq.describe_queue("store", "orders").operating_partitions)
    assert counts == [12, 12, 4, 0, 0]
    assert "exclusive" in done.out


def test_ingress(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3, S4: off and on, and the procedure step by step; whether the queue takes messages after each line."""
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "v long", partitions=4)
    Consumer("store", "a", group="billing", queues=("orders",))
    lines = LINE.findall(section((ROOT / "docs" / "scaling.md").read_text(), "Ingress (S3)"))
    taken = []
    for line in lines:
        assert run(*shlex.split(line)).code == 0, line
        taken.append(partq.describe_queue("store", "orders").ingress)
    assert taken == [False, True, False, False, False, False, True]
    assert partq.describe_queue("store", "orders").operating_partitions == 12
