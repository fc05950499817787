"""K1, R1, R6: what holds of every assignor, whatever it is asked."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignments import (
    WEIGHTS,
    assert_valid,
    claiming,
    currents,
    groups,
    improving_moves,
    kept,
    loads,
    owners,
    step_by_step,
    subscribed_partitions,
    unevenness,
)
from spark_partq.core.assignors import BUILTIN, Member, assign, target
from spark_partq.core.assignors.weighted import MARGIN
from spark_partq.core.ids import QueuePartition

EVEN = ("balanced", "sticky", "cooperative-sticky")
KEEPING = (*EVEN, "weighted")


# ---- all of them
@given(st.data(), st.sampled_from(sorted(BUILTIN)), groups())
def test_valid(data: st.DataObject, name: str, group: tuple[list[Member], dict[str, int]]) -> None:
    """R1: each partition that somebody subscribes to has exactly one owner, who subscribes to it."""
    members, counts = group
    members = [dataclasses.replace(m, weight=data.draw(WEIGHTS)) for m in members]
    current = data.draw(currents(members, counts))
    weighs = {partition: data.draw(st.sampled_from([0.0, 1.0, 5.0, 1e6])) for partition in list(current)[::2]}
    assert_valid(target(BUILTIN[name], members, counts, current, weighs), members, counts)
    result = assign(name, claiming(members, current), counts, weighs)
    assert list(result) == [m.id for m in members]
    if name != "cooperative-sticky":
        assert_valid(owners(result), members, counts)


@given(st.data(), st.sampled_from(sorted(set(BUILTIN) - {"balanced"})), groups())
def test_order_does_not_matter(data: st.DataObject, name: str, group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = group
    current = data.draw(currents(members, counts))
    shuffled = data.draw(st.permutations(members))
    other_counts = dict(data.draw(st.permutations(list(counts.items()))))
    other_current = dict(data.draw(st.permutations(list(current.items()))))
    rule = BUILTIN[name]
    assert target(rule, shuffled, other_counts, other_current) == target(rule, members, counts, current)


@given(st.data(), st.sampled_from(KEEPING), groups())
def test_what_it_made_stays(data: st.DataObject, name: str, group: tuple[list[Member], dict[str, int]]) -> None:
    """A second run changes nothing, and neither does one with the claims that follow from the first."""
    members, counts = group
    members = [dataclasses.replace(m, weight=data.draw(WEIGHTS)) for m in members]
    weighs = {partition: data.draw(st.floats(0, 9)) for partition in sorted(subscribed_partitions(members, counts))}
    first = target(BUILTIN[name], members, counts, data.draw(currents(members, counts)), weighs)
    assert target(BUILTIN[name], members, counts, first, weighs) == first
    assert owners(assign(name, claiming(members, first), counts, weighs)) == first


# ---- the sticky kinds and `balanced`
@given(st.data(), st.sampled_from(EVEN), groups(equal=True))
def test_equal_subscriptions(data: st.DataObject, name: str, group: tuple[list[Member], dict[str, int]]) -> None:
    """R1, R6: the same number for each, plus or minus one, and no more moves than that needs."""
    members, counts = group
    current = data.draw(currents(members, counts))
    full = target(BUILTIN[name], members, counts, current)
    sizes = sorted(loads(full, members).values())
    if not full:
        return
    assert sizes[-1] - sizes[0] <= 1
    had = Counter(m for partition, m in current.items() if partition in full)
    base, more = divmod(len(full), len(members))
    most_first = sorted((had[m.id] for m in members), reverse=True)
    assert kept(full, current) == sum(min(count, base + (i < more)) for i, count in enumerate(most_first))


@given(st.data(), groups(equal=True))
def test_balanced_is_the_steps_of_r6(data: st.DataObject, group: tuple[list[Member], dict[str, int]]) -> None:
    """R6: the same as one partition after the other."""
    members, counts = group
    current = data.draw(currents(members, counts))
    full = target(BUILTIN["balanced"], members, counts, current)
    in_order = {partition: current.get(partition) for partition in sorted(subscribed_partitions(members, counts))}
    assert full == step_by_step(in_order, [m.id for m in members])


@given(st.data(), st.sampled_from(EVEN), groups(equal=False))
def test_unequal_subscriptions(data: st.DataObject, name: str, group: tuple[list[Member], dict[str, int]]) -> None:
    """Nothing can be moved to a member that has two fewer; more than that is checked against all solutions below."""
    members, counts = group
    full = target(BUILTIN[name], members, counts, data.draw(currents(members, counts)))
    assert not list(improving_moves(full, members))


@given(st.data(), st.sampled_from(EVEN))
@settings(max_examples=150, deadline=None)
def test_against_all_solutions(data: st.DataObject, name: str) -> None:
    """No solution is more even, and none of the most even ones keeps more."""
    queues = data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), min_size=1))
    names = ["m0", "m1", "m2"][: data.draw(st.integers(1, 3))]
    members = [Member(m, data.draw(st.lists(st.sampled_from("abc"), unique=True))) for m in names]
    partitions = sorted(subscribed_partitions(members, queues))[:7]
    queues = {queue: sum(q == queue for q, _ in partitions) for queue in queues}
    current = data.draw(currents(members, queues))
    can = [[m.id for m in members if queue in m.queues] for queue, _ in partitions]
    best = min(
        (unevenness(loads(solution, members).values()), -kept(solution, current))
        for choice in itertools.product(*can)
        for solution in [dict(zip(partitions, choice, strict=True))]
    )
    full = target(BUILTIN[name], members, queues, current)
    assert (unevenness(loads(full, members).values()), -kept(full, current)) == best


@pytest.mark.parametrize("equal", [True, False])
def test_large(equal: bool) -> None:
    """Bounds that can be told without a search: no more moves than the loads differ from their mean."""
    rng = random.Random(5)
    queues = {f"q{i:02d}": rng.randrange(1, 200) for i in range(60)}
    members = [Member(f"m{i:02d}", rng.sample(sorted(queues), 60 if equal else 40)) for i in range(50)]
    full = target(BUILTIN["sticky"], members, queues, {})
    for change in ("leave", "join", "partitions"):
        if change == "leave":
            members = members[:20] + members[23:]
        elif change == "join":
            members = [*members, Member("new", sorted(queues)), Member("newer", sorted(queues)[:50])]
        else:
            queues = {queue: count + rng.randrange(9) for queue, count in queues.items()}
        began = time.perf_counter()
        after = target(BUILTIN["sticky"], members, queues, full)
        assert time.perf_counter() - began < 20
        assert_valid(after, members, queues)
        sizes = loads(after, members).values()
        assert max(sizes) - min(sizes) <= 1
        before = loads({p: m for p, m in full.items() if p in after}, members)
        here = {m.id for m in members}
        moved = sum(m in here and after[p] != m for p, m in full.items())
        assert moved <= sum(max(count - len(after) // len(members), 0) for count in before.values())
        full = after


def test_long_paths_end() -> None:
    """Each queue has two subscribers, so that loads can only be evened out along a long path."""
    count = 40
    members = [Member(f"m{i:02d}", [f"q{i:02d}", f"q{i + 1:02d}"]) for i in range(count)]
    queues = {f"q{i:02d}": 1 for i in range(1, count)} | {"q00": count, f"q{count:02d}": 1}
    current = {(f"q{i:02d}", 0): f"m{i - 1:02d}" for i in range(1, count)}
    full = target(BUILTIN["sticky"], members, queues, current)
    assert_valid(full, members, queues)
    assert not list(improving_moves(full, members))
    assert loads(full, members)["m00"] == count


# ---- weights
@given(st.data(), groups(equal=True))
def test_quotas(data: st.DataObject, group: tuple[list[Member], dict[str, int]]) -> None:
    """`balanced` with weights: each its share, rounded down or up, and no more moves than some such rounding needs."""
    members, counts = group
    members = [dataclasses.replace(m, weight=data.draw(WEIGHTS)) for m in members]
    current = data.draw(currents(members, counts))
    full = target(BUILTIN["balanced"], members, counts, current)
    if not full:
        return
    total = sum(Fraction(m.weight) for m in members)
    share = {m.id: len(full) * Fraction(m.weight) / total for m in members}
    size = loads(full, members)
    for m in members:
        assert math.floor(share[m.id]) <= size[m.id] <= math.ceil(share[m.id])
    had = Counter(m for partition, m in current.items() if partition in full)
    up = len(full) - sum(math.floor(s) for s in share.values())
    could_stay = sum(min(had[m.id], math.floor(share[m.id])) for m in members)
    could_stay += min(up, sum(had[m.id] > math.floor(s) and s.denominator > 1 for m in members for s in [share[m.id]]))
    assert kept(full, current) == could_stay


def test_extreme_weights() -> None:
    members = [Member("a", ["q"], weight=1e300), Member("b", ["q"], weight=1e-300), Member("c", ["q"], weight=1e300)]
    assert loads(target(BUILTIN["balanced"], members, {"q": 10}, {}), members) == {"a": 5, "b": 0, "c": 5}
    some = [*members, Member("d", ["q", "p"], weight=1e-300)]
    assert_valid(target(BUILTIN["balanced"], some, {"q": 10, "p": 2}, {}), some, {"q": 10, "p": 2})
    assert_valid(target(BUILTIN["weighted"], some, {"q": 10, "p": 2}, {}), some, {"q": 10, "p": 2})


@given(st.data(), groups(equal=False, most=4))
def test_weights_and_unequal_subscriptions(data: st.DataObject, group: tuple[list[Member], dict[str, int]]) -> None:
    """No single move lowers the sum of load² / weight."""
    members, counts = group
    members = [dataclasses.replace(m, weight=data.draw(WEIGHTS)) for m in members]
    full = target(BUILTIN["balanced"], members, counts, data.draw(currents(members, counts)))
    size = loads(full, members)
    mean = sum(m.weight for m in members) / max(len(members), 1)
    weight = {m.id: m.weight / mean for m in members}
    for (queue, _), mine in full.items():
        for m in members:
            if queue in m.queues and m.id != mine:
                change = (2 * size[m.id] + 1) / weight[m.id] - (2 * size[mine] - 1) / weight[mine]
                assert change >= -1e-5


# ---- loads
def heights(
    full: dict[QueuePartition, str], members: list[Member], weighs: dict[QueuePartition, float]
) -> dict[str, float]:
    return {m.id: sum(weighs[p] for p, owner in full.items() if owner == m.id) / m.weight for m in members}


@given(st.data(), groups())
def test_weighted_moves_only_what_pays(data: st.DataObject, group: tuple[list[Member], dict[str, int]]) -> None:
    """Afterwards no single move would pay, and from a state like that nothing moves."""
    members, counts = group
    members = [dataclasses.replace(m, weight=data.draw(WEIGHTS)) for m in members]
    partitions = sorted(subscribed_partitions(members, counts))
    weighs = {p: data.draw(st.floats(0, 9)) for p in partitions}
    full = target(BUILTIN["weighted"], members, counts, data.draw(currents(members, counts)), weighs)
    height, size = heights(full, members, weighs), loads(full, members)
    for p, giver in full.items():
        for m in members:
            if p[0] not in m.queues or m.id == giver or size[giver] < 2:
                continue
            assert size[m.id]
            after = height[m.id] + weighs[p] / m.weight
            assert not weighs[p] or after >= (1 - MARGIN) * height[giver] * (1 - 1e-9)


@pytest.mark.parametrize(("other", "moves"), [(5.0, 0), (4.5, 1)])
def test_hysteresis(other: float, moves: int) -> None:
    """A taker that has 9 then is not enough below a giver of 10; one that has 8.5 is."""
    members = [Member("a", ["q"]), Member("b", ["q"])]
    weighs = {("q", 0): 4.0, ("q", 1): 6.0, ("q", 2): other}
    current = {("q", 0): "a", ("q", 1): "a", ("q", 2): "b"}
    full = target(BUILTIN["weighted"], members, {"q": 3}, current, weighs)
    assert sum(full[p] != m for p, m in current.items()) == moves


def test_weighted_joins_and_leaves() -> None:
    """Loads that are all alike end within the margin of each other, from whatever they begin with."""
    rng = random.Random(3)
    partitions = [("q", number) for number in range(1000)]
    members = [Member(f"m{i}", ["q"], weight=1 + i % 2) for i in range(10)]
    begins: list[dict[QueuePartition, str | None]] = [
        dict.fromkeys(partitions),
        dict.fromkeys(partitions, "m0"),
        {p: f"m{rng.randrange(5)}" for p in partitions},
    ]
    for current in begins:
        full = target(BUILTIN["weighted"], members, {"q": 1000}, current)
        height = heights(full, members, dict.fromkeys(partitions, 1.0))
        assert min(height.values()) + 1 >= (1 - MARGIN) * max(height.values())
        joined = [*members, Member("new", ["q"])]
        after = target(BUILTIN["weighted"], joined, {"q": 1000}, full)
        assert all(after[p] in (m, "new") for p, m in full.items())
        assert 40 < loads(after, joined)["new"] < 70


def test_who_has_nothing_gets_something() -> None:
    members = [Member("a", ["q"]), Member("b", ["q"])]
    weighs = {("q", 0): 100.0, ("q", 1): 0.1}
    full = target(BUILTIN["weighted"], members, {"q": 2}, dict.fromkeys(weighs, "a"), weighs)
    assert full == {("q", 0): "a", ("q", 1): "b"}
    assert target(BUILTIN["weighted"], members, {"q": 1}, {("q", 0): "a"}, weighs) == {("q", 0): "a"}


def test_of_equally_loaded_members_the_one_with_most_partitions_gives() -> None:
    """One partition moves; if the other one gave first, two would."""
    members = [Member(name, ["q"]) for name in "abc"]
    weighs = dict(zip([("q", number) for number in range(6)], [3.0, 4.0, 4.0, 1.0, 2.0, 2.0], strict=True))
    current = dict(zip(weighs, "ccaaba", strict=True))
    full = target(BUILTIN["weighted"], members, {"q": 6}, current, weighs)
    assert {place: full[place] for place in weighs if full[place] != current[place]} == {("q", 5): "b"}


def test_the_greatest_load_is_placed_first() -> None:
    members = [Member("a", ["q"], weight=2.0), Member("b", ["q"])]
    weighs = {("q", 0): 1.0, ("q", 1): 9.0, ("q", 2): 4.0, ("q", 3): 3.0}
    full = target(BUILTIN["weighted"], members, {"q": 4}, {}, weighs)
    assert full == {("q", 1): "a", ("q", 2): "b", ("q", 3): "a", ("q", 0): "b"}


def test_a_load_that_is_not_said_is_one() -> None:
    members = [Member("a", ["q"]), Member("b", ["q"])]
    full = target(BUILTIN["weighted"], members, {"q": 4}, {}, {("q", 3): 3.0, ("other", 0): 7.0, ("q", 9): 7.0})
    assert full == {("q", 3): "a", ("q", 0): "b", ("q", 1): "b", ("q", 2): "b"}
