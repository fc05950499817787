"""Many inputs: ``python -m tests.fuzz --inputs 1000000``. Prints what is wrong, with its seed; the exit code is 1 then."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.run import problems
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=10_000, help="of each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--target", choices=TARGETS, help="default: all")
    given = parser.parse_args()
    wrong = 0
    for name in [given.target] if given.target else TARGETS:
        found = list(problems(name, range(given.first, given.first + given.inputs)))
        wrong += len(found)
        print(f"{name}: {given.inputs:,} inputs, {len(found):,} wrong", flush=True)
        for line in found[:10]:
            print(f"  {line}", flush=True)
    return 1 if wrong else 0


sys.exit(main())
