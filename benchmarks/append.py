"""What an append with an identity costs, against another checkout of this project, in turn.

python -m benchmarks.append --against CHECKOUT [--runs 3]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).parents[1]


def main(
    against: Annotated[Path, typer.Option(help="another checkout, measured in turn")],
    runs: Annotated[int, typer.Option(help="pairs of runs", min=1)] = 3,
) -> None:
    """Print the median of each checkout in milliseconds, by the number of rows, and how many times the other's time that is."""
    checkouts = [against.resolve(), HERE]
    rounds = [[measured(checkout) for checkout in checkouts] for _ in range(runs)]
    for rows in rounds[0][0]:
        before, now = ([pair[i][rows] for pair in rounds] for i in range(2))
        ratios = [b / a for a, b in zip(before, now, strict=True)]
        told = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(
            f"{int(rows):>9,} rows: {statistics.median(before):8.1f} ms before, {statistics.median(now):8.1f} ms now, {told}"
        )


def measured(checkout: Path) -> dict[str, float]:
    """The medians of one run, whose workers all import that checkout's package."""
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, str(HERE / "benchmarks" / "append_worker.py"), f"{folder}/store"]
        done = subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    trees = found.pop("trees")
    if trees != [str(checkout / "spark_partq" / "__init__.py")]:
        raise SystemExit(f"workers of {checkout} import {trees}")
    return found


if __name__ == "__main__":
    typer.run(main)
