"""Where to set the positions of a group: what is understood, and what is refused."""

from __future__ import annotations

import pytest

from spark_partq.core.delivery.offsets import EARLIEST, LATEST
from spark_partq.core.delivery.resets import parse_goal, within
from spark_partq.core.errors import InvalidArgumentError, OffsetOutOfRangeError

ORDERS = {"orders": range(4)}
DAY_US = 86_400 * 10**6


def test_words() -> None:
    for text, offset in (("earliest", EARLIEST), (" LATEST ", LATEST)):
        goal = parse_goal(text, ORDERS)
        assert goal.offset("orders", 3) == offset and goal.at(0) is None and goal.text == text.strip().lower()


@pytest.mark.parametrize(
    ("text", "since_us"),
    [
        ("time:1970-01-02T00:00:00Z", DAY_US),
        ("time:1970-01-02", DAY_US),
        ("TIME:1970-01-02T01:00:00+01:00", DAY_US),
        ("time:1970-01-02T00:00:00.000001", DAY_US + 1),
    ],
)
def test_times(text: str, since_us: int) -> None:
    """A time without a zone is UTC, as Kafka has it."""
    assert parse_goal(text, ORDERS).at(0) == since_us


@pytest.mark.parametrize(
    ("text", "back_s"),
    [
        ("by:P1D", 86_400),
        ("by:PT1H", 3_600),
        ("by:p1dt2h3m4.5s", 93_784.5),
        ("by:P-1D", -86_400),
        ("by:-PT1H", -3_600),
        ("by:-P-1DT6H", 86_400 - 6 * 3_600),
        ("by:PT0,5S", 0.5),
        ("by:PT0S", 0),
    ],
)
def test_durations(text: str, back_s: float) -> None:
    """What Java's Duration reads, and with it Kafka's --by-duration."""
    now_us = 10 * DAY_US
    assert parse_goal(text, ORDERS).at(now_us) == now_us - back_s * 10**6


@pytest.mark.parametrize("to", [{"orders": {3: 120, 1: -2}}, '{"orders": {"3": 120, "1": -2}}'])
def test_offsets(to: object) -> None:
    """Only the partitions that are named."""
    goal = parse_goal(to, ORDERS)
    assert [goal.offset("orders", n) for n in range(4)] == [None, EARLIEST, None, 120]
    assert goal.text == '{"orders": {"3": 120, "1": -2}}'


@pytest.mark.parametrize(
    "to",
    [
        "", "first", "earliest:1", "time:", "time:now", "time:0001-13-01", "by:", "by:P", "by:PT", "by:P1DT", "by:1D", "by:P1Y", "by:P1W",
        "{}", {}, {"orders": {}}, '{"orders": 3}', {"orders": 3}, {"orders": {0: "x"}}, {"orders": {0: True}}, {"orders": {9: 0}},
        {"others": {0: 0}}, {"orders": {0: -3}}, {"orders": {0: object()}}, None, 3, ["earliest"],
    ],
)  # fmt: skip
def test_anything_else_is_refused(to: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^.INVALID_ARGUMENT. to"):
        parse_goal(to, ORDERS)


def test_bounds() -> None:
    assert [within(o, 3, 9, "q", 0) for o in (EARLIEST, LATEST, 3, 9)] == [3, 9, 3, 9]
    for wrong, why in ((2, "messages below 3 were removed"), (10, "it ends at 9")):
        with pytest.raises(OffsetOutOfRangeError, match=f"cannot be set to offset {wrong}: {why}; use 3 to 9"):
            within(wrong, 3, 9, "orders", 0)
