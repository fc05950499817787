"""A figure, and how a run of them is shown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure; `value` is a ratio, or a quantity in the unit that its name gives."""

    name: str
    peer: str
    value: float
    wanted: str
    reached: bool
    detail: str = ""


def at_least(name: str, peer: str, value: float, bound: float, detail: str = "") -> Figure:
    return Figure(name, peer, round(value, 3), f">= {bound:g}", value >= bound, detail)


def at_most(name: str, peer: str, value: float, bound: float, detail: str = "") -> Figure:
    return Figure(name, peer, round(value, 3), f"<= {bound:g}", value <= bound, detail)


def known(name: str, peer: str, value: float, detail: str = "") -> Figure:
    """A figure without a bound, which explains another one."""
    return Figure(name, peer, round(value, 3), "", True, detail)


def in_turn(what: str, subjects: Mapping[str, Callable[[], float]], runs: int, warm_up: int) -> dict[str, list[float]]:
    """Run the subjects in turn (A B C, A B C, …) and return each one's seconds, without those of the warm-up.

    In turn, because the speed of a shared machine drifts: what one run meets, so does its neighbour.
    """
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    with Progress(transient=True) as progress:
        task = progress.add_task(what, total=(runs + warm_up) * len(subjects))
        for run in range(runs + warm_up):
            for name, subject in subjects.items():
                taken = subject()
                if run >= warm_up:
                    seconds[name].append(taken)
                progress.advance(task)
    return seconds


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(seconds: dict[str, list[float]]) -> str:
    """Each subject's median and range in seconds."""
    return "; ".join(f"{n} {median(s):.3f} s ({min(s):.3f} to {max(s):.3f})" for n, s in seconds.items())


def show(figures: Sequence[Figure], target: Path | None) -> bool:
    """Print the figures as a table, write them as JSON, and say whether all bounds were reached."""
    table = Table("figure", "against", "value", "wanted", "", "medians (range)")
    for f in figures:
        table.add_row(f.name, f.peer, f"{f.value:g}", f.wanted, "yes" if f.reached else "[red]no[/red]", f.detail)
    Console(width=200).print(table)
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n")
    return all(f.reached for f in figures)
