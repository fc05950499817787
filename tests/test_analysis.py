"""What the history tells, on histories that real groups made (U3)."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

import spark_partq as partq
from spark_partq import analysis, plots
from spark_partq.core.group.events import Isolate, Skip
from spark_partq.storage.group import control
from spark_partq.storage.store import Store
from tests.groups import Consumer, Lasting
from tests.helpers import put

T0 = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Clock:
    """The wall clock of everything that is written in the test: one second passes only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.commits = 0

    def __call__(self) -> dt.datetime:
        self.commits += 1
        return T0 + dt.timedelta(seconds=self.seconds, microseconds=self.commits)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(Store, "now", made)
    return made


@pytest.fixture
def story(store: str, clock: Clock) -> str:
    """A group `g` on 4 partitions with 10 messages each; what happens when, in seconds:

    0 a joins with 1 flow and takes all; 1 acknowledges 4 of partition 3, having been given 8; 2 b joins: holddown; 7 it is over:
    two partitions go to b; 8 a releases one (partition 2), 10 the time of the other (partition 3) runs out; 20 b dies, which is
    noticed at 30; 35 the holddown is over, and a has all again.
    """
    partq.create_queue(store, "q", "v long", partitions=4)
    for p in range(4):
        put(store, p, range(10), at=T0)
    a = Consumer(store, "a")
    clock.seconds = 1
    a.ack(3, 4, delivered=8)
    clock.seconds = 2
    b = Consumer(store, "b")
    clock.seconds = 7
    a.end_holddown()
    clock.seconds = 8
    a.release(2)
    clock.seconds = 10
    a.force()
    clock.seconds = 20
    b.ack(2, 5, delivered=9)
    clock.seconds = 30
    b.expire(by="a")
    clock.seconds = 35
    a.end_holddown()
    return store


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(None if pd.isna(v) else v for v in row) for row in frame[list(columns)].itertuples(index=False)]


def seconds(times: pd.Series) -> list[int | None]:
    return [None if pd.isna(t) else int((t - T0).total_seconds()) for t in times]


def test_history(story: str) -> None:
    """U3: facts in order, as they stand in the control table."""
    facts = analysis.history(story, "g")
    assert list(facts.columns) == [name for name, _ in control.COLUMNS]
    assert list(facts["seq"]) == list(range(len(facts)))
    assert facts["kind"].iloc[0] == "GroupCreated" and "Snapshot" not in set(facts["kind"])
    assert str(facts["at"].dtype) == "datetime64[us, UTC]"
    with pytest.raises(partq.GroupNotFoundError, match="its groups: g"):
        analysis.history(story, "other")


def test_statuses(story: str) -> None:
    """R7: each status, from when to when, and what led to it."""
    found = analysis.statuses(analysis.history(story, "g"))
    assert [(s, b, e) for s, b, e in zip(found["status"], seconds(found["began"]), seconds(found["ended"]), strict=True)] == [
        ("Ready", 0, 0), ("Rebalancing", 0, 0), ("Ready", 0, 2), ("Holddown", 2, 7), ("Rebalancing", 7, 10), ("Ready", 10, 30),
        ("Holddown", 30, 35), ("Rebalancing", 35, 35), ("Ready", 35, None),
    ]  # fmt: skip
    assert "b joined" in found["cause"][3] and "expired" in found["cause"][6]


def test_ownerships(story: str) -> None:
    """U3: who owned what when, from where to where, and why it ended."""
    found = analysis.ownerships(analysis.history(story, "g"))
    told = rows(found, "partition", "flow", "epoch", "start", "end", "delivered", "ended_by")
    assert told == [
        (0, "a/0", 1, 0, None, None, None),
        (1, "a/0", 1, 0, None, None, None),
        (2, "a/0", 1, 0, 0, 0, "Released"),
        (3, "a/0", 1, 0, 4, 8, "Granted"),
        (2, "b/0", 2, 0, 5, 9, "Unassigned"),
        (3, "b/0", 2, 4, 4, 8, "Unassigned"),
        (2, "a/0", 4, 5, None, None, None),
        (3, "a/0", 4, 4, None, None, None),
    ]
    assert seconds(found["began"]) == [0, 0, 0, 0, 8, 10, 35, 35]
    assert seconds(found["ended"]) == [None, None, 8, 10, 30, 30, None, None]
    assert set(found["host"]) == {"host-a", "host-b"}
    assert "did not release it" in found["end_cause"][3]


def test_handoffs(story: str) -> None:
    """U3, H1, H4: how long each took, how it ended, and what may come twice for it."""
    found = analysis.handoffs(analysis.history(story, "g"))
    assert rows(found, "partition", "from_flow", "to_flow", "outcome", "redelivered") == [
        (2, "a/0", "b/0", "released", 0),
        (3, "a/0", "b/0", "forced", 4),
    ]
    assert [round(ms / 1000) for ms in found["length_ms"]] == [1, 3]
    assert all("b joined" in cause for cause in found["cause"])


def test_moves(story: str) -> None:
    """U3, R6: no rebalance moves more than balance needs."""
    found = analysis.moves(analysis.history(story, "g"))
    assert rows(found, "joined", "left", "flows", "moved", "granted", "handoffs", "forced", "redelivered") == [
        (1, 0, 1, 0, 4, 0, 0, 0),
        (1, 0, 2, 2, 0, 2, 1, 4),
        (0, 1, 1, 2, 0, 0, 0, 8),
    ]
    assert [round(ms / 1000) for ms in found["length_ms"]] == [0, 8, 5]
    assert [round(ms / 1000) for ms in found["holddown_ms"]] == [0, 5, 5]
    assert "expired" in found["trigger"][2]


def test_costs(story: str) -> None:
    """U3: what a killed consumer cost: from its last sign of life over its expiry until all it had is owned again."""
    facts = analysis.history(story, "g")
    (cost,) = analysis.costs(facts, analysis.acknowledgements(story, "g")).itertuples()
    assert (cost.instance, cost.how, cost.partitions, cost.redelivered) == ("b", "expired", 2, 8)
    assert seconds(pd.Series([cost.last_seen, cost.gone, cost.reowned])) == [20, 30, 35]
    assert [round(ms / 1000) for ms in (cost.unnoticed_ms, cost.unowned_ms)] == [10, 5]
    assert seconds(analysis.costs(facts)["last_seen"]) == [2]  # without acknowledgements: when it joined


def test_costs_of_a_restart_and_of_a_polite_leave(store: str, clock: Clock) -> None:
    """U3, K6: a process that is replaced costs what it had not acknowledged, and no time."""
    partq.create_queue(store, "q", "v long", partitions=2)
    first = Consumer(store, "a")
    clock.seconds = 1
    first.ack(0, 3, delivered=5)
    clock.seconds = 2
    second = Consumer(store, "a")
    clock.seconds = 3
    second.leave()
    found = analysis.costs(analysis.history(store, "g"))
    assert rows(found, "instance", "incarnation", "how", "partitions", "redelivered", "unowned_ms") == [
        ("a", first.incarnation, "restarted", 2, 2, 0.0),
        ("a", second.incarnation, "left", 2, 2, None),
    ]
    assert rows(analysis.moves(analysis.history(store, "g")), "moved", "granted", "flows")[1:] == [(0, 0, 1), (2, 0, 0)]


def test_a_handoff_ends_in_other_ways(store: str, clock: Clock) -> None:
    """U3: its owner goes, it is started again, its receiver goes, or it lasts."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0)
    a, b = Consumer(store, "a"), Consumer(store, "b")
    b.leave()
    Consumer(store, "a")
    c = Consumer(store, "c")
    again = Consumer(store, "a")
    d = Consumer(store, "d")
    assert a.incarnation != again.incarnation and d.group.state.members.keys() == {"a", "c", "d"}
    again.expire()
    c.group.refresh()
    found = analysis.handoffs(analysis.history(store, "g"))
    assert {"cancelled", "restarted"} <= set(found["outcome"])
    assert found[found["outcome"] != "open"]["ended"].notna().all()
    assert found[found["outcome"] == "open"]["length_ms"].isna().all()


def test_handoffs_of_an_eager_rebalance(store: str, clock: Clock) -> None:
    """U3, K4: everything is handed off; who took it is who was granted it in the end."""
    partq.create_queue(store, "q", "v long", partitions=3, rebalance_delay_ms=0)
    a = Consumer(store, "a", assignors=("range",))
    a.ack(0, 2, delivered=5)
    a.ack(2, 1, delivered=4)
    clock.seconds = 1
    Consumer(store, "b", assignors=("range",))
    clock.seconds = 2
    a.ack(0, 5)
    a.release(0, 1)
    assert set(analysis.handoffs(analysis.history(store, "g"))["to_flow"]) == {None}
    clock.seconds = 4
    a.force()
    facts = analysis.history(store, "g")
    found = analysis.handoffs(facts)
    assert rows(found, "partition", "from_flow", "to_flow", "outcome", "redelivered") == [
        (0, "a/0", "a/0", "released", 0),
        (1, "a/0", "a/0", "released", 0),
        (2, "a/0", "b/0", "forced", 3),
    ]
    assert [round(ms / 1000) for ms in found["length_ms"]] == [1, 1, 3]
    last = analysis.moves(facts).iloc[-1]
    assert (last["handoffs"], last["forced"], last["moved"], last["redelivered"]) == (3, 1, 1, 3)
    clock.seconds = 5
    Consumer(store, "c", assignors=("range",))
    Consumer(store, "a", assignors=("range",))
    assert set(analysis.handoffs(analysis.history(store, "g"))["outcome"]) >= {"restarted", "open"}


def test_what_was_delivered_before_is_no_cost_of_a_release(story: str, clock: Clock) -> None:
    """U3: a partition that is released costs nothing, though some of its messages were delivered to somebody long before."""
    clock.seconds = 40
    b = Consumer(story, "b")
    b.end_holddown()
    (a,) = (m for m in b.group.state.members.values() if m.instance == "a")
    b.incarnation = a.incarnation  # as `a` would
    b.release()
    facts = analysis.history(story, "g")
    last = facts[facts["kind"] == "Released"].iloc[-1]
    assert last["delivered"] > last["offset"]
    assert rows(analysis.handoffs(facts), "outcome", "redelivered")[2:] == [("released", 0), ("released", 0)]
    assert analysis.moves(facts)["redelivered"].iloc[-1] == 0


def test_positions_and_lag(story: str) -> None:
    """U3: where the group was at each time that is known, and how many messages were waiting."""
    facts, acks = analysis.history(story, "g"), analysis.acknowledgements(story, "g")
    positions = analysis.positions(facts, acks)
    of_3 = positions[positions["partition"] == 3]
    assert list(dict.fromkeys(zip(seconds(of_3["at"]), of_3["position"], strict=True))) == [
        (0, 0), (1, 4), (10, 4), (30, 4), (35, 4)
    ]  # fmt: skip
    enqueued = analysis.enqueued(story, "g")
    assert rows(enqueued, "partition", "first", "end") == [(p, 0, 10) for p in range(4)]
    lag = analysis.lag(positions, enqueued)
    assert rows(lag[lag["partition"] == 2], "lag")[-1] == (5,)
    assert lag["lag"].max() == 10
    assert lag.groupby("partition")["lag"].last().to_dict() == {0: 10, 1: 10, 2: 5, 3: 6}


def test_the_lag_behind_messages_that_are_left_out(store: str) -> None:
    """U3: a partition whose messages were delivered too often begins another epoch, and goes on behind its dead messages."""
    partq.create_queue(store, "q", "v long", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    a = Lasting(store, "a")
    a.ack(0, 4)

    def known() -> tuple[tuple[int, int], tuple[int, int]]:
        facts, acks = analysis.history(store, "g"), analysis.acknowledgements(store, "g")
        last = analysis.lag(analysis.positions(facts, acks), analysis.enqueued(store, "g")).iloc[-1]
        (partition,) = partq.describe_group(store, "g").partitions
        return (last["position"], last["lag"]), (partition.position, partition.lag)

    def decided(event: Isolate | Skip) -> None:
        a.group.refresh()
        a.group.decide(lambda: [event], "a")

    decided(Isolate(a.partition_id(0), a.incarnation, "delivered too often"))
    a.ack(0, 6)
    assert known() == ((6, 4), (6, 4))
    decided(Skip(a.partition_id(0), a.incarnation, 6, 9, "dead", "dead-messages", frozenset()))
    assert known() == ((9, 1), (9, 1))


def test_the_lag_of_messages_that_were_removed_is_not_known(story: str) -> None:
    """U3, Q8: where maintenance has removed messages, the lag begins with those that are left."""
    store = story
    a = Consumer(store, "a")
    for p in range(4):
        a.ack(p, 10)
    partq.maintain(store)
    put(store, 0, range(3))
    facts, acks = analysis.history(store, "g"), analysis.acknowledgements(store, "g")
    lag = analysis.lag(analysis.positions(facts, acks), analysis.enqueued(store, "g"))
    assert rows(lag[lag["partition"] == 0], "end", "lag")[-1] == (13, 3)
    assert (lag["lag"] <= 3).all()


def test_a_frame_of_spark_tells_the_same(story: str) -> None:
    """U3: whole numbers that went through floating point, as `toPandas` of Spark makes them, change nothing."""
    facts = analysis.history(story, "g")
    as_spark = facts.assign(
        **{n: facts[n].astype(float) for n in ("partition", "offset", "delivered", "epoch", "flows")},
        at=facts["at"].dt.tz_localize(None),
    )
    for function in (analysis.ownerships, analysis.handoffs, analysis.moves, analysis.costs, analysis.positions):
        pd.testing.assert_frame_equal(function(facts), function(as_spark))


def test_nothing_yet(store: str) -> None:
    """U3: a group that nothing has happened in yet gives empty frames with the same columns and types."""
    partq.create_queue(store, "q", "v long", partitions=1)
    Consumer(store, "a")
    facts = analysis.history(store, "g")
    for none in (facts, facts.iloc[:0]):
        assert list(analysis.handoffs(none).columns) == list(analysis.HANDOFFS)
        assert len(analysis.handoffs(none)) == len(analysis.costs(none)) == 0
    empty = analysis.lag(analysis.positions(facts.iloc[:0]), analysis.enqueued(store, "g"))
    assert list(empty.columns) == ["at", "queue", "partition", "end", "position", "lag"]


# ---- plots
@pytest.fixture
def drawing() -> Iterator[None]:
    mpl.use("agg")
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.mark.usefixtures("drawing")
def test_plots(story: str) -> None:
    """U3: each picture shows everything that the analysis found."""
    facts, acks = analysis.history(story, "g"), analysis.acknowledgements(story, "g")
    gantt = plots.ownerships(facts)
    assert [label.get_text() for label in gantt.get_yticklabels()] == ["q/0", "q/1", "q/2", "q/3"]
    assert [text.get_text() for text in gantt.get_legend().get_texts()][:2] == ["a/0", "b/0"]
    hatched = [bar for bar in gantt.patches if bar.get_hatch()]
    assert len(hatched) == 2
    assert [round(bar.get_height() / 1000) for bar in plots.handoffs(facts).patches] == [1, 3]
    assert len(plots.moves(facts).containers) == 2
    unnoticed, unowned = plots.costs(facts, acks).patches
    assert [round(part.get_width() / 1000) for part in (unnoticed, unowned)] == [10, 5]
    assert [round(part.get_x() / 1000) for part in (unnoticed, unowned)] == [0, 10]
    lag = analysis.lag(analysis.positions(facts, acks), analysis.enqueued(story, "g"))
    assert [line.get_label() for line in plots.lag(lag).lines] == ["q/0", "q/1", "q/2", "q/3", "all"]
    depth = plots.depth(partq.describe_queue(story, "q"))
    assert [bar.get_height() for bar in depth.patches] == [10, 10, 5, 6]


@pytest.mark.usefixtures("drawing")
def test_who_sees_no_colours_reads_the_plots(story: str) -> None:
    """U3: each flow's name stands on its bars, lines and parts of bars differ in more than colour, and each axis has its unit."""
    facts, acks = analysis.history(story, "g"), analysis.acknowledgements(story, "g")
    gantt = plots.ownerships(facts)
    assert {text.get_text() for text in gantt.texts} == {"a/0", "b/0"}
    lag = plots.lag(analysis.lag(analysis.positions(facts, acks), analysis.enqueued(story, "g")))
    assert len({line.get_linestyle() for line in lag.lines}) == 4
    moves, costs, handoffs = plots.moves(facts), plots.costs(facts, acks), plots.handoffs(facts)
    for ax in (moves, costs, handoffs):
        assert len({(patch.get_facecolor(), patch.get_hatch()) for patch in ax.patches}) == 2
        assert len({patch.get_hatch() for patch in ax.patches}) == 2
    labels = [(gantt.get_xlabel(), gantt.get_ylabel()), (lag.get_xlabel(), lag.get_ylabel())]
    assert labels == [("time (UTC)", "queue/partition"), ("time (UTC)", "messages")]
    assert (moves.get_ylabel(), handoffs.get_ylabel()) == ("partitions", "length in ms")
    assert costs.get_xlabel() == "ms since its last sign of life"


@pytest.mark.usefixtures("drawing")
def test_plots_of_nothing(store: str) -> None:
    """U3: a history in which nothing of that kind has happened gives an empty picture that says so."""
    partq.create_queue(store, "q", "v long", partitions=1)
    Consumer(store, "a")
    facts = analysis.history(store, "g")
    told = {
        plots.ownerships: "nobody has owned a partition yet", plots.handoffs: "no handoff has ended yet",
        plots.moves: "there was no rebalance yet", plots.costs: "nobody has left a partition to others yet",
    }  # fmt: skip
    for plot, why in told.items():
        assert [text.get_text() for text in plot(facts.iloc[:0]).texts] == [why]
    for plot in (plots.handoffs, plots.costs):
        assert [text.get_text() for text in plot(facts).texts] == [told[plot]]
    assert len(plots.ownerships(facts).patches) > 0 and len(plots.moves(facts).patches) > 0
    of_nothing = analysis.lag(analysis.positions(facts.iloc[:0]), analysis.enqueued(store, "g"))
    assert [text.get_text() for text in plots.lag(of_nothing).texts] == ["no position is known yet"]


def test_plots_without_matplotlib(story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: what is missing is named with the command that brings it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(partq.PartqError, match=r"pip install 'spark_partq\[notebooks\]'"):
        plots.ownerships(analysis.history(story, "g"))
