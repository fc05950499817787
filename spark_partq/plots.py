"""Pictures of what `spark_partq.analysis` finds. They need matplotlib: ``pip install 'spark_partq[notebooks]'`` (U3).

Each function takes facts (or a frame made of them), draws on `ax` or on a new figure, and returns the axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from spark_partq import analysis
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.group.facts import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STATUS_COLOURS = {Status.HOLDDOWN.value: "#f2c14e", Status.REBALANCING.value: "#7d9bc1"}
_OUTCOME_COLOURS = {
    "released": "tab:green", "forced": "tab:red", "restarted": "tab:orange", "owner gone": "tab:brown", "cancelled": "tab:gray",
    "queue gone": "tab:olive", "open": "tab:blue",
}  # fmt: skip
_HOW_COLOURS = {"left": "tab:green", "restarted": "tab:orange", "expired": "tab:red"}
# What lasts no time is still to be seen.
_LEAST_WIDTH = 0.002


def ownerships(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Who owned what when: a row per partition, a colour per flow, handoffs hatched, the group's status behind it."""
    ax = _axes(ax, "who owned what")
    from matplotlib.patches import Patch

    owned, handed = analysis.ownerships(facts), analysis.handoffs(facts)
    last = facts["at"].max() + (facts["at"].max() - facts["at"].min()) / 25  # what goes on shall be seen
    places = sorted({*zip(owned["queue"], owned["partition"], strict=True)})
    row = {place: i for i, place in enumerate(places)}
    colours = _colours(sorted(owned["flow"].unique()))
    for status in analysis.statuses(facts).itertuples():
        if status.status in _STATUS_COLOURS:
            ax.axvspan(status.began, _until(status.ended, last), color=_STATUS_COLOURS[status.status], alpha=0.35, lw=0)
    for own in owned.itertuples():
        left, width = _bar(own.began, own.ended, last)
        y = row[own.queue, own.partition]
        ax.barh(y, width, left=left, height=0.8, color=colours[own.flow], edgecolor="white", linewidth=0.5)
    for handoff in handed.itertuples():
        left, width = _bar(handoff.began, handoff.ended, last)
        y = row[handoff.queue, handoff.partition]
        ax.barh(y, width, left=left, height=0.8, color="none", edgecolor="black", hatch="////", linewidth=0)
    ax.set_yticks(range(len(places)), [_name(place) for place in places])
    ax.invert_yaxis()
    legend = [Patch(color=colour, label=flow) for flow, colour in colours.items()]
    legend += [Patch(color=colour, alpha=0.35, label=status) for status, colour in _STATUS_COLOURS.items()]
    legend.append(Patch(facecolor="none", edgecolor="black", hatch="////", label="handoff"))
    ax.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small")
    _time_axis(ax)
    return ax


def handoffs(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Every handoff's length and how it ended, in order."""
    ax = _axes(ax, "handoffs")
    found = analysis.handoffs(facts)
    found = found[found["ended"].notna()].reset_index(drop=True)
    ax.bar(found.index, found["length_ms"], color=[_OUTCOME_COLOURS[o] for o in found["outcome"]], width=0.8)
    labels = [
        f"{h.queue}/{h.partition}\n{h.from_flow}\n→ {h.to_flow or '?'}" for h in found.itertuples()
    ]  # a few dozen can be read, more cannot
    if len(found) <= 30:
        ax.set_xticks(found.index, labels, fontsize="x-small")
    _legend(ax, {o: _OUTCOME_COLOURS[o] for o in found["outcome"].unique()})
    ax.set_ylabel("ms")
    return ax


def moves(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How many partitions each rebalance moved, and how many it gave out that nobody had."""
    ax = _axes(ax, "moves of each rebalance")
    found = analysis.moves(facts)
    below = pd.Series(0, index=found.index)
    for name in ("moved", "granted"):
        ax.bar(found.index, found[name], bottom=below, label=name)
        below = below + found[name]
    if len(found) <= 30:
        ax.set_xticks(found.index, [_wrapped(text) for text in found["trigger"]], fontsize="x-small")
    ax.set_ylabel("partitions")
    ax.legend(fontsize="small")
    return ax


def lag(found: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The lag of each partition and of all together, over time; `found` is of `analysis.lag`."""
    ax = _axes(ax, "lag")
    if len(found):
        wide = found.assign(place=[_name(p) for p in zip(found["queue"], found["partition"], strict=True)])
        wide = (
            wide.pivot_table(index="at", columns="place", values="lag", aggfunc="last", sort=False).sort_index().ffill()
        )
        for name in wide.columns:
            ax.step(
                wide.index, wide[name], where="post", lw=0.8, alpha=0.7, label=name if wide.shape[1] <= 12 else None
            )
        ax.step(wide.index, wide.sum(axis=1), where="post", color="black", lw=1.5, label="all")
        ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
    ax.set_ylabel("messages")
    _time_axis(ax)
    return ax


def costs(facts: pd.DataFrame, acks: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """What each process that went has cost: how long its partitions had no owner, and what was perhaps delivered twice."""
    ax = _axes(ax, "what departures cost")
    found = analysis.costs(facts, acks)
    found = found[found["unowned_ms"].notna()].reset_index(drop=True)
    bars = ax.barh(found.index, found["unowned_ms"], 0.5, color=[_HOW_COLOURS[how] for how in found["how"]])
    ax.bar_label(
        bars, [f" {row.partitions} partitions, {row.redelivered} messages again" for row in found.itertuples()]
    )
    ax.set_yticks(found.index, [f"{row.instance} {row.how}" for row in found.itertuples()])
    ax.set_ylim(len(found) - 0.2, -0.8)
    ax.margins(x=0.5)
    _legend(ax, {how: _HOW_COLOURS[how] for how in found["how"].unique()})
    ax.set_xlabel("ms without an owner")
    return ax


# ---- helpers
def _axes(ax: Axes | None, title: str) -> Axes:
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise InvalidArgumentError(
                "plots need matplotlib, which is not installed: pip install 'spark_partq[notebooks]'",
                module="matplotlib",
            ) from None
        _, ax = plt.subplots(figsize=(9, 3.5), layout="constrained")
    ax.set_title(title)
    return ax


def _colours(names: Iterable[str]) -> dict[str, Any]:
    from matplotlib import colormaps

    palette = colormaps["tab20"].colors  # type: ignore[attr-defined]
    return {name: palette[i % len(palette)] for i, name in enumerate(names)}


def _until(ended: Any, last: Any) -> Any:
    return last if pd.isna(ended) else ended


def _bar(began: Any, ended: Any, last: Any) -> tuple[float, float]:
    """Left end and width in days, as matplotlib counts."""
    from matplotlib.dates import date2num

    left, right = date2num(began), date2num(_until(ended, last))  # type: ignore[no-untyped-call]
    return float(left), float(max(right - left, _LEAST_WIDTH / 86_400))


def _time_axis(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    ax.set_xlabel("UTC")


def _legend(ax: Axes, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    ax.legend(handles=[Patch(color=colour, label=name) for name, colour in colours.items()], fontsize="small")


def _name(place: tuple[str, int]) -> str:
    return f"{place[0]}/{place[1]}"


def _wrapped(text: str) -> str:
    from textwrap import fill

    return fill(text, 18)
