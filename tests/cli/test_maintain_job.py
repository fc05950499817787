"""`jobs/maintain.py`: a queue that cannot be maintained keeps back no other one (U1, Q8)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import spark_partq as partq
from tests.helpers import ROOT, eventually


@pytest.fixture
def damaged(store: str) -> Path:
    """The log entry that makes the control table of queue `a`, as text that is none; queue `b` is whole."""
    for name in "ab":
        partq.create_queue(store, name, "v bigint", partitions=1)
    entry = Path(store, f"queues/a/control/_delta_log/{0:020d}.json")
    entry.with_suffix(".kept").write_bytes(entry.read_bytes())
    entry.write_text("no entry")
    return entry


def job(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "jobs/maintain.py", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def queues(out: str) -> list[str]:
    return [json.loads(line)["queue"] for line in out.splitlines()]


def test_one_pass_maintains_the_others(store: str, damaged: Path) -> None:
    running = job("--store", store)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, queues(out)) == (1, ["b"])
    (line,) = err.splitlines()
    assert line.startswith("error: [CORRUPT_TABLE]") and "queue 'a'" in line


def test_with_every_it_goes_on(store: str, damaged: Path) -> None:
    """Once the table is restored, the next pass maintains the queue."""
    running = job("--store", store, "--every", "0.1")
    told: list[str] = []

    def next_queue() -> str:
        assert running.stdout is not None
        told.append(running.stdout.readline())
        return queues(told[-1])[0]

    try:
        assert [next_queue(), next_queue()] == ["b", "b"]
        damaged.with_suffix(".kept").rename(damaged)
        eventually(lambda: next_queue() == "a", "that it is maintained again", every_s=0)
        running.terminate()
        _, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 0
    assert all(line.startswith("error: [CORRUPT_TABLE]") for line in err.splitlines())


@pytest.mark.parametrize(("name", "said"), [("nowhere", "QUEUE_NOT_FOUND"), ("a b", "INVALID_ARGUMENT")])
def test_a_name_without_a_queue_ends_it(store: str, damaged: Path, name: str, said: str) -> None:
    running = job("--store", store, "--queue", name, "--every", "0.1")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"error: [{said}]")
