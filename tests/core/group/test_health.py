"""In which condition people and probes see a group."""

from __future__ import annotations

import pytest

from spark_partq.core.group.events import Delete
from spark_partq.core.group.health import BROKEN, GroupCondition, condition
from spark_partq.core.group.observer import session_over
from tests.core.group.groups import Decided


@pytest.fixture
def pair() -> Decided:
    group = Decided(2, 5_000, 1_000)
    group.join("a", session_timeout_ms=3_000)
    group.join("b", session_timeout_ms=3_000)
    return group


def test_with_members_it_is_the_status(pair: Decided) -> None:
    """R7: as long as one of them is alive."""
    for expired in ([], ["a"], ["b"], ["b", "gone"]):
        assert condition(pair.state, expired) == pair.state.status == "Holddown"
    assert condition(pair.state, ["a", "b"]) is GroupCondition.EXPIRED


def test_without_members_it_is_empty_until_it_is_deleted(pair: Decided) -> None:
    for name in "ab":
        pair.leave(name)
    assert condition(pair.state, []) is GroupCondition.EMPTY
    pair.do(Delete())
    assert condition(pair.state, []) is GroupCondition.DEAD
    pair.join("c")
    assert condition(pair.state, []) == pair.state.status


def test_which_are_broken() -> None:
    """A group that nobody reads for because its queries have ended is in order."""
    assert {"Expired", "Dead"} == BROKEN


def test_when_a_session_is_over(pair: Decided) -> None:
    """R4: the rule of all who ask."""
    assert [session_over(pair.state.members["a"], ms) for ms in (2_999, 3_000)] == [False, True]
