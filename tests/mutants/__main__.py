"""``python -m tests.mutants``: draw mutants, try each, and tell which of them no test notices."""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import Annotated

import typer

from tests.mutants import ROOT
from tests.mutants.accepted import accepted
from tests.mutants.campaign import Campaign
from tests.mutants.choice import Choice
from tests.mutants.mutations import UNDER, MutatedFile, files
from tests.mutants.recording import SIMULATION, SIMULATION_SEEDS, recorded
from tests.mutants.report import keep, told

REPORT = ROOT / ".mutants" / "report.json"


def main(
    under: Annotated[
        list[str] | None, typer.Argument(help="Files and folders of the product; usual: core and storage.")
    ] = None,
    sample: Annotated[int, typer.Option(help="How many mutants are drawn; 0: all.", min=0)] = 500,
    seed: Annotated[int | None, typer.Option(help="Of the drawing; drawn and printed if it is not given.")] = None,
    minutes: Annotated[float, typer.Option(help="No mutant is begun later.")] = 120.0,
    most_s: Annotated[float, typer.Option(help="Seconds of tests for each mutant.")] = 30.0,
    seeds: Annotated[int, typer.Option(help="Of the simulation, for a mutant that no test catches.", min=0)] = 60,
    jobs: Annotated[int, typer.Option(help="Processes at once.", min=1, max=2)] = 1,
    line: Annotated[int | None, typer.Option(help="Only the mutants of this line, of one file.")] = None,
    again: Annotated[bool, typer.Option(help="Record anew what each test runs.")] = False,
    stale: Annotated[bool, typer.Option(help="Keep what is recorded, though the code has changed.")] = False,
) -> None:
    """Mutants of the product's code, and the tests that should fail with them. The exit code is 1 if too few are caught."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run of the simulation
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.mutants", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so end what it has started
    kept = recorded(again, stale)
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    sources = {path: MutatedFile(path) for path in files(tuple(under or UNDER))}
    every = [(path, number) for path, source in sources.items() for number in range(source.count)]
    drawn = random.Random(seed).sample(every, min(sample or len(every), len(every)))
    mutants = [sources[path].mutant(number) for path, number in drawn]
    if line is not None:
        mutants = [mutant for mutant in mutants if mutant.line == line]
    print(f"seed {seed}: {len(mutants):,} of {len(every):,} mutants", flush=True)
    campaign = Campaign(
        mutants, sources, minutes, jobs, Choice(kept, most_s), seeds, kept.seconds[SIMULATION] / SIMULATION_SEEDS
    )
    campaign.run({test.split("::")[0] for test in kept.seconds} - {SIMULATION})
    if campaign.stopped:
        raise SystemExit(campaign.stopped)
    keep(REPORT, campaign.verdicts, seed, len(every))
    raise typer.Exit(told(campaign.verdicts, accepted()))


if __name__ == "__main__":
    typer.run(main)
