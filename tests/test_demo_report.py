"""What the demo reports of a group's history and of its deliveries."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pytest

from spark_partq.core.group.facts import Kind
from spark_partq.demo import check, report
from spark_partq.storage.group.control import COLUMNS

QUEUE = "flights"


def facts_of(*rows: dict[str, Any]) -> pd.DataFrame:
    """A history, `s` being the second of each fact."""
    columns = [name for name, _ in COLUMNS]
    made = [
        {**dict.fromkeys(columns), "seq": seq, "queue": QUEUE, "queue_id": "q", **row} for seq, row in enumerate(rows)
    ]
    frame = pd.DataFrame(made)
    frame["at"] = pd.Timestamp("2013-01-01", tz="UTC") + pd.to_timedelta(frame.pop("s"), unit="s")
    return frame


def joined(s: float, name: str) -> dict[str, Any]:
    return {"s": s, "kind": Kind.MEMBER_JOINED, "instance": name, "incarnation": name * 2, "flows": 1, "by": name}


def left(s: float, name: str, by: str) -> dict[str, Any]:
    return {"s": s, "kind": Kind.MEMBER_LEFT, "instance": name, "incarnation": name * 2, "flows": 1, "by": by}


def about(s: float, kind: Kind, partition: int, epoch: int, name: str, **more: Any) -> dict[str, Any]:
    about = {"instance": name, "incarnation": name * 2, "flow": f"{name}/0", "offset": 0, "delivered": 0}
    return {"s": s, "kind": kind, "partition": partition, "epoch": epoch, "cause": "", "by": name, **about, **more}


# b takes over partition 1 in a handoff, is killed, and a, which gets everything, leaves for c.
STORY = facts_of(
    joined(0, "a"),
    about(0, Kind.GRANTED, 0, 1, "a"),
    about(0, Kind.GRANTED, 1, 1, "a"),
    joined(2, "b"),
    about(4, Kind.HANDOFF_STARTED, 1, 1, "a", to_flow="b/0"),
    about(5, Kind.RELEASED, 1, 1, "a"),
    about(5, Kind.GRANTED, 1, 2, "b"),
    left(10, "b", by="a"),
    about(10, Kind.UNASSIGNED, 1, 3, "b"),
    {"s": 10, "kind": Kind.STATUS_CHANGED, "status": "Holddown", "by": "a", "cause": ""},
    about(12, Kind.GRANTED, 1, 4, "a"),
    {"s": 12, "kind": Kind.STATUS_CHANGED, "status": "Ready", "by": "a", "cause": ""},
    joined(12, "c"),
    left(16, "a", by="a"),
    about(16, Kind.UNASSIGNED, 0, 2, "a"),
    about(16, Kind.UNASSIGNED, 1, 5, "a"),
    about(18, Kind.GRANTED, 0, 3, "c"),
    about(18, Kind.GRANTED, 1, 6, "c"),
    {"s": 20, "kind": Kind.STATUS_CHANGED, "status": "Ready", "by": "a", "cause": ""},
)
NAMED = {"a": "A", "b": "B", "c": "C"}
AT_WORK = pd.DataFrame({"flow": ["a/0", "b/0"], "at": [STORY["at"].max(), STORY["at"].min() + pd.Timedelta(seconds=6)]})


def test_timeline_fits_a_terminal() -> None:
    assert max(map(len, report.timeline(STORY, AT_WORK, NAMED))) <= 80


def test_timeline_shows_owners_handoffs_and_who_came_and_went() -> None:
    assert report.timeline(STORY, AT_WORK, NAMED, width=20) == [
        "a column is 1.0 s",
        "   joined  A B         C",
        "     left                  A",
        "   killed        B",
        "        0  AAAAAAAAAAAAAAAA··CC",
        "        1  AAAAaaBBBB··AAAA··CC",
        "    group            hhh",
    ]
    since = pd.Timestamp("2013-01-01 00:00:10", tz="UTC")
    assert report.timeline(STORY, AT_WORK, NAMED, since, width=10)[-3:] == [
        "        0  AAAAAA··CC",
        "        1  ··AAAA··CC",
        "    group  hhh",
    ]


def test_changes_say_how_long_and_why() -> None:
    found = [(c.partition, c.giver, c.taker, c.length_ms, c.cause) for c in report.changes(STORY, AT_WORK, NAMED)]
    assert found == [
        (1, "A", "B", 1_000, "graceful"),
        (1, "B", "A", 6_000, "takeover after a crash"),
        (0, "A", "C", 2_000, "it had left"),
        (1, "A", "C", 2_000, "it had left"),
    ]


def given(*rows: tuple[int, int, int, int, int]) -> pd.DataFrame:
    """Deliveries: partition, first, end, epoch, batch."""
    columns = ["_partition", "first", "end", "epoch", "batch"]
    return pd.DataFrame(list(rows), columns=columns).assign(at=range(len(rows)))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 0, 10, 1, 0), (1, 10, 20, 2, 0)], (0, 0, 0, 0)),
        ([(1, 0, 10, 1, 0), (1, 12, 20, 2, 0)], (2, 0, 0, 0)),
        ([(1, 0, 10, 1, 0), (1, 12, 20, 2, 0), (1, 10, 12, 4, 0)], (0, 0, 0, 2)),
        ([(1, 0, 10, 2, 0), (1, 10, 15, 2, 1), (1, 10, 20, 4, 0)], (0, 5, 0, 0)),  # the last micro-batch of b
        ([(1, 0, 10, 2, 0), (1, 10, 15, 2, 1), (1, 8, 20, 4, 0)], (0, 7, 2, 0)),  # and of the one before
        ([(1, 0, 15, 1, 0), (1, 10, 20, 4, 0)], (0, 5, 5, 0)),  # a left politely
    ],
)
def test_deliveries_are_counted(rows: list[Any], expected: tuple[int, int, int, int]) -> None:
    found = check.deliveries(given(*rows), {1: 20}, STORY)
    assert dataclasses.astuple(found) == expected
