"""The figures of a run, and whether a large enough share of the mutants was caught."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutants.accepted import Accepted, why
from tests.mutants.mutations import Mutant
from tests.mutants.trial import CAUGHT, HUNG, Verdict

# Of those that are not accepted. A run draws others each time, so that now and then some survive; they are read, and caught later.
LEAST_PERCENT = 90


def told(verdicts: Sequence[tuple[Mutant, Verdict]], excuses: Iterable[Accepted]) -> int:
    """Print the figures of each package and of all; the exit code: 0 if enough were caught, 1 if not, or if none was tried."""
    excuses = list(excuses)
    rows: dict[str, Counter[str]] = {}
    for mutant, verdict in verdicts:
        accepted = verdict.outcome not in (CAUGHT, HUNG) and why(mutant, excuses)
        package = "/".join(mutant.path.split("/")[1:3]).removesuffix(".py")
        for row in (package, "all"):
            rows.setdefault(row, Counter())["accepted" if accepted else verdict.outcome] += 1
    rows["all"] = rows.pop("all", Counter())
    print(f"{'':24} {'tried':>6} {'caught':>7} {'hung':>6} {'accepted':>9} {'survived':>9} {'share':>7}")
    for name, counts in rows.items():
        found, asked = _found_and_asked(counts)
        print(
            f"{name:24} {counts.total():6} {counts[CAUGHT]:7} {counts[HUNG]:6} {counts['accepted']:9} {asked - found:9} "
            f"{found / max(1, asked):7.1%}"
        )
    found, asked = _found_and_asked(rows["all"])
    enough = bool(verdicts) and 100 * found >= LEAST_PERCENT * asked
    share = found / asked if asked else 1.0
    print(
        f"{found} of {asked} that are not accepted were caught, {share:.1%}: {'enough' if enough else 'too few'}",
        end="",
    )
    print(f", at least {LEAST_PERCENT} % are to be")
    return int(not enough)


def _found_and_asked(counts: Counter[str]) -> tuple[int, int]:
    """How many were caught, and of how many."""
    return counts[CAUGHT] + counts[HUNG], counts.total() - counts["accepted"]


def keep(file: Path, verdicts: Sequence[tuple[Mutant, Verdict]], seed: int, of: int) -> None:
    """Each verdict, for those who read the survivors."""
    file.parent.mkdir(exist_ok=True)
    mutants = [{**vars(mutant), **vars(verdict)} for mutant, verdict in verdicts]
    file.write_text(json.dumps({"seed": seed, "of": of, "mutants": mutants}, indent=1))
