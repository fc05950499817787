"""K1, K2: the public function on examples, its errors, and where Kafka's own assignors fail."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from assignments import assert_valid, loads, owners
from spark_partq.core.assignors import BUILTIN, Member, assign, target
from spark_partq.core.assignors.cycle_cancelling import _is_clearly_optimal
from spark_partq.core.assignors.model import Floats
from spark_partq.core.assignors.stealing import _amounts
from spark_partq.core.assignors.water_filling import fill
from spark_partq.core.errors import InvalidArgumentError, UnknownAssignorError

STICKY = ("sticky", "cooperative-sticky")


def plain(*names: str, queues: tuple[str, ...] = ("q",)) -> list[Member]:
    return [Member(name, queues) for name in names]


def numbers(assignment: dict[str, list[tuple[str, int]]]) -> dict[str, set[int]]:
    return {member: {number for _, number in mine} for member, mine in assignment.items()}


# ---- K2
def test_example_of_range() -> None:
    assert numbers(assign("range", plain("c1", "c2"), {"q": 5})) == {"c1": {0, 1, 2}, "c2": {3, 4}}


def test_example_of_roundrobin() -> None:
    result = numbers(assign("roundrobin", plain("c1", "c2", "c3"), {"q": 6}))
    assert result == {"c1": {0, 3}, "c2": {1, 4}, "c3": {2, 5}}


@pytest.mark.parametrize(("assignor", "expected"), [("range", [6, 5, 4]), ("roundrobin", [5, 5, 5])])
def test_example_of_two_queues(assignor: str, expected: list[int]) -> None:
    members = plain("c1", "c2", "c3", queues=("test1", "test2"))
    result = assign(assignor, members, {"test1": 10, "test2": 5})
    assert [len(mine) for mine in result.values()] == expected


# ---- what is public
def test_public_names() -> None:
    assert partq.assign is assign
    assert partq.Member is Member
    assert list(BUILTIN) == ["balanced", "range", "roundrobin", "sticky", "cooperative-sticky", "weighted"]
    assert [name for name, a in BUILTIN.items() if a.cooperative] == ["balanced", "cooperative-sticky", "weighted"]
    assert [name for name, a in BUILTIN.items() if a.weights] == ["balanced", "weighted"]
    assert [name for name, a in BUILTIN.items() if a.loads] == ["weighted"]
    assert all(a.name == name for name, a in BUILTIN.items())


@pytest.mark.parametrize("assignor", BUILTIN)
def test_every_member_is_there_and_lists_are_sorted(assignor: str) -> None:
    members = [*plain("c10", "c2", queues=("b", "a")), Member("idle", ()), Member("other", ("none",))]
    result = assign(assignor, members, {"b": 3, "a": 12, "empty": 0, "nobody's": 2})
    assert set(result) == {"c10", "c2", "idle", "other"}
    assert result["idle"] == result["other"] == []
    assert all(mine == sorted(mine) for mine in result.values())
    assert_valid(owners(result), members, {"b": 3, "a": 12})
    assert all(type(number) is int for mine in result.values() for _, number in mine)


@pytest.mark.parametrize("assignor", BUILTIN)
def test_nothing_to_assign(assignor: str) -> None:
    assert assign(assignor, [], {"q": 3}) == {}
    assert assign(assignor, plain("a"), {}) == {"a": []}
    assert assign(assignor, plain("a"), {"q": 0}) == {"a": []}
    assert assign(assignor, [Member("a", ())], {"q": 2}) == {"a": []}
    assert target(BUILTIN[assignor], [], {"q": 3}, {("q", 0): "a"}) == {}


def test_static_members_come_first() -> None:
    members = [Member("a", ["q"]), Member("z", ["q"], "i2"), Member("y", ["q"], "i10")]
    assert numbers(assign("range", members, {"q": 3})) == {"y": {0}, "z": {1}, "a": {2}}


@pytest.mark.parametrize("assignor", [name for name in BUILTIN if name != "balanced"])
def test_order_does_not_matter(assignor: str) -> None:
    rng = random.Random(7)
    queues = [f"q{i}" for i in range(6)]
    members = [
        Member(f"m{i}", rng.sample(queues, 3), f"s{i}" if i % 3 == 0 else None, weight=1 + i % 2) for i in range(9)
    ]
    counts = {queue: rng.randrange(9) for queue in queues}
    now = assign("roundrobin", members[:7], counts)
    members = [dataclasses.replace(m, owned=now.get(m.id, []), generation=1) for m in members]
    expected = assign(assignor, members, counts)
    for _ in range(10):
        some = [dataclasses.replace(m, owned=rng.sample(m.owned, len(m.owned))) for m in members]
        rng.shuffle(some)
        some = [dataclasses.replace(m, queues=rng.sample(m.queues, len(m.queues))) for m in some]
        assert assign(assignor, some, dict(rng.sample(sorted(counts.items()), len(counts)))) == expected


def test_balanced_decides_ties_by_the_given_order() -> None:
    assert numbers(assign("balanced", plain("z", "a"), {"q": 3})) == {"z": {0, 2}, "a": {1}}


@pytest.mark.parametrize("weights", [None, np.ones(40)])
def test_of_equal_members_the_first_get_more(weights: Floats | None) -> None:
    """Also of so many that a sort that is not stable would mix them."""
    loads = np.repeat([9, 0], 20)
    assert fill(loads, weights, 27).tolist() == [0] * 20 + [2] * 7 + [1] * 13


def test_one_more_is_not_enough_to_be_stolen_from() -> None:
    """A thief without a partition that could take one of the first member, which has only one more."""
    loads, offered = np.array([1, 2, 0, 2]), np.array([1, 2, 0, 1])
    assert _amounts(loads, offered, 0).tolist() == [0, 1, 0, 0]


def test_what_is_clearly_optimal() -> None:
    """Even loads alone are not: each member could keep what it had."""
    had = np.array([[2, 0], [0, 2]])
    assert _is_clearly_optimal(had, had) and not _is_clearly_optimal(np.array([[1, 1], [1, 1]]), had)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.5, 1.0, 2.0, 3.0])), min_size=1, max_size=5),
    st.integers(0, 12),
)
def test_loads_are_as_even_as_the_weights_allow(members: list[tuple[int, float]], how_many: int) -> None:
    """As if each partition were given to the member for which the sum of load² / weight grows least."""
    had, weights = np.array([load for load, _ in members]), np.array([weight for _, weight in members])
    even = had.copy()
    for _ in range(how_many):
        even[((2 * even + 1) / weights).argmin()] += 1
    loads = had + fill(had, weights, how_many)
    assert loads.sum() == even.sum() and (loads >= had).all()
    assert (loads**2 / weights).sum() == pytest.approx((even**2 / weights).sum())


# ---- wrong input
@pytest.mark.parametrize(
    ("members", "counts", "given", "named"),
    [
        (plain("a", "a"), {"q": 1}, {}, "'a'"),
        (plain("a"), {"q": -1}, {}, "-1"),
        ([Member("a", "orders")], {"q": 1}, {}, "list of names"),
        ([Member("a", ["q"], weight=0)], {"q": 1}, {}, "weight 0"),
        ([Member("a", ["q"], weight=-2)], {"q": 1}, {}, "weight -2"),
        ([Member("a", ["q"], weight=math.inf)], {"q": 1}, {}, "inf"),
        ([Member("a", ["q"], weight=math.nan)], {"q": 1}, {}, "nan"),
        (plain("a"), {"q": 1}, {("q", 0): math.nan}, "nan"),
        (plain("a"), {"q": 1}, {("q", 0): math.inf}, "inf"),
        (plain("a"), {"q": 1}, {("q", 0): -1.0}, "-1.0"),
    ],
)
@pytest.mark.parametrize("assignor", BUILTIN)
def test_wrong_input(
    assignor: str,
    members: list[Member],
    counts: dict[str, int],
    given: dict[tuple[str, int], float],
    named: str,
) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        assign(assignor, members, counts, given)
    with pytest.raises(InvalidArgumentError, match=named):
        target(BUILTIN[assignor], members, counts, {}, given)


def test_unknown_assignor() -> None:
    with pytest.raises(UnknownAssignorError, match="cooperative-sticky") as e:
        assign("stiky", plain("a"), {"q": 1})
    assert e.value.params == {"assignor": "stiky"}


def test_weighted_moves_no_partition_without_load() -> None:
    """K1: it would make neither member's load lower."""
    current = {("q", 0): "a", ("q", 1): "a", ("q", 2): "b"}
    loads = {("q", 0): 10.0, ("q", 1): 0.0, ("q", 2): 5.0}
    assert target(BUILTIN["weighted"], [Member("a", ["q"]), Member("b", ["q"])], {"q": 3}, current, loads) == current


# ---- claims
@pytest.mark.parametrize("assignor", [*STICKY, "balanced", "weighted"])
def test_the_higher_generation_has_it(assignor: str) -> None:
    old = Member("a", ["q"], owned=[("q", 0), ("q", 1)], generation=3)
    new = Member("b", ["q"], owned=[("q", 1), ("q", 2)], generation=4)
    for members in ([old, new], [new, old]):
        assert numbers(assign(assignor, members, {"q": 4}))["b"] >= {1, 2}


def test_a_tie_is_lost_by_both() -> None:
    """Both may be at work on it, so both give it up before anybody gets it."""
    members = [Member("a", ["q"], owned=[("q", 0)], generation=3), Member("b", ["q"], owned=[("q", 0)], generation=3)]
    assert assign("sticky", members, {"q": 1}) == {"a": [("q", 0)], "b": []}
    assert assign("cooperative-sticky", members, {"q": 1}) == {"a": [], "b": []}


def test_saying_it_twice_is_no_contradiction() -> None:
    members = [Member("b", ["q"], owned=[("q", 0), ("q", 0)], generation=3), Member("a", ["q"])]
    assert assign("cooperative-sticky", members, {"q": 2}) == {"b": [("q", 0)], "a": [("q", 1)]}


def test_a_departed_members_partitions_are_not_withheld() -> None:
    stays = Member("a", ["q"], owned=[("q", 0), ("q", 1)], generation=1)
    assert numbers(assign("cooperative-sticky", [stays, Member("b", ["q"])], {"q": 4})) == {"a": {0, 1}, "b": {2, 3}}


def test_what_somebody_no_longer_subscribes_to_is_withheld_too() -> None:
    """It may still be at work on it."""
    members = [Member("a", ["p"], owned=[("q", 0)], generation=1), Member("b", ["q"])]
    assert assign("cooperative-sticky", members, {"p": 1, "q": 1}) == {"a": [("p", 0)], "b": []}
    assert assign("sticky", members, {"p": 1, "q": 1}) == {"a": [("p", 0)], "b": [("q", 0)]}


# ---- where Kafka's fail
@pytest.mark.parametrize("assignor", BUILTIN)
def test_an_empty_subscription_gets_nothing(assignor: str) -> None:
    members = [Member("a", ()), Member("b", ["q"]), Member("c", ["q"])]
    result = assign(assignor, members, {"q": 4})
    assert result["a"] == []
    assert_valid(owners(result), members, {"q": 4})


@pytest.mark.parametrize("assignor", BUILTIN)
def test_a_stale_claim_on_a_queue_not_subscribed_to(assignor: str) -> None:
    members = [
        Member("a", ["p"], owned=[("q", 0), ("q", 1), ("p", 0)], generation=5),
        Member("b", ["p", "q"], owned=[("q", 2)], generation=5),
        Member("c", ["q"], owned=[], generation=5),
    ]
    counts = {"p": 3, "q": 4}
    assert all(queue == "p" for queue, _ in assign(assignor, members, counts)["a"])
    current = {("q", 0): "a", ("q", 1): "a", ("p", 0): "a", ("q", 2): "b"}
    full = target(BUILTIN[assignor], members, counts, current)
    assert_valid(full, members, counts)
    assert sorted(loads(full, members).values()) in ([2, 2, 3], [1, 3, 3], [2, 1, 4])


@pytest.mark.parametrize("assignor", BUILTIN)
@pytest.mark.parametrize("claim", [("q", 7), ("q", -1), ("gone", 0)])
def test_a_claim_on_what_is_not_there(assignor: str, claim: tuple[str, int]) -> None:
    members = [Member("a", ["q"], owned=[claim, ("q", 0)], generation=5), Member("b", ["q"])]
    assert_valid(owners(assign(assignor, members, {"q": 3})), members, {"q": 3})
    full = target(BUILTIN[assignor], members, {"q": 3}, {claim: "a", ("q", 0): "a"})
    assert_valid(full, members, {"q": 3})


def test_target_withholds_nothing() -> None:
    current = {("q", number): "a" for number in range(4)}
    full = target(BUILTIN["cooperative-sticky"], plain("a", "b"), {"q": 4}, current)
    assert full == {("q", 0): "a", ("q", 1): "a", ("q", 2): "b", ("q", 3): "b"}


def test_target_does_not_look_at_claims() -> None:
    members = [Member("a", ["q"], owned=[("q", 0), ("q", 1)], generation=9), Member("b", ["q"])]
    full = target(BUILTIN["sticky"], members, {"q": 2}, {("q", 0): "b", ("q", 1): None})
    assert full == {("q", 0): "b", ("q", 1): "a"}
