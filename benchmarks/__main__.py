"""``python -m benchmarks``: measure, print a table, write JSON."""

from __future__ import annotations

import enum
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import assignors, delta_sink, memory, rebalance, scaling, sink, stream
from benchmarks.data import session
from benchmarks.report import show


class Suite(enum.StrEnum):
    sink = "sink"
    stream = "stream"
    delta_sink = "delta-sink"
    memory = "memory"
    rebalance = "rebalance"
    assignors = "assignors"
    scaling = "scaling"


SUITES = {
    Suite.sink: sink.run,
    Suite.stream: stream.run,
    Suite.delta_sink: delta_sink.run,
    Suite.memory: memory.run,
    Suite.rebalance: rebalance.run,
    Suite.assignors: assignors.run,
    Suite.scaling: scaling.run,
}


def main(
    suites: Annotated[list[Suite] | None, typer.Argument(help="which to run; all by default")] = None,
    rows: Annotated[int, typer.Option(help="rows of the large cases")] = 1_000_000,
    runs: Annotated[int, typer.Option(help="counted runs of each subject", min=5)] = 5,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/latest.json"),
) -> None:
    """Measure against named peers in this run; exit code 1 if a bound is not reached."""
    spark = session()
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as folder:
        figures = [f for suite in suites or list(Suite) for f in SUITES[suite](spark, Path(folder), rows, runs)]
    spark.stop()
    raise typer.Exit(0 if show(figures, out) else 1)


if __name__ == "__main__":
    typer.run(main)
