"""``python -m tests.mutants``: draw mutants, try each, and tell which of them no test notices."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from typing import Annotated

import typer

from tests.mutants import ROOT
from tests.mutants.accepted import accepted, why
from tests.mutants.campaign import Campaign
from tests.mutants.choice import Choice
from tests.mutants.mutations import UNDER, Mutant, MutatedFile, files
from tests.mutants.recording import SIMULATION, SIMULATION_SEEDS, recorded
from tests.mutants.trial import CAUGHT, HUNG, Verdict

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
    """Mutants of the product's code, and the tests that should fail with them. The exit code is 1 if one survives."""
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
    raise typer.Exit(_told(campaign.verdicts, seed, len(every)))


def _told(verdicts: list[tuple[Mutant, Verdict]], seed: int, of: int) -> int:
    """Print the figures, keep the report, and return the exit code."""
    excuses = accepted()
    rows: dict[str, Counter[str]] = {}
    for mutant, verdict in verdicts:
        accepted_ = verdict.outcome not in (CAUGHT, HUNG) and why(mutant, excuses)
        package = "/".join(mutant.path.split("/")[1:3]).removesuffix(".py")
        for row in (package, "all"):
            rows.setdefault(row, Counter())["accepted" if accepted_ else verdict.outcome] += 1
    rows["all"] = rows.pop("all", Counter())
    print(f"{'':24} {'tried':>6} {'caught':>7} {'hung':>6} {'accepted':>9} {'survived':>9} {'share':>7}")
    for name, counts in rows.items():
        found, total = counts[CAUGHT] + counts[HUNG], counts.total()
        left = total - found - counts["accepted"]
        share = found / max(1, total - counts["accepted"])
        print(f"{name:24} {total:6} {counts[CAUGHT]:7} {counts[HUNG]:6} {counts['accepted']:9} {left:9} {share:7.1%}")
    REPORT.parent.mkdir(exist_ok=True)
    told = [{**vars(mutant), **vars(verdict)} for mutant, verdict in verdicts]
    REPORT.write_text(json.dumps({"seed": seed, "of": of, "mutants": told}, indent=1))
    return int(rows["all"].total() > sum(rows["all"][word] for word in (CAUGHT, HUNG, "accepted")))


if __name__ == "__main__":
    typer.run(main)
