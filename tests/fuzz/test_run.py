"""The runner finds what it is there to find: each planted fault is told, with its seed, by the exit code, and in time."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time

import pytest

from tests.fuzz.run import Target, problems
from tests.helpers import ROOT

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says how long a process waited for a processor"
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hang", r"seed 3: it takes longer than 1 s"),
        pytest.param("waits", r"seed 3: it waits longer than 1 s", marks=on_linux),
        ("leak", r"seed 6: 2\d\d MiB more memory than at the beginning; it stops here"),
        ("spike", r"seed 3: 3\d\d MiB more memory than at the beginning; it stops here"),
        ("foreign", r"seed 3: LookupError: no error of ours"),
        ("deaf", r"seed 3: it hangs, and nothing in its process can interrupt it"),
        ("dead", r"seed 3: its process ended with -11"),
    ],
)
def test_a_planted_fault_is_told(name: str, told: str) -> None:
    # Only "deaf" has to be ended from outside. The others have the time that they take on a busy machine.
    done = _run(name, *(["--stuck-s", "4"] if name == "deaf" else []))
    assert done.returncode == 1, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith(f"{name}: 10 inputs, 1 wrong, ") and len(lines) == 1
    assert re.fullmatch(told, lines[0].strip()), lines


@pytest.mark.parametrize("name", ["sound", pytest.param("starved", marks=on_linux)])
def test_a_sound_reader_passes(name: str) -> None:
    """Also if other programs take the processor from it."""
    done = _run(name)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{name}: 10 inputs, 0 wrong, \d+ s, \d+ MiB more memory\n", done.stdout)


def _run(name: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.planted", "--inputs", "10", "--target", name, *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_what_was_slow_only_once_is_no_hang() -> None:
    """As if others had used the machine for a while."""
    waits = [60.0]
    slow = Target(lambda: 0, lambda _, __: 1, lambda n: time.sleep(waits.pop()) if n and waits else None, ())
    began = time.monotonic()
    assert list(problems("slow", slow, range(3))) == []
    assert waits == [] and time.monotonic() - began < 30


def test_seeds_are_those_that_are_given() -> None:
    drawn: list[float] = []
    target = Target(lambda: 0.0, lambda _, chance: chance.random(), drawn.append, ())
    assert list(problems("t", target, [7, 9])) == []
    assert drawn == [0.0, random.Random("t/7").random(), random.Random("t/9").random()]
