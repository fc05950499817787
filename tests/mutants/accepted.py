"""Mutants that no test can catch, or need not: `accepted.toml` says of each why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutations import Mutant

FILE = Path(__file__).parent / "accepted.toml"


@dataclass(frozen=True)
class Accepted:
    """Mutants of one function whose changed lines are these; without `becomes`, all of these lines."""

    path: str
    function: str
    was: str
    why: str
    becomes: str | None = None

    def is_of(self, mutant: Mutant) -> bool:
        return (self.path, self.function, self.was) == (mutant.path, mutant.function, mutant.removed) and (
            self.becomes is None or self.becomes == mutant.added
        )


def accepted() -> list[Accepted]:
    return [Accepted(**each) for each in tomllib.loads(FILE.read_text()).get("mutant", [])]


def why(mutant: Mutant, among: Iterable[Accepted]) -> str:
    """The reason, or nothing if the mutant has to be caught."""
    return next((each.why for each in among if each.is_of(mutant)), "")
