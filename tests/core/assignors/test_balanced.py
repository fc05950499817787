"""R1, R6: the `balanced` assignor."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.assignors.balanced import balanced, is_balanced

FLOWS = st.lists(st.sampled_from([f"{i}/{k}" for i in "abcdef" for k in range(3)]), unique=True, max_size=9)
OWNERS = st.one_of(st.none(), st.sampled_from([f"{i}/{k}" for i in "abcdef" for k in range(3)]), st.just("gone/0"))
CURRENT = st.lists(OWNERS, max_size=24).map(lambda owners: dict(enumerate(owners)))


def moves(before: dict[int, str | None], after: dict[int, str], flows: Sequence[str]) -> int:
    """Partitions taken from a flow that is there."""
    return sum(1 for p, flow in before.items() if flow in flows and after[p] != flow)


def every_balanced(partitions: int, flows: Sequence[str]) -> Iterator[dict[int, str]]:
    for owners in itertools.product(flows, repeat=partitions):
        target = dict(enumerate(owners))
        if is_balanced(target, flows):
            yield target


@given(CURRENT, FLOWS)
def test_balanced(current: dict[int, str | None], flows: list[str]) -> None:
    """R1: each partition has exactly one flow, each flow as many as the others, plus or minus one."""
    target = balanced(current, flows)
    if not flows:
        assert target == {}
        return
    assert list(target) == list(current)
    loads = Counter(target.values())
    assert set(loads) <= set(flows)
    counts = [loads[flow] for flow in flows]
    assert max(counts) - min(counts) <= 1
    assert is_balanced(target, flows)


@given(CURRENT, FLOWS)
def test_it_moves_no_more_than_balance_needs(current: dict[int, str | None], flows: list[str]) -> None:
    """R6: as many partitions stay as can, whichever flows get the one more."""
    if not flows:
        return
    target = balanced(current, flows)
    had = sorted((sum(1 for f in current.values() if f == flow) for flow in flows), reverse=True)
    base, more = divmod(len(current), len(flows))
    stay = sum(min(count, base + (i < more)) for i, count in enumerate(had))
    assert moves(current, target, flows) == sum(had) - stay


@given(CURRENT, FLOWS)
def test_what_is_balanced_stays(current: dict[int, str | None], flows: list[str]) -> None:
    """A second run changes nothing."""
    target = balanced(current, flows)
    assert balanced(target, flows) == target


@pytest.mark.parametrize("partitions", range(1, 6))
@pytest.mark.parametrize("flows", [["a"], ["a", "b"], ["a", "b", "c"]], ids=len)
def test_fewest_moves_against_all_targets(partitions: int, flows: list[str]) -> None:
    """No balanced target moves fewer partitions, from any assignment to these flows, a former one, or nobody."""
    targets = list(every_balanced(partitions, flows))
    for owners in itertools.product([None, "gone", *flows], repeat=partitions):
        current = dict(enumerate(owners))
        fewest = min(moves(current, target, flows) for target in targets)
        assert moves(current, balanced(current, flows), flows) == fewest


def test_the_example_of_the_seed() -> None:
    """R6: 7 partitions, 3 flows become 4: 2, 2, 2, 1, with a single move."""
    had = balanced(dict.fromkeys(range(7)), ["a", "b", "c"])
    assert sorted(Counter(had.values()).values()) == [2, 2, 3]
    has = balanced(had, ["a", "b", "c", "d"])
    assert [Counter(has.values())[flow] for flow in "abcd"] == [2, 2, 2, 1]
    assert moves(had, has, ["a", "b", "c", "d"]) == 1


@pytest.mark.parametrize(
    ("current", "flows", "expected"),
    [
        ({0: "a", 1: "a", 2: "a"}, ["a", "b"], False),
        ({0: "a", 1: None}, ["a"], False),
        ({0: "gone"}, ["a"], False),
        ({0: "a"}, ["a", "b", "c"], True),
        ({}, ["a"], True),
        ({0: None}, [], True),
    ],
)
def test_is_balanced(current: dict[int, str | None], flows: list[str], expected: bool) -> None:
    """R1, R3: nobody without a flow, and the loads differ by at most one."""
    assert is_balanced(current, flows) is expected
