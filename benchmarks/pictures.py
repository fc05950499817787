"""Pictures of what benchmarks found: ``python -m benchmarks.pictures``, after ``benchmarks.peers`` and ``benchmarks.age``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_partq.plots import BLUE, GREEN, ORANGE, PURPLE

RESULTS, IMAGES = Path("benchmarks/results"), Path("docs/images")
_LOOKS = {
    "Kafka, tuned": (ORANGE, "o"),
    "Kafka, defaults": (PURPLE, "^"),
    "Delta": (BLUE, "s"),
    "Parquet": (GREEN, "D"),
}
_FEW = 20  # samples, below which each gets a mark


def main(
    results: Annotated[Path, typer.Option(help="the folder with what the benchmarks wrote")] = RESULTS,
    images: Annotated[Path, typer.Option(help="the folder for the pictures")] = IMAGES,
) -> None:
    """Draw those of which there are results."""
    matplotlib.use("agg")
    for name, draw, files in (("peers", peers, ["peers"]), ("age", age, ["age-removed", "age-kept"])):
        found = [results / f"{file}.json" for file in files]
        if missing := [str(file) for file in found if not file.exists()]:
            print(f"{' and '.join(missing)} not there: run python -m benchmarks.{name}")
            continue
        picture = draw(*(json.loads(file.read_text()) for file in found))
        picture.savefig(images / f"bench-{name}.png", dpi=120)
        print(images / f"bench-{name}.png")


def peers(figures: Sequence[Mapping[str, Any]]) -> Figure:
    """Our time in each peer's, a row for each measurement, in the order of the table."""
    names = [*dict.fromkeys(figure["name"] for figure in figures)]
    picture = Figure(figsize=(8, 0.6 * len(names) + 1.4), layout="constrained")
    ax = picture.subplots()
    ax.axvline(1, color="black", linewidth=1)
    for peer, (colour, marker) in _LOOKS.items():
        mine = [figure for figure in figures if figure["peer"] == peer]
        ax.scatter(
            [figure["value"] for figure in mine],
            [names.index(figure["name"]) for figure in mine],
            color=colour, marker=marker, s=60, label=peer, zorder=2,
        )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(alpha=0.3)
    ax.set_xlabel("our time in the peer's: left of 1 we are faster")
    picture.legend(loc="outside upper center", ncols=len(_LOOKS), frameon=False)
    return picture


def age(removed: Sequence[Mapping[str, float]], kept: Sequence[Mapping[str, float]]) -> Figure:
    """What a micro-batch costs, and how many files there are, by the number of micro-batches that were before."""
    picture = Figure(figsize=(8, 6), layout="constrained")
    times, files = picture.subplots(2, 1, sharex=True)
    for samples, line, told in ((removed, "-", "messages are removed"), (kept, "--", "messages are kept")):
        _line(times, samples, "write_ms", BLUE, line, f"a producer writes; {told}")
        _line(times, samples, "read_ms", ORANGE, line, f"a group reads; {told}")
        _line(files, samples, "log_files", GREEN, line, f"files of logs; {told}")
        _line(files, samples, "live_files", PURPLE, line, f"files with messages; {told}")
    times.set_ylabel("ms, median of a thousand")
    files.set_ylabel("files")
    files.set_yscale("log")
    files.set_xlabel("micro-batches so far")
    for axis in (files.xaxis, files.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for ax in (times, files):
        ax.set_ylim(bottom=None if ax is files else 0)
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.25), frameon=False)
    return picture


def _line(ax: Axes, samples: Sequence[Mapping[str, float]], what: str, colour: str, line: str, label: str) -> None:
    ax.plot(
        [sample["batches"] for sample in samples],
        [sample[what] for sample in samples],
        color=colour,
        linestyle=line,
        marker="o" if len(samples) < _FEW else None,
        label=label,
    )


if __name__ == "__main__":
    typer.run(main)
