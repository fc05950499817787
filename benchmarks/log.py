"""The tables' logs: what a commit, a refresh, a start and a small append cost; also against another checkout of this project.

    python -m benchmarks.log [--against CHECKOUT] [--runs 3]

Of two checkouts the same worker runs in turn, each with the package of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Figure, at_most, known, show
from benchmarks.s3 import object_store

HERE = Path(__file__).parents[1]


def main(
    against: Annotated[Path | None, typer.Option(help="another checkout, measured in turn")] = None,
    runs: Annotated[int, typer.Option(help="runs of each checkout", min=1)] = 3,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/log.json"),
) -> None:
    checkouts = [HERE] if against is None else [HERE, against.resolve()]
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as folder:
        rounds = [
            [{**_run(checkout, "times", folder), **_run(checkout, "appends", folder)} for checkout in checkouts]
            for _ in range(runs)
        ]
        with object_store(Path(folder)) as server:
            arguments = [f"{server.bucket}/store", json.dumps(server.options), str(server.access_log)]
            counts = [_run(checkout, "requests", *arguments) for checkout in checkouts]
    ours = _medians([round_[0] for round_ in rounds])
    others = _medians([round_[1] for round_ in rounds]) if against else None
    raise typer.Exit(0 if show([*_figures(ours, others), *_requests(counts)], out) else 1)


def _figures(ours: dict[str, float], others: dict[str, float] | None) -> Iterator[Figure]:
    peer = "the other checkout's" if others else "-"

    def told(*names: str) -> str:
        return "" if others is None else ", ".join(f"{others[name]:.3g}" for name in names)

    def ratio(values: dict[str, float], above: str, below: str) -> float:
        return values[above] / values[below]

    yield at_most("16 commits of a micro-batch, ms", peer, ours["batch_commits_ms"], 15, told("batch_commits_ms"))
    if others is not None:
        faster = ours["append_1000_ms"] / others["append_1000_ms"]
        yield at_most("time of an append of 1,000 rows over 16 partitions", peer, faster, 0.7, told("append_1000_ms"))
    yield at_most("control decision, p50, ms", peer, ours["decision_young_ms"], 5, told("decision_young_ms"))
    growth = ratio(ours, "decision_old_ms", "decision_young_ms")
    yield at_most("control decision at 100,000 facts", "at 100 facts", growth, 1.3, told("decision_old_ms"))
    growth = ratio(ours, "first_refresh_old_ms", "first_refresh_young_ms")
    yield at_most(
        "first refresh of 100,000 facts",
        "at 100 facts",
        growth,
        1.5,
        told("first_refresh_old_ms", "first_refresh_young_ms"),
    )
    growth = ratio(ours, "commit_at_16000_ms", "commit_at_2000_ms")
    yield at_most(
        "a commit at 16,000 live files", "at 2,000", growth, 1.2, told("commit_at_16000_ms", "commit_at_2000_ms")
    )
    yield at_most("opening a queue of 1,024 partitions, s", peer, ours["open_1024_s"], 2, told("open_1024_s"))
    yield known(
        "a refresh of 1,024 partitions that each have a new file, s",
        peer,
        ours["refresh_1024_new_s"],
        told("refresh_1024_new_s"),
    )
    planned = ours["plan_1024_new_s"]
    yield at_most("planning 1,024 partitions that each have a new file, s", peer, planned, 0.2, told("plan_1024_new_s"))
    yield known(
        "a refresh of 1,024 partitions without news, s", peer, ours["refresh_1024_idle_s"], told("refresh_1024_idle_s")
    )


def _requests(counts: Sequence[dict[str, float]]) -> Iterator[Figure]:
    for name, count in counts[0].items():
        if len(counts) > 1:
            yield at_most(name, "the other checkout's", count, counts[1][name])
        else:
            yield known(name, "-", count)


def _run(checkout: Path, *arguments: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, str(checkout / "benchmarks" / "log_worker.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


if __name__ == "__main__":
    typer.run(main)
