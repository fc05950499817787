"""Which test runs which lines of the product, and how long it takes: recorded once, kept until the code or the tests change.

``python -m tests.mutants.recording FILE…`` runs these files of tests and adds what it sees.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import ROOT

KEPT = ROOT / ".mutants" / "recorded.json"
PACKAGE = ROOT / "spark_partq"

# Without a JVM and without a server. The files of a store have no mutants, and planted bugs say nothing about the product's.
SUITES = (
    "tests/core",
    "tests/cli",
    "tests/refused",
    "tests/storage/group",
    "tests/storage/inspect",
    "tests/storage/log",
    "tests/storage/procedures",
    "tests/storage/queue",
    "tests/storage/replica",
    "tests/storage/test_rows.py",
    "tests/storage/test_two_versions.py",
    "tests/testing/test_checker.py",
    "tests/testing/test_log_with_faults.py",
)
NOT_RUN = {"spark", "s3", "prefix"}  # fixtures

SIMULATION = "simulation"  # in the place of a test's name
SIMULATION_SEEDS = 20  # enough to see which lines it reaches


@dataclass
class Recorded:
    """What tests do: seconds and lines, by the id of the test; and the tests' files as they were."""

    sources: str = ""
    tests: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # of each test, by path

    def by_line(self, path: str) -> dict[int, set[str]]:
        """The tests that run each line of a file."""
        found: dict[int, set[str]] = {}
        for test, paths in self.lines.items():
            for line in paths.get(path, ()):
                found.setdefault(line, set()).add(test)
        return found

    def forget(self, file: str) -> None:
        self.tests.pop(file, None)
        for test in [test for test in self.seconds if test.split("::")[0] == file]:
            del self.seconds[test]
            self.lines.pop(test, None)

    def save(self) -> None:
        KEPT.parent.mkdir(exist_ok=True)
        beside = KEPT.with_suffix(".new")
        beside.write_text(json.dumps(vars(self)))
        beside.replace(KEPT)


def recorded(again: bool = False, stale: bool = False) -> Recorded:
    """What is kept; what has changed since is recorded anew.

    Parameters
    ----------
    again
        Forget what is kept.
    stale
        The product's lines count as they were, although its code has changed: right if only other files have.
    """
    sources = digest(sorted(PACKAGE.rglob("*.py")))
    kept = Recorded() if again or not KEPT.exists() else Recorded(**json.loads(KEPT.read_text()))
    if kept.sources != sources and not stale:
        kept = Recorded(sources=sources)
    files = {str(path.relative_to(ROOT)): digest([path]) for path in _test_files()} | {SIMULATION: ""}
    for file in set(kept.tests) | set(files):
        if kept.tests.get(file) != files.get(file):
            kept.forget(file)
    for suite in (*SUITES, SIMULATION):  # each is kept when it is done
        missing = [file for file in files if file.startswith(suite) and file not in kept.tests]
        if missing:
            print(f"recording what {suite} runs", flush=True)
            kept.save()
            subprocess.run([sys.executable, "-m", "tests.mutants.recording", *missing], cwd=ROOT, check=True)
            kept = Recorded(**json.loads(KEPT.read_text()))
            kept.tests |= {file: files[file] for file in missing}
            kept.save()
    return kept


def digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()


def _test_files() -> Iterator[Path]:
    for suite in SUITES:
        place = ROOT / suite
        yield from sorted(place.rglob("test_*.py")) if place.is_dir() else [place]


class _Recorder:
    """A plugin of pytest that tells coverage which test runs."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = {}
        self._began_s = self._others_s = 0.0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not NOT_RUN & set(getattr(item, "fixturenames", ()))]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began_s, self._others_s = time.process_time(), _others_s()
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tests that start processes are left out: there would be no mutant in these."""
        if report.when == "call" and report.passed and _others_s() == self._others_s:
            self.seconds[report.nodeid] = time.process_time() - self._began_s

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._coverage.switch_context("")


def _others_s() -> float:
    """The time of processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _record(files: list[str]) -> None:
    import coverage

    with tempfile.TemporaryDirectory() as folder:
        cover = coverage.Coverage(data_file=f"{folder}/data", include=[f"{PACKAGE}/*"], config_file=False)
        cover.start()
        recorder = _Recorder(cover)
        tests = [file for file in files if file != SIMULATION]
        if tests:
            arguments = [
                "-q",
                "-o",
                "addopts=",
                "-m",
                "not long",
                "-p",
                "no:cacheprovider",
                f"--basetemp={folder}/pytest",
            ]
            pytest.main([*arguments, *tests], [recorder])
        if SIMULATION in files:
            cover.switch_context(SIMULATION)
            recorder.seconds[SIMULATION] = _simulate()
        cover.stop()
        kept = Recorded(**json.loads(KEPT.read_text()))
        kept.seconds |= recorder.seconds
        data = cover.get_data()
        for measured in data.measured_files():
            path = str(Path(measured).relative_to(ROOT))
            for line, tests_ in data.contexts_by_lineno(measured).items():
                for test in tests_:
                    if test in recorder.seconds:
                        kept.lines.setdefault(test, {}).setdefault(path, []).append(line)
        kept.save()


def _simulate() -> float:
    from spark_partq.testing.simulation.__main__ import execute
    from spark_partq.testing.simulation.draws import draw

    began_s = time.process_time()
    for seed in range(SIMULATION_SEEDS):
        execute(draw(seed))
    return time.process_time() - began_s


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.mutants.recording", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    _record(sys.argv[1:])
