"""The tests for a mutant: those that run its lines, so that what catches it comes early."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.mutants.mutations import Mutant
from tests.mutants.recording import SIMULATION, Recorded


class Choice:
    """Tests for mutants.

    Parameters
    ----------
    most_s
        So many seconds of tests for each mutant at most, as long as they took when they were recorded.
    """

    def __init__(self, recorded: Recorded, most_s: float) -> None:
        self._recorded, self._most_s = recorded, most_s
        self._by_line = cache(recorded.by_line)

    def tests(self, mutant: Mutant) -> tuple[list[str], float, bool]:
        """Ids of tests, how many seconds they take, and whether the simulation reaches the mutant."""
        reached = self._reached(mutant)
        all_s = {test: self._recorded.seconds[test] for test in reached - {SIMULATION}}
        own = {test: seconds for test, seconds in all_s.items() if is_about(test, mutant.path)}
        chosen, seconds = [], 0.0
        for test in [*in_order(own), *in_order({test: all_s[test] for test in all_s.keys() - own.keys()})]:
            seconds += self._recorded.seconds[test]
            if chosen and seconds > self._most_s:
                break
            chosen.append(test)
        return chosen, seconds, SIMULATION in reached

    def seconds(self, test: str) -> float:
        """How long it took when it was recorded."""
        return self._recorded.seconds[test]

    def _reached(self, mutant: Mutant) -> set[str]:
        """Those that run its lines, or at least its function."""
        by_line = self._by_line(mutant.path)
        lines = {*range(mutant.line, mutant.last_line + 1), mutant.first_line}
        for wanted in (lines, range(mutant.body[0], mutant.body[1] + 1)):
            reached: set[str] = set().union(*(by_line.get(line, set()) for line in wanted))
            if reached:
                return reached
        return set()


def is_about(test: str, path: str) -> bool:
    """Whether a test's file has the name of a file of the product: it knows best what that does."""
    return Path(test.split("::")[0]).name == f"test_{Path(path).name}"


def in_order(seconds: dict[str, float]) -> list[str]:
    """The fastest of each test function first, then the second of each."""
    seen: dict[str, int] = {}
    ranks = {}
    for test in sorted(seconds, key=lambda test: (seconds[test], test)):
        function = test.split("[")[0]
        ranks[test] = seen.get(function, 0)
        seen[function] = ranks[test] + 1
    return sorted(seconds, key=lambda test: (ranks[test], seconds[test], test))
