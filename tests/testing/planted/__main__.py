"""``python -m tests.testing.planted``: show the bugs, or find the seeds that show them anew."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from spark_partq.testing.simulation.__main__ import seldom_collected
from tests.testing.planted.hunt import SEEDS, caught_by_test, hunt, record, recorded, setup_of, with_bug, without
from tests.testing.planted.table import BUGS


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of the bugs; all if none is given.")] = None,
    find: Annotated[
        bool, typer.Option(help="Look for the first seed of each, beginning with the one that is recorded.")
    ] = False,
    subject: Annotated[str, typer.Option(help="Only of this one.")] = "",
    missing: Annotated[bool, typer.Option(help="Only of those that have no seed.")] = False,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    most_s: Annotated[float, typer.Option(help="So long at most for each bug.")] = 600.0,
    serve: Annotated[bool, typer.Option(help="Answer names from standard input, for the tests.")] = False,
) -> None:
    """Bugs that the simulation must catch."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        arguments = [sys.executable, "-m", "tests.testing.planted", *sys.argv[1:]]
        raise typer.Exit(subprocess.run(arguments, env=environment, check=False).returncode)
    logging.disable(logging.CRITICAL)
    seldom_collected()
    if serve:
        _serve()
        return
    chosen = [BUGS[name] for name in names or BUGS]
    if subject:
        chosen = [bug for bug in chosen if bug.subject == subject]
    if missing:
        chosen = [bug for bug in chosen if bug.test is None and bug.name not in recorded()]
    lost = 0
    for bug in chosen:
        began_s, tries, problem, seed = time.perf_counter(), 0, "", -1
        if bug.test is not None:
            problem = caught_by_test(bug)
        elif find:
            for seed, problem in hunt(bug, range(first, SEEDS), most_s):
                tries += 1
                if problem:
                    record({bug.name: seed})
        elif bug.name in recorded():
            seed = recorded()[bug.name]
            problem = with_bug(bug, setup_of(bug, seed))
        lost += not problem
        told = problem.splitlines()[0][:120] if problem else "NOT CAUGHT"
        print(
            f"{bug.subject:12} {bug.name:60} {seed:5} {tries:4} {time.perf_counter() - began_s:6.1f} s  {told}",
            flush=True,
        )
    raise typer.Exit(int(lost > 0))


def _serve() -> None:
    """Of each line, such as ``with NAME`` or ``without NAME``: the problem that the bug's recorded seed shows."""
    for line in sys.stdin:
        which, name = line.split()
        bug, seeds = BUGS[name], recorded()
        problem = ""
        if name in seeds:
            setup = setup_of(bug, seeds[name])
            problem = with_bug(bug, setup) if which == "with" else without(setup)
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    typer.run(main)
