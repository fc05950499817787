"""Pictures of what `spark_partq.analysis` and `describe_queue` find. They need matplotlib: ``pip install 'spark_partq[notebooks]'`` (U3).

Each function takes facts (or a result of `spark_partq.analysis`), draws on `ax` or on a new figure, and returns the axes. If nothing has happened
yet, the picture says this. Colours are those of Okabe and Ito, which colour-blind readers tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from spark_partq import analysis
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.group.facts import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spark_partq import QueueDescription

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip
_MEMBERS = (ORANGE, SKY, GREEN, YELLOW, PURPLE, BLUE, VERMILION)
# Grey, so that no status looks like a member.
_STATUS_COLOURS = {Status.HOLDDOWN.value: "#dddddd", Status.REBALANCING.value: "#a6a6a6"}
_OUTCOME_LOOKS = {
    "released": (GREEN, ""), "forced": (VERMILION, "xx"), "restarted": (ORANGE, "\\\\"), "owner gone": (PURPLE, ".."),
    "cancelled": ("#cccccc", ""), "queue gone": ("#cccccc", "--"), "open": (SKY, ""),
}  # fmt: skip
_LINES = ("-", "--", "-.", ":")
_LINE_COLOURS = (ORANGE, SKY, GREEN, PURPLE, BLUE, VERMILION)  # a yellow line cannot be seen on white
# A bar of no length can still be seen.
_LEAST_WIDTH = 0.002
# With more bars than this, nobody can read the labels below them.
_MOST_LABELS = 30


def ownerships(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Who owned which partition when: a row per partition, a colour and a name per flow. Handoffs are hatched; the background is the group's status."""
    ax = _axes(ax, "Who owned which partition")
    from matplotlib.patches import Patch

    owned, handed = analysis.ownerships(facts), analysis.handoffs(facts)
    if not len(owned):
        return _nothing(ax, "nobody has owned a partition yet")
    first, last = facts["at"].min(), facts["at"].max()
    last += (last - first) / 25  # so that an ownership that goes on can be seen
    places = sorted({*zip(owned["queue"], owned["partition"], strict=True)})
    row = {place: i for i, place in enumerate(places)}
    colours = _colours(sorted(owned["flow"].unique()))
    for status in analysis.statuses(facts).itertuples():
        if status.status in _STATUS_COLOURS:
            ax.axvspan(status.began, _until(status.ended, last), color=_STATUS_COLOURS[status.status], lw=0, zorder=0)
    whole = _bar(first, last, last)[1]
    for own in owned.itertuples():
        left, width = _bar(own.began, own.ended, last)
        y = row[own.queue, own.partition]
        ax.barh(y, width, left=left, height=0.8, color=colours[own.flow], edgecolor="white", linewidth=0.5)
        if width > whole * 0.012 * len(own.flow):  # wide enough for the flow's name
            ax.text(left + width / 2, y, own.flow, ha="center", va="center", fontsize="x-small", clip_on=True)
    for handoff in handed.itertuples():
        left, width = _bar(handoff.began, handoff.ended, last)
        y = row[handoff.queue, handoff.partition]
        ax.barh(y, width, left=left, height=0.8, color="none", edgecolor="black", hatch="////", linewidth=0)
    ax.set_yticks(range(len(places)), [_name(place) for place in places])
    ax.set_ylabel("queue/partition")
    ax.invert_yaxis()
    legend = [Patch(color=colour, label=flow) for flow, colour in colours.items()]
    legend += [Patch(color=colour, label=f"group: {status}") for status, colour in _STATUS_COLOURS.items()]
    legend.append(Patch(facecolor="none", edgecolor="black", hatch="////", label="handoff"))
    _beside(ax, handles=legend)
    _time_axis(ax)
    return ax


def handoffs(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The length of every handoff and how it ended, in order."""
    ax = _axes(ax, "Handoffs")
    found = analysis.handoffs(facts)
    found = found[found["ended"].notna()].reset_index(drop=True)
    if not len(found):
        return _nothing(ax, "no handoff has ended yet")
    looks = [_OUTCOME_LOOKS[outcome] for outcome in found["outcome"]]
    bars = ax.bar(
        found.index,
        found["length_ms"],
        color=[colour for colour, _ in looks],
        hatch=[hatch for _, hatch in looks],
        width=0.8,
        edgecolor="white",
        linewidth=0,
    )
    if len(found) <= _MOST_LABELS:
        ax.bar_label(bars, [f"{ms:,.0f}" for ms in found["length_ms"]], fontsize="x-small", padding=1)
        labels = [f"{h.queue}/{h.partition}\n{h.from_flow}\n→ {h.to_flow or '?'}" for h in found.itertuples()]
        ax.set_xticks(found.index, labels, fontsize="x-small")
    _looks(ax, {outcome: _OUTCOME_LOOKS[outcome] for outcome in found["outcome"].unique()})
    ax.set_xlabel("partition, from whom, to whom")
    ax.set_ylabel("length in ms")
    ax.margins(y=0.12)
    return ax


def moves(facts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How many partitions each rebalance moved, and how many partitions without an owner it granted."""
    ax = _axes(ax, "What each rebalance moved")
    from matplotlib.ticker import MaxNLocator

    found = analysis.moves(facts)
    if not len(found):
        return _nothing(ax, "there was no rebalance yet")
    told = {"moved": "had another owner before", "granted": "had no owner before"}
    below = pd.Series(0, index=found.index)
    for name, colour, hatch in (("moved", VERMILION, "//"), ("granted", SKY, "")):
        ax.bar(found.index, found[name], 0.6, below, label=told[name], color=colour, hatch=hatch, edgecolor="white")
        below = below + found[name]
    if len(found) <= _MOST_LABELS:
        ax.set_xticks(found.index, [_wrapped(text) for text in found["trigger"]], fontsize="x-small")
    else:
        ax.set_xlabel("rebalance, in order")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("partitions")
    _beside(ax)
    return ax


def lag(found: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The lag of each partition and of all together, over time; `found` is from `analysis.lag`."""
    ax = _axes(ax, "Lag: messages that are there and not acknowledged")
    if not len(found):
        return _nothing(ax, "no position is known yet")
    wide = found.assign(place=[_name(p) for p in zip(found["queue"], found["partition"], strict=True)])
    wide = wide.pivot_table(index="at", columns="place", values="lag", aggfunc="last", sort=False).sort_index().ffill()
    few = wide.shape[1] <= 12
    for i, name in enumerate(wide.columns):
        colour, line = _LINE_COLOURS[i % len(_LINE_COLOURS)], _LINES[i % len(_LINES)]
        ax.step(wide.index, wide[name], where="post", lw=1.2, color=colour, ls=line, label=name if few else None)
    ax.step(wide.index, wide.sum(axis=1), where="post", color=BLACK, lw=2, label="all")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("messages")
    _beside(ax)
    _time_axis(ax)
    return ax


def costs(facts: pd.DataFrame, acks: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """What each departure of a process has cost: how long nobody read its partitions, and how many messages were perhaps delivered twice.

    The first part of a bar is the time from the process's last sign of life until the group knew that it was gone. The second part lasts until
    the last of its partitions had an owner again.
    """
    ax = _axes(ax, "What departures cost")
    found = analysis.costs(facts, acks)
    found = found[found["unowned_ms"].notna()].reset_index(drop=True)
    if not len(found):
        return _nothing(ax, "nobody has left a partition to others yet")
    parts = (
        ("unnoticed_ms", "until the group knew", VERMILION, "//"),
        ("unowned_ms", "until its partitions had owners", SKY, ""),
    )
    left = pd.Series(0.0, index=found.index)
    for name, told, colour, hatch in parts:
        bars = ax.barh(
            found.index, found[name], 0.5, left, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=told
        )
        left = left + found[name]
    ax.bar_label(bars, [f" {ms:,.0f} ms" for ms in left], fontsize="small")
    ax.set_yticks(found.index, [_cost(row) for row in found.itertuples()], fontsize="small")
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.set_xlim(0, max(left.max(), 1) * 1.15)  # room for the label behind a bar
    ax.set_xlabel("ms since its last sign of life")
    _beside(ax)
    return ax


def depth(about: QueueDescription | Mapping[str, QueueDescription], ax: Axes | None = None) -> Axes:
    """The depth of each partition: messages that not every group has acknowledged. Several descriptions, by name, are drawn side by side."""
    found = about if isinstance(about, Mapping) else {"": about}
    names = sorted({description.name for description in found.values()})
    ax = _axes(ax, f"Depth of each partition of {', '.join(names)}")
    looks = [(BLUE, ""), (ORANGE, "//"), (GREEN, ".."), (PURPLE, "\\\\")]
    width = 0.8 / len(found)
    for i, (told, description) in enumerate(found.items()):
        colour, hatch = looks[i % len(looks)]
        places = [p.partition + (i - (len(found) - 1) / 2) * width for p in description.partitions]
        depths = [p.depth for p in description.partitions]
        bars = ax.bar(places, depths, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=told)
        if len(places) <= _MOST_LABELS:
            ax.bar_label(bars, fontsize="x-small", padding=1)
    numbers = sorted({p.partition for description in found.values() for p in description.partitions})
    if len(numbers) <= _MOST_LABELS:
        ax.set_xticks(numbers)
    ax.set_xlabel("partition")
    ax.set_ylabel("messages")
    ax.margins(y=0.12)
    if len(found) > 1:
        _beside(ax)
    return ax


def capacity(found: pd.DataFrame, measured: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """How many messages per second each number of flows keeps up with; `found` is from `analysis.capacity`, for one rate.

    `measured` has the columns `flows` and `most_per_s`, from runs that were measured. In the hatched area more flows do not help.
    """
    ax = _axes(ax, "Most messages per second that the flows keep up with")
    if not len(found):
        return _nothing(ax, "no number of flows was asked for")
    found = found.sort_values("flows")
    ax.plot(found["flows"], found["most_per_s"], color=BLUE, marker="o", label="predicted")
    if measured is not None:
        looks: dict[str, Any] = {
            "color": VERMILION,
            "marker": "D",
            "markersize": 9,
            "fillstyle": "none",
            "markeredgewidth": 2,
        }
        ax.plot(measured["flows"], measured["most_per_s"], ls="", label="measured", **looks)
    if found["rate"].max() > 0:
        ax.axhline(found["rate"].max(), color=BLACK, ls="--", lw=1.2, label="rate asked for")
    enough = found.loc[(found["limited_by"] == "flows")[::-1].cummax()[::-1].eq(False), "flows"]
    if len(enough) > 1:
        span = ax.axvspan(enough.min(), enough.max(), zorder=0, fc="none", ec="#a6a6a6", hatch="//", lw=0)
        span.set_label("more flows do not help")
    ax.set_xticks(sorted({*found["flows"]})[:_MOST_LABELS])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("flows")
    ax.set_ylabel("messages per second")
    _beside(ax)
    return ax


def waits(found: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How long a message waits at each rate, a line per number of flows; `found` is from `analysis.capacity`, for several rates."""
    ax = _axes(ax, "How long a message waits, on average")
    found = found[found["keeps_up"]]
    if not len(found):
        return _nothing(ax, "no number of flows keeps up")
    top = 12 * found["wait_s"].min()  # a line goes to infinity at the rate with which its flows no longer keep up
    for i, (flows, rows) in enumerate(found[found["wait_s"] <= top].groupby("flows")):
        colour, line = _LINE_COLOURS[i % len(_LINE_COLOURS)], _LINES[i % len(_LINES)]
        ax.plot(rows["rate"], rows["wait_s"], color=colour, ls=line, label="1 flow" if flows == 1 else f"{flows} flows")
        ax.annotate(str(flows), (rows["rate"].iloc[-1], rows["wait_s"].iloc[-1]), (3, 0), textcoords="offset points")
    ax.set_ylim(0, max(top, _LEAST_WIDTH) * 1.08)
    ax.set_xlabel("messages per second that come in")
    ax.set_ylabel("seconds until it is processed")
    _beside(ax)
    return ax


def drain(found: pd.DataFrame, measured: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """How a depth is worked off: `found` is from `analysis.drain`; `measured` has the columns `seconds` and `depth`."""
    ax = _axes(ax, "Depth while it is worked off")
    if not len(found):
        return _nothing(ax, "no micro-batch was asked for")
    seconds, depths = [found["began_s"].iloc[0], *found["ended_s"]], [found["waiting"].iloc[0], *found["depth"]]
    ax.plot(seconds, depths, color=BLUE, marker="o", label="predicted, after each micro-batch")
    if measured is not None:
        ax.step(
            measured["seconds"], measured["depth"], where="post", color=VERMILION, ls="--", lw=1.6, label="measured"
        )
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("seconds")
    ax.set_ylabel("messages")
    _beside(ax)
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
    ax.set_axisbelow(True)
    return ax


def _nothing(ax: Axes, why: str) -> Axes:
    """An empty picture that says why it is empty."""
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color="#555555")
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _colours(flows: Iterable[str]) -> dict[str, Any]:
    """The colour of each flow: the flows of one instance have one colour in several shades, as far as there are colours."""
    from matplotlib.colors import to_rgb

    found: dict[str, Any] = {}
    by_instance: dict[str, list[str]] = {}
    for flow in flows:
        by_instance.setdefault(flow.rpartition("/")[0], []).append(flow)
    for i, mine in enumerate(by_instance.values()):
        colour = to_rgb(_MEMBERS[i % len(_MEMBERS)])
        for n, flow in enumerate(mine):
            lighter = 0.6 * n / len(mine)
            found[flow] = tuple(c + (1 - c) * lighter for c in colour)
    return found


def _cost(row: Any) -> str:
    partitions = "1 partition" if row.partitions == 1 else f"{row.partitions} partitions"
    again = "1 message again" if row.redelivered == 1 else f"{row.redelivered} messages again"
    return f"{row.instance} {row.how}\n{partitions},\n{again}"


def _until(ended: Any, last: Any) -> Any:
    return last if pd.isna(ended) else ended


def _bar(began: Any, ended: Any, last: Any) -> tuple[float, float]:
    """Left end and width of a bar in days, as matplotlib counts."""
    from matplotlib.dates import date2num

    left, right = date2num(began), date2num(_until(ended, last))  # type: ignore[no-untyped-call]
    return float(left), float(max(right - left, _LEAST_WIDTH / 86_400))


def _time_axis(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    ax.set_xlabel("time (UTC)")


def _beside(ax: Axes, **given: Any) -> None:
    """Put the legend beside the picture, where it hides nothing."""
    ax.legend(**given, fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))


def _looks(ax: Axes, looks: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, (colour, hatch) in looks.items()
    ]
    _beside(ax, handles=patches)


def _name(place: tuple[str, int]) -> str:
    return f"{place[0]}/{place[1]}"


def _wrapped(text: str) -> str:
    from textwrap import fill

    return fill(text, 22)
