"""What happened to the demo's group, as text: who owned which partition when, and how each came to its next owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from spark_partq import analysis
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.ids import instance_of

Names = Mapping[str, str]  # instance to the letter of its application

COLOURS = {"A": "cyan", "B": "yellow", "C": "magenta"}
NOBODY, UNKNOWN = "·", "?"
_MARGIN = 11
_WIDTH = 80  # of a terminal that nobody has made wider


def names(deliveries: pd.DataFrame) -> dict[str, str]:
    """Which application each instance is, by what it was given."""
    return {instance_of(flow): name for flow, name in zip(deliveries["flow"], deliveries["application"], strict=True)}


# ---- the timeline
def timeline(
    facts: pd.DataFrame,
    deliveries: pd.DataFrame,
    named: Names,
    since: pd.Timestamp | None = None,
    width: int = _WIDTH - _MARGIN,
) -> list[str]:
    """Who owned which partition, a line each and a column for each stretch of time, between lines of what happened.

    A letter is the owner in the middle of the stretch, a small one is about to hand over; `h` is Holddown, `r` is Rebalancing.
    """
    began = facts["at"].min() if since is None else max(since, facts["at"].min())
    axis = _Axis(began, facts["at"].max(), width)
    owned, handed = analysis.ownerships(facts), analysis.handoffs(facts)
    lines = [f"a column is {axis.step.total_seconds():.1f} s"]
    lines += _comings(facts, deliveries, named, axis)
    for partition, mine in owned.groupby("partition"):
        cells = [NOBODY] * width
        for own in mine.itertuples():
            for column in axis.middles(own.began, own.ended):
                cells[column] = named.get(own.instance, UNKNOWN)
        for handoff in handed[handed["partition"] == partition].itertuples():
            for column in axis.touched(handoff.began, handoff.ended):
                cells[column] = named.get(instance_of(handoff.from_flow), UNKNOWN).lower()
        lines.append(f"{partition:>{_MARGIN - 2}}  {''.join(cells)}")
    cells = [" "] * width
    for status in analysis.statuses(facts).itertuples():
        for column in axis.touched(status.began, status.ended) if status.status != Status.READY else []:
            cells[column] = status.status[0].lower()
    lines.append(f"{'group':>{_MARGIN - 2}}  {''.join(cells)}".rstrip())
    return lines


def _comings(facts: pd.DataFrame, deliveries: pd.DataFrame, named: Names, axis: _Axis) -> list[str]:
    gone = _gone(facts, deliveries)
    joined = facts[facts["kind"] == Kind.MEMBER_JOINED]
    killed = gone["how"] != "left"
    rows = {
        "joined": zip(joined["at"], joined["instance"], strict=True),
        "left": zip(gone.loc[~killed, "gone"], gone.loc[~killed, "instance"], strict=True),
        "killed": zip(gone.loc[killed, "last_seen"], gone.loc[killed, "instance"], strict=True),
    }
    lines = []
    for what, events in rows.items():
        cells = [" "] * axis.width
        for at, instance in events:
            free = [i for i in range(axis.column(at), axis.width) if cells[i] == " "]
            if at >= axis.began and free:
                cells[free[0]] = named.get(instance, UNKNOWN)
        lines.append(f"{what:>{_MARGIN - 2}}  {''.join(cells)}".rstrip())
    return lines


class _Axis:
    """Time in columns."""

    def __init__(self, began: pd.Timestamp, ended: pd.Timestamp, width: int) -> None:
        self.began, self.width = began, width
        self.step = max((ended - began) / width, pd.Timedelta(milliseconds=1))

    def column(self, at: pd.Timestamp) -> int:
        return min(self.width - 1, max(0, int((at - self.began) / self.step)))

    def middles(self, began: pd.Timestamp, ended: pd.Timestamp) -> Sequence[int]:
        """Columns whose middle lies in between; `ended` is NaT for what lasts."""
        middles = [self.began + (i + 0.5) * self.step for i in range(self.width)]
        return [i for i, at in enumerate(middles) if began <= at and (pd.isna(ended) or at < ended)]

    def touched(self, began: pd.Timestamp, ended: pd.Timestamp) -> Sequence[int]:
        """Columns that have anything of it, however short it is."""
        if not pd.isna(ended) and ended < self.began:
            return []
        return range(self.column(began), (self.width - 1 if pd.isna(ended) else self.column(ended)) + 1)


def painted(lines: Sequence[str]) -> Text:
    """The lines of a timeline with a colour for each application."""
    text = Text(no_wrap=True, overflow="crop")
    for line in lines:
        text.append(line[:_MARGIN])
        for cell in line[_MARGIN:]:
            text.append(cell, COLOURS.get(cell.upper()) if line[:1] == " " else None)
        text.append("\n")
    return text


# ---- who came after whom
@dataclass(frozen=True)
class Change:
    """A partition that came to another application.

    Attributes
    ----------
    length_ms : float
        Of a handoff, from its start; of a crash, from the last sign of life; else from when the owner left.
    """

    partition: int
    giver: str
    taker: str
    began: pd.Timestamp
    length_ms: float
    cause: str


_OUTCOMES = {"released": "graceful", "forced": "forced", "restarted": "it was started again"}
_GONE = {"left": "it had left", "expired": "takeover after a crash", "restarted": "it was started again"}


def changes(facts: pd.DataFrame, deliveries: pd.DataFrame, named: Names) -> list[Change]:
    """Every partition that came from one application to another, in the order in which that began."""
    found = []
    for row in analysis.handoffs(facts).itertuples():
        if row.outcome in _OUTCOMES:
            about = (instance_of(row.from_flow), instance_of(row.to_flow), row.began, row.ended, _OUTCOMES[row.outcome])
            found.append(_change(row.partition, *about, named))
    gone = {row.incarnation: row for row in _gone(facts, deliveries).itertuples()}
    for _, mine in analysis.ownerships(facts).groupby("partition"):
        rows = list(mine.itertuples())
        for before, after in pairwise(rows):
            left = gone.get(before.incarnation)
            if before.ended_by == Kind.UNASSIGNED and left is not None and before.instance != after.instance:
                since = before.ended if left.how == "left" else left.last_seen
                about = (before.instance, after.instance, since, after.began, _GONE[left.how])
                found.append(_change(before.partition, *about, named))
    return sorted(found, key=lambda change: (change.began, change.partition))


def _gone(facts: pd.DataFrame, deliveries: pd.DataFrame) -> pd.DataFrame:
    """`analysis.costs`; who was given something was still alive then."""
    gone = analysis.costs(facts)
    last = deliveries.groupby(deliveries["flow"].map(instance_of))["at"].max()
    later = gone["instance"].map(last)
    later = later.where(later < gone["gone"])  # the same instance may be back since
    gone["last_seen"] = gone["last_seen"].where(~(later > gone["last_seen"]), later)
    return gone


def _change(partition: int, giver: str, taker: str, began: Any, ended: Any, cause: str, named: Names) -> Change:
    giver, taker = named.get(giver, UNKNOWN), named.get(taker, UNKNOWN)
    return Change(partition, giver, taker, began, (ended - began).total_seconds() * 1000, cause)


def changes_table(found: Sequence[Change]) -> Table:
    table = Table(
        title="partitions that came to another application",
        caption="a handoff from its start, a crash from the last sign of life, else from when the owner left",
    )
    for column, side in (("partition", "right"), ("from → to", "left"), ("took", "right"), ("how", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for change in found:
        seconds = f"{change.length_ms / 1000:.1f} s"
        table.add_row(str(change.partition), f"{change.giver} → {change.taker}", seconds, change.cause)
    return table
