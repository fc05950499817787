"""The command line of the simulation: ``python -m spark_partq.testing.simulation --seeds 2000``."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer

from spark_partq.storage.files import Files
from spark_partq.testing.simulation.dated import DatedFiles
from spark_partq.testing.simulation.draws import draw
from spark_partq.testing.simulation.known import known
from spark_partq.testing.simulation.process import World
from spark_partq.testing.simulation.run import Outcome, Run
from spark_partq.testing.simulation.setup import Setup
from spark_partq.testing.simulation.shorten import shortened


def main(
    seeds: Annotated[int, typer.Option(help="How many runs, each of another seed.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    seed: Annotated[int | None, typer.Option(help="This one alone, with its trace.", min=0)] = None,
    disk: Annotated[bool, typer.Option(help="On a disk instead of in memory.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes at once.", min=1)] = 1,
    shorten: Annotated[bool, typer.Option(help="Make a run that goes wrong smaller before it is shown.")] = True,
) -> None:
    """Run what producers, consumers and commands do on simulated stores and clocks, and check what must hold.

    A run that goes wrong is printed with its seed and its trace, and the exit code is 1; known findings are counted.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        arguments = [sys.executable, "-m", "spark_partq.testing.simulation", *sys.argv[1:]]
        raise typer.Exit(subprocess.run(arguments, env=environment, check=False).returncode)
    logging.disable(logging.CRITICAL)
    seldom_collected()
    if seed is not None:
        raise typer.Exit(_one(seed, disk, shorten))
    if jobs > 1:
        raise typer.Exit(_several(seeds, first, disk, jobs))
    raise typer.Exit(_many(seeds, first, disk))


def seldom_collected() -> None:
    """A run leaves few cycles, and looking for them took a tenth of it."""
    gc.freeze()
    gc.set_threshold(50_000)


def execute(setup: Setup, disk: bool = False) -> Outcome:
    """One run, in memory or on a disk."""
    if not disk:
        return Run(setup).execute()
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:

        def place(world: World, uri: str) -> Files:
            return DatedFiles(f"{folder}/{uri.removeprefix('sim://')}", world.time_ns)

        return Run(setup, place).execute()
    finally:
        shutil.rmtree(folder)


def _one(seed: int, disk: bool, shorten: bool) -> int:
    setup = draw(seed)
    outcome = execute(setup, disk)
    if outcome.problem and shorten:
        setup, _ = shortened(setup, outcome.problem, lambda smaller: execute(smaller, disk).problem)
        outcome = execute(setup, disk)
    print(f"seed {seed}: {_told(setup)}")
    for at_s, who, what in outcome.trace:
        print(f"{at_s:9.3f}  {who:24}  {what}")
    print(f"{outcome.operations} operations, {outcome.injected} faults")
    print(outcome.problem or "nothing is wrong")
    return int(bool(outcome.problem))


def _many(seeds: int, first: int, disk: bool) -> int:
    began_s, operations, injected = time.perf_counter(), 0, 0
    findings: dict[str, list[int]] = {}  # the seeds that show each
    wrong = 0
    for seed in range(first, first + seeds):
        setup = draw(seed)
        outcome = execute(setup, disk)
        operations += outcome.operations
        injected += outcome.injected
        if outcome.problem:
            finding = known(setup, outcome.problem)
            if finding:
                findings.setdefault(finding, []).append(seed)
            else:
                wrong += 1
                print(f"seed {seed}: {outcome.problem.splitlines()[0]}", flush=True)
    taken_s = time.perf_counter() - began_s
    print(
        json.dumps(
            {
                "runs": seeds,
                "operations": operations,
                "faults": injected,
                "seconds": round(taken_s, 1),
                "wrong": wrong,
                "known": findings,
            }
        )
    )
    return int(wrong > 0)


def _several(seeds: int, first: int, disk: bool, jobs: int) -> int:
    """Shares of the seeds in processes of their own."""
    shares = [(first + seeds * i // jobs, first + seeds * (i + 1) // jobs) for i in range(jobs)]

    def run(share: tuple[int, int]) -> subprocess.CompletedProcess[str]:
        arguments = ["--first", str(share[0]), "--seeds", str(share[1] - share[0])]
        arguments += ["--disk"] if disk else []
        command = [sys.executable, "-m", "spark_partq.testing.simulation", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(run, [share for share in shares if share[1] > share[0]]))
    totals: dict[str, Any] = {}
    for process in done:
        *lines, last = process.stdout.splitlines() or [""]
        print("\n".join(lines), end="\n" if lines else "")
        if process.returncode not in (0, 1) or not last.startswith("{"):
            print(process.stderr, file=sys.stderr)
            return 2
        for name, value in json.loads(last).items():
            if name == "known":
                known_seeds = totals.setdefault(name, {})
                for finding, seeds_ in value.items():
                    known_seeds[finding] = sorted(known_seeds.get(finding, []) + seeds_)
            else:
                totals[name] = max(totals.get(name, 0), value) if name == "seconds" else totals.get(name, 0) + value
    print(json.dumps(totals))
    return int(totals["wrong"] > 0)


def _told(setup: Setup) -> str:
    """What of a setup is not as usual."""
    usual = Setup(0)
    return ", ".join(f"{name}={value}" for name, value in vars(setup).items() if value != getattr(usual, name))


if __name__ == "__main__":
    typer.run(main)
