"""The model of capacity: what a micro-batch costs, who is busiest, and what follows for rates, waits and backlogs."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq import analysis, plots
from spark_partq.core.payload.keys import partition_of

COST = analysis.BatchCost(0.5, 0.001)
EVEN = analysis.Shares((0.25,) * 4)

costs = st.builds(analysis.BatchCost, st.floats(0.01, 5), st.floats(1e-5, 0.1))
counts = st.lists(st.integers(0, 1000), min_size=1, max_size=24).filter(any)


@given(cost=costs, sizes=st.lists(st.integers(0, 10_000), min_size=2, max_size=9, unique=True))
def test_the_fit_finds_what_made_the_measurements(cost: analysis.BatchCost, sizes: list[int]) -> None:
    found = analysis.batch_cost(pd.DataFrame({"seconds": [cost.seconds(n) for n in sizes], "messages": sizes}))
    assert found.message_s == pytest.approx(cost.message_s, rel=1e-3)
    assert found.fixed_s == pytest.approx(cost.fixed_s, rel=1e-3)


def test_the_fit_is_the_least_squares_without_negative_parts() -> None:
    noisy = pd.DataFrame({"seconds": [1.0, 1.2, 2.1, 1.9], "messages": [100, 100, 1000, 1000]})
    found = analysis.batch_cost(noisy)
    assert (found.fixed_s, found.message_s) == pytest.approx((1.0, 0.001))
    through_zero = analysis.batch_cost(pd.DataFrame({"seconds": [0.5, 2.0], "messages": [1000, 2000]}))
    assert through_zero.fixed_s == 0
    assert through_zero.message_s == pytest.approx((0.5 * 1000 + 2 * 2000) / (1000**2 + 2000**2))


@pytest.mark.parametrize(
    ("batches", "why"),
    [
        ({"seconds": [1.0, 1.1], "messages": [10, 10]}, "one size"),
        ({"seconds": [], "messages": []}, "one size"),
        ({"seconds": [2.0, 1.0], "messages": [10, 100]}, "did not last longer"),
        ({"seconds": [1.0, 2.0]}, "lack the column messages"),
        ({"seconds": [1.0, math.nan], "messages": [10, 100]}, "seconds=.*a number from 0 on"),
        ({"seconds": [1.0, 2.0], "messages": [10, -100]}, "messages=.*a number from 0 on"),
    ],
)
def test_measurements_that_tell_nothing(batches: dict[str, Any], why: str) -> None:
    """Bad input: refused with the reason, instead of a cost that means nothing."""
    with pytest.raises(partq.InvalidArgumentError, match=why):
        analysis.batch_cost(pd.DataFrame(batches))


@pytest.mark.parametrize("key_hash", ["xxhash64", "murmur2"])
def test_keys_have_the_shares_of_their_partitions(key_hash: Any) -> None:
    weights = {"ada": 6.0, "joe": 3.0, "kim": 1.0}
    found = analysis.shares(weights, 4, key_hash=key_hash)
    expected = [0.0] * 4
    for key, weight in weights.items():
        number = partition_of([key], ["string"], 4, key_hash)
        assert number is not None
        expected[number] += weight / 10
    assert found.partitions == pytest.approx(expected)
    assert found.heaviest_key == pytest.approx(0.6)


def test_keys_of_several_columns_and_messages_without_a_key() -> None:
    whole = analysis.shares({("ada", 7): 1}, 8, ["string", "long"])
    assert whole.partitions[partition_of(["ada", 7], ["string", "long"], 8) or 0] == 1
    spread = analysis.shares({None: 4}, 4)
    assert (spread.partitions, spread.heaviest_key) == ((0.25,) * 4, 0)
    of_series = analysis.shares(pd.Series({"ada": 3, "joe": 1}), 4)
    assert of_series == analysis.shares({"ada": 3, "joe": 1}, 4)


@given(counts=counts, flows=st.integers(1, 30), assignor=st.sampled_from(["balanced", "range", "weighted"]))
def test_the_flows_share_all_messages(counts: list[int], flows: int, assignor: str) -> None:
    shares = analysis.observed_shares(counts)
    by_flow = shares.by_flow(flows, assignor)
    assert len(by_flow) == flows
    assert sum(by_flow) == pytest.approx(1)
    assert max(by_flow) >= max(*shares.partitions, 1 / flows) * (1 - 1e-9)
    found = analysis.capacity(COST, shares, flows=flows, rate=1, assignor=assignor).iloc[0]
    assert found["busiest_share"] == pytest.approx(max(by_flow))
    assert found["standbys"] == max(0, flows - len(counts))


@given(partitions=st.integers(1, 40))
def test_more_flows_take_no_more_of_equal_partitions(partitions: int) -> None:
    found = analysis.capacity(COST, analysis.Shares((1 / partitions,) * partitions), flows=range(1, 45), rate=1)
    assert (found["busiest_share"].diff().dropna() <= 1e-9).all()
    assert found["busiest_share"].tolist() == pytest.approx(
        [math.ceil(partitions / n) / partitions for n in range(1, 45)]
    )


def test_more_flows_may_make_the_busiest_busier() -> None:
    """`balanced` deals partitions out in turn: with another number of flows, two heavy ones may meet."""
    heavy = analysis.observed_shares([10, 1, 10, 1, 1, 1])
    found = analysis.capacity(COST, heavy, flows=[2, 4, 6], rate=1)
    assert (found["busiest_share"] * 24).tolist() == pytest.approx([21, 11, 10])
    light = analysis.observed_shares([10, 1, 1, 10, 1, 1])
    assert [max(light.by_flow(n)) * 24 for n in (2, 3)] == pytest.approx([12, 20])
    assert max(light.by_flow(3, "weighted")) * 24 < 20


def test_figures() -> None:
    """By hand: two of four equal partitions each, 500 messages a second, so that a flow is busy for a quarter of the time."""
    found = analysis.capacity(COST, EVEN, flows=2, rate=500, depth=3000).iloc[0]
    assert found["most_per_s"] == pytest.approx(2000)
    assert found["utilisation"] == pytest.approx(0.25)
    assert found["batch_s"] == pytest.approx(0.5 / 0.75)
    assert found["wait_s"] == pytest.approx(1.0)
    assert found["drain_s"] == pytest.approx(3000 / 1500 + 0.5 / 0.75)
    limited = analysis.capacity(COST, EVEN, flows=2, rate=500, depth=3000, max_rows=1000).iloc[0]
    assert limited["most_per_s"] == pytest.approx(1000 / (0.5 + 0.5))
    assert (limited["utilisation"], limited["batch_s"]) == pytest.approx((0.5, 0.5 / 0.75))
    assert tuple(analysis.capacity(COST, EVEN, flows=[1, 2], rate=[1, 2, 3]).columns) == analysis.CAPACITY
    assert len(analysis.capacity(COST, EVEN, flows=[1, 2], rate=[1, 2, 3])) == 6


def test_who_does_not_keep_up_never_ends() -> None:
    found = analysis.capacity(COST, EVEN, flows=[1, 2], rate=1000, depth=10)
    assert found["keeps_up"].tolist() == [False, True]
    assert found.loc[0, ["batch_s", "wait_s", "drain_s"]].tolist() == [math.inf] * 3
    with pytest.raises(partq.InvalidArgumentError, match="with flows=1 the most is 1000"):
        analysis.drain(COST, EVEN, flows=1, rate=1000, depth=10)


def test_what_limits() -> None:
    def limits(shares: analysis.Shares, flows: list[int], rate: float = 1) -> list[str]:
        return analysis.capacity(COST, shares, flows=flows, rate=rate)["limited_by"].tolist()

    assert limits(EVEN, [1, 2, 3, 4, 5]) == ["flows", "flows", "flows", "partitions", "partitions"]
    # One heavy partition: flows cannot divide it. Many keys may lie in it, or one.
    assert limits(analysis.Shares((0.7, 0.1, 0.1, 0.1)), [1, 2, 4]) == ["flows", "flows", "partitions"]
    assert limits(analysis.Shares((0.7, 0.1, 0.1, 0.1), 0.6), [1, 2, 4]) == ["flows", "flows", "key"]
    # The key alone is 1,200 messages a second, of which a flow takes 1,000.
    assert limits(analysis.Shares((0.7, 0.1, 0.1, 0.1), 0.6), [1, 4], rate=2000) == ["key", "key"]


@given(
    cost=costs,
    counts=counts,
    flows=st.integers(1, 12),
    busy=st.floats(0, 0.9),
    max_rows=st.none() | st.integers(500, 5000),
)
def test_played_micro_batches_settle_at_the_steady_state(
    cost: analysis.BatchCost, counts: list[int], flows: int, busy: float, max_rows: int | None
) -> None:
    """Micro-batches, played one after the other, become as long as the formula says, from empty and from a backlog alike."""
    shares = analysis.observed_shares(counts)
    about = {"flows": flows, "max_rows": max_rows}
    rate = busy * analysis.capacity(cost, shares, rate=0, **about).iloc[0]["most_per_s"]
    steady = analysis.capacity(cost, shares, rate=rate, **about).iloc[0]
    length = cost.fixed_s
    for _ in range(400):
        length = cost.seconds(steady["busiest_share"] * rate * length)
    assert length == pytest.approx(steady["batch_s"], rel=1e-6)
    assert max_rows is None or rate * length <= max_rows * (1 + 1e-6)


@given(
    counts=st.lists(st.integers(20, 1000), min_size=1, max_size=24) | st.integers(1, 24).map(lambda n: [1] * n),
    flows=st.integers(1, 12),
    busy=st.floats(0, 0.8),
    max_rows=st.none() | st.integers(1000, 5000),
    depth=st.integers(20_000, 200_000),
)
def test_a_backlog_that_is_played_ends_when_the_formula_says(
    counts: list[int], flows: int, busy: float, max_rows: int | None, depth: int
) -> None:
    shares = analysis.observed_shares(counts)
    about: dict[str, Any] = {"flows": flows, "max_rows": max_rows}
    rate = busy * analysis.capacity(COST, shares, rate=0, **about).iloc[0]["most_per_s"]
    found = analysis.capacity(COST, shares, rate=rate, depth=depth, **about).iloc[0]
    played = analysis.drain(COST, shares, rate=rate, depth=depth, **about)
    ended = played["ended_s"].iloc[-1]
    # The last micro-batches, of few messages, pay what every micro-batch does.
    few = (played["messages"] < 0.5 * (max_rows or depth)).sum() * found["batch_s"] * 2
    assert ended >= 0.6 * found["drain_s"] - 2 * found["batch_s"]
    if max_rows is None or len(set(counts)) == 1:
        assert ended <= 1.4 * found["drain_s"] + few + 2 * found["batch_s"]
    # No message is lost or made up.
    came = played["messages"].sum() + played["depth"].iloc[-1] - depth
    assert came == pytest.approx(rate * ended, abs=len(counts) + 1)
    assert (played["waiting"].to_numpy()[1:] == played["depth"].to_numpy()[:-1]).all()


def test_a_backlog_of_uneven_partitions_takes_longer() -> None:
    """Flow 0 has two light partitions and two thirds of each full micro-batch; when they are empty, flow 1 has all of it."""
    uneven = analysis.observed_shares([1, 2, 1])
    played = analysis.drain(COST, uneven, flows=2, rate=0, depth=12_000, max_rows=3000)
    assert played["busiest"].tolist() == [2000, 2000, 2000, 3000]
    about = analysis.capacity(COST, uneven, flows=2, rate=0, depth=12_000, max_rows=3000).iloc[0]
    assert about["drain_s"] == pytest.approx(12_000 / 1500 + 0.5)  # as if each flow had the half of each micro-batch
    assert played["ended_s"].iloc[-1] == pytest.approx(4 * 0.5 + 9.0)


def test_a_backlog_of_even_partitions_exactly() -> None:
    """By hand: three micro-batches of 1,000 messages, of which each of two flows has the half."""
    played = analysis.drain(COST, EVEN, flows=2, rate=0, depth=3000, max_rows=1000)
    assert tuple(played.columns) == analysis.DRAIN
    assert played["ended_s"].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert played["depth"].tolist() == [2000, 1000, 0]
    assert played["busiest"].tolist() == [500] * 3


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: analysis.BatchCost(-1, 1), "fixed_s=-1: it must be a number from 0 on"),
        (lambda: analysis.BatchCost(1, 0), "message_s=0: it must be a positive number"),
        (lambda: analysis.Shares((0.5, 0.4)), "0.9; observed_shares computes shares from counts"),
        (lambda: analysis.observed_shares([0, 0]), "counts without messages give no shares"),
        (lambda: analysis.observed_shares([1, -1]), "counts=-1"),
        (lambda: analysis.shares({"a": 1}, 0), "partitions=0: it must be a whole number of at least 1"),
        (lambda: analysis.shares({"a": math.inf}, 2), "weights=inf"),
        (lambda: analysis.capacity(COST, EVEN, flows=0, rate=1), "flows=0: it must be a whole number of at least 1"),
        (lambda: analysis.capacity(COST, EVEN, flows=1.5, rate=1), "flows=1.5"),  # type: ignore[arg-type]
        (lambda: analysis.capacity(COST, EVEN, flows=1, rate=-1), "rate=-1"),
        (lambda: analysis.capacity(COST, EVEN, flows=1, rate=1, depth=-1), "depth=-1"),
        (lambda: analysis.capacity(COST, EVEN, flows=1, rate=1, max_rows=0), "max_rows=0"),
        (lambda: analysis.drain(analysis.BatchCost(0, 0.001), EVEN, flows=1, rate=0, depth=2 * 10**5, max_rows=1),
         "not worked off after 100,000 micro-batches"),
    ],
)  # fmt: skip
def test_refused(call: Any, why: str) -> None:
    """Bad input: named in one sentence."""
    with pytest.raises(partq.InvalidArgumentError, match=why):
        call()


def test_plots() -> None:
    """Each shows the figures of its DataFrame, and says why if there are none."""
    mpl.use("Agg")
    found = analysis.capacity(COST, EVEN, flows=[1, 2, 4, 6], rate=700)
    tried = pd.DataFrame({"flows": [1, 2], "most_per_s": [900.0, 1900.0]})
    ax = plots.capacity(found, tried)
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1000, 2000, 4000, 4000], [900, 1900]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "predicted", "measured", "rate asked for", "more flows do not help",
    ]  # fmt: skip
    (unhelpful,) = ax.patches
    assert unhelpful.get_extents().width > 0
    waits = plots.waits(analysis.capacity(COST, EVEN, flows=[1, 2], rate=[0, 500, 5000]))
    assert [list(line.get_ydata()) for line in waits.lines] == [[0.75, 1.5], [0.75, 1.0]]
    assert [text.get_text() for text in waits.texts] == ["1", "2"]
    played = analysis.drain(COST, EVEN, flows=2, rate=0, depth=3000, max_rows=1000)
    drained = plots.drain(played, pd.DataFrame({"seconds": [0, 1], "depth": [3000, 0]}))
    assert list(np.asarray(drained.lines[0].get_ydata())) == [3000, 2000, 1000, 0]
    assert len(drained.lines) == 2
    nothing = [plots.capacity(found[:0]), plots.waits(found[:0]), plots.drain(played[:0])]
    assert [[text.get_text() for text in ax.texts] for ax in nothing] == [
        ["no number of flows was asked for"], ["no number of flows keeps up"], ["no micro-batch was asked for"],
    ]  # fmt: skip
