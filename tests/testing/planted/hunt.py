"""Runs of the simulation with a bug planted, and the seeds that show it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from spark_partq.core.errors import PartqError
from spark_partq.testing.simulation import run
from spark_partq.testing.simulation.__main__ import execute
from spark_partq.testing.simulation.draws import draw
from spark_partq.testing.simulation.known import known
from spark_partq.testing.simulation.setup import Setup
from tests.testing.planted.bugs import BUGS, Bug
from tests.testing.planted.setups import AsIs

SEEDS_FILE = Path(__file__).with_name("seeds.json")
SEEDS = 6_000
# A bug that makes itself known by these has a bug itself.
_ITS_OWN = re.compile(r"\b(Attribute|Name|Type|UnboundLocal)Error\b")

# A run that is well comes to its end sooner than this; one that does not takes less time to say so.
_CALM_S = 45.0

_sound: dict[str, str] = {}


def recorded() -> dict[str, int]:
    """The seed that shows each bug."""
    seeds: dict[str, int] = json.loads(SEEDS_FILE.read_text())
    return seeds


def record(found: dict[str, int]) -> None:
    """Keep seeds; those of bugs that are not planted any more go."""
    seeds = {name: seed for name, seed in {**recorded(), **found}.items() if name in BUGS and BUGS[name].test is None}
    SEEDS_FILE.write_text(json.dumps(dict(sorted(seeds.items())), indent=1) + "\n")


def setup_of(bug: Bug, seed: int) -> Setup:
    return bug.change(draw(seed))


def with_bug(bug: Bug, setup: Setup) -> str:
    """The problem that a run shows with the bug planted; empty if none, or one that is known anyhow."""
    with bug.planted():
        try:
            problem = _execute(setup)
        except PartqError as error:  # what it leaves behind cannot even be looked at
            problem = f"BROKEN: {error}"
    if _ITS_OWN.search(problem):
        raise RuntimeError(f"{bug.name} has a bug itself: {problem}")
    made = isinstance(bug.change, AsIs)
    return "" if known(setup, problem) and not made else problem


def _execute(setup: Setup) -> str:
    with mock.patch.object(run, "CALM_S", _CALM_S):
        return execute(setup).problem


def without(setup: Setup) -> str:
    """The problem that the run shows without any bug."""
    key = repr(setup)
    if key not in _sound:
        _sound[key] = _execute(setup)
    return _sound[key]


def caught_by_test(bug: Bug) -> str:
    """What the bug's test says while it is planted; empty if it passes."""
    assert bug.test is not None
    with bug.planted():
        try:
            bug.test()
        except (Exception, pytest.fail.Exception) as error:
            if _ITS_OWN.search(type(error).__name__):
                raise
            return f"{type(error).__name__}: {error}"
    return ""


def hunt(bug: Bug, seeds: range, most_s: float = 1e9) -> Iterator[tuple[int, str]]:
    """Each seed that is tried, with the problem that it shows with the bug and not without; ends with the first."""
    began_s = time.perf_counter()
    for seed in seeds:
        setup = setup_of(bug, seed)
        if not bug.matters(setup):
            continue
        problem = with_bug(bug, setup)
        if problem and without(setup):
            problem = ""
        yield seed, problem
        if problem or time.perf_counter() - began_s > most_s:
            return
