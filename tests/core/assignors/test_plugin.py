"""K1: assignors of users, and results of theirs that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from spark_partq.core.assignors import Member, PlugIn, target
from spark_partq.core.errors import AssignorError

MEMBERS = [Member("a", ["p", "q"]), Member("b", ["q"], weight=2.0), Member("none", [])]
COUNTS = {"p": 1, "q": 3, "nobody's": 2}
GOOD = {"a": [("p", 0), ("q", 0)], "b": [("q", 1), ("q", 2)]}


class Fixed:
    """Gives what it was told to, and notes what it was asked."""

    name, cooperative = "fixed", True

    def __init__(self, result: Any) -> None:
        self.result = result
        self.asked: list[Any] = []

    def assign(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], previous: Mapping[tuple[str, int], str]
    ) -> Any:
        self.asked.append((members, partition_counts, previous))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def test_it_is_asked_in_names() -> None:
    assignor = Fixed(GOOD)
    full = target(PlugIn(assignor), MEMBERS, COUNTS, {("q", 1): "b", ("q", 0): "gone", ("p", 0): None, ("q", 9): "a"})
    assert full == {("p", 0): "a", ("q", 0): "a", ("q", 1): "b", ("q", 2): "b"}
    ((members, counts, previous),) = assignor.asked
    assert [(m.id, m.queues, m.owned) for m in members] == [("a", ("p", "q"), ()), ("b", ("q",), (("q", 1),))]
    assert [m.weight for m in members] == [1.0, 2.0]
    assert counts == {"p": 1, "q": 3}
    assert previous == {("q", 1): "b"}


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_whatever_it_raises_is_its_error(error: type[BaseException]) -> None:
    """Also what would end the thread that decides for the group."""
    with pytest.raises(AssignorError, match=f"failed with {error.__name__}: once"):
        target(PlugIn(Fixed(error("once"))), MEMBERS, COUNTS, {})


def test_it_is_like_the_others() -> None:
    plugin = PlugIn(Fixed(GOOD))
    assert (plugin.name, plugin.cooperative, plugin.weights, plugin.loads) == ("fixed", True, True, False)


@pytest.mark.parametrize(
    ("result", "message", "params"),
    [
        (
            {**GOOD, "b": [("q", 0), ("q", 1), ("q", 2)]},
            "to 'a' and to 'b'",
            {"queue": "q", "partition": "0", "member": "b"},
        ),
        ({**GOOD, "b": [("q", 1), ("q", 1), ("q", 2)]}, "to 'b' and to 'b'", {"partition": "1"}),
        ({"a": [("p", 0)], "b": [("q", 1)]}, r"to nobody \(and 1 more\)", {"queue": "q", "partition": "0"}),
        ({}, "to nobody", {"queue": "p"}),
        ({"a": [("q", 0)], "b": [("p", 0), ("q", 1), ("q", 2)]}, "does not subscribe", {"queue": "p", "member": "b"}),
        ({**GOOD, "c": [("q", 0)]}, "'c', which is no member", {"member": "c"}),
        ({**GOOD, "none": [("q", 0)]}, "'none', which is no member that subscribes", {"member": "none"}),
        ({**GOOD, "b": [("q", 3)]}, "no such partition", {"queue": "q", "partition": "3"}),
        ({**GOOD, "b": [("x", 0)]}, "no such partition", {"queue": "x"}),
        ({**GOOD, "a": [("nobody's", 0)]}, "no such partition", {"queue": "nobody's"}),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh", {}),
        (None, "AttributeError", {}),
        ({"a": [0]}, "TypeError", {}),
        ({"a": [("p", "0")]}, "TypeError", {}),
        ({"a": [("p", 2**70)]}, "OverflowError", {}),
        ({"a": [(["p"], 0)]}, "TypeError", {}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_result_is_refused(result: Any, message: str, params: dict[str, str]) -> None:
    with pytest.raises(AssignorError, match=message) as e:
        target(PlugIn(Fixed(result)), MEMBERS, COUNTS, {})
    assert e.value.error_class == "ASSIGNOR_FAILED"
    assert e.value.params.items() >= {"assignor": "fixed", **params}.items()
    assert "mend it or use another one" in str(e.value)
