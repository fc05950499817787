"""Many mutants, tried in the place of the tests that pytest has collected."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from tests.mutants.accepted import accepted, why
from tests.mutants.choice import Choice
from tests.mutants.mutations import Mutant, MutatedFile
from tests.mutants.trial import CAUGHT, HUNG, BrokenTrial, Trials, Verdict

CONTROLS = 5


@dataclass
class Campaign:
    """A plugin of pytest: when it has collected the tests, mutants are tried in their place.

    `verdicts` has what was tried, and `stopped` why nothing more was, if something is wrong with the trials.
    """

    mutants: list[Mutant]
    sources: dict[str, MutatedFile]
    minutes: float
    jobs: int
    choice: Choice
    seeds: int
    seed_s: float
    verdicts: list[tuple[Mutant, Verdict]] = field(default_factory=list)
    stopped: str = "the tests could not be collected"

    def run(self, tests: Iterable[str]) -> None:
        """With the tests of these files."""
        pytest.main(["-q", "-s", "-o", "addopts=", "-p", "no:cacheprovider", *sorted(tests)], [self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        trials = Trials(session, self.choice, self.seeds, self.seed_s)
        trials.prepare()
        try:
            self._control(trials)
            self._try_all(trials)
            self.stopped = ""
        except BrokenTrial as error:
            self.stopped = str(error)
        return True

    def _control(self, trials: Trials) -> None:
        """Without any change the same tests pass, or no verdict is worth anything."""
        some = self.mutants[:: max(1, len(self.mutants) // CONTROLS)]
        for mutant, verdict in trials.run(((mutant, self.sources[mutant.path].code) for mutant in some), self.jobs):
            if verdict.outcome in (CAUGHT, HUNG):
                raise BrokenTrial(f"{mutant.name}: its tests fail without it: {verdict.by or verdict.outcome}")

    def _try_all(self, trials: Trials) -> None:
        excuses, until_s = accepted(), time.monotonic() + 60 * self.minutes
        begun = ((m, self.sources[m.path].mutated(m.number)) for m in self.mutants if time.monotonic() < until_s)
        for mutant, verdict in trials.run(begun, self.jobs):
            self.verdicts.append((mutant, verdict))
            if verdict.outcome not in (CAUGHT, HUNG):
                excuse = ", accepted" if why(mutant, excuses) else ""
                print(f"{len(self.verdicts)} {verdict.outcome}{excuse}: {mutant.name}")
                print(f"    - {mutant.removed}\n    + {mutant.added}", flush=True)
        if len(self.verdicts) < len(self.mutants):
            print(f"{len(self.mutants) - len(self.verdicts)} were not begun within {self.minutes:g} minutes")
