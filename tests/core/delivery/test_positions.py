"""What a table lacks of a micro-batch, by the positions that it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.delivery.positions import Position, lineage, missing, position_app
from spark_partq.core.queue.former import Former
from spark_partq.core.stored import MOST

Q = "id"


def of(**ranges: tuple[int, int]) -> dict[tuple[str, int], Position]:
    return {(Q, int(name[1:])): Position(start, end, 1, Q, ((Q, MOST),)) for name, (start, end) in ranges.items()}


def kept(**offsets: int) -> dict[tuple[str, int], dict[str, int]]:
    return {(Q, int(name[1:])): {Q: offset} for name, offset in offsets.items()}


def test_names_of_positions_tell_sinks_groups_and_partitions_apart() -> None:
    assert position_app("g", None, "id", 3) == "partq:g/id/3"
    assert position_app("g", "errors", "id", -1) == "partq:g/errors/id/-1"


def test_what_a_table_has_is_left_out() -> None:
    batch = of(p0=(10, 20), p1=(10, 20), p2=(10, 20), p3=(5, 5))
    assert missing(batch, kept(p0=20, p1=15)) == {(Q, 1): 15, (Q, 2): 10}


# The replica had 80 messages of partition 0 when it was promoted, and 50 of them when another one was promoted after that.
NOW = lineage("third", (Former("second", {0: 50}), Former("first", {0: 80})), 0)


def test_the_incarnations_of_a_queue() -> None:
    assert NOW == (("third", MOST), ("second", 50), ("first", 50))
    assert lineage("third", (Former("second", {0: 90}), Former("first", {0: 80})), 0)[-1] == ("first", 80)
    assert lineage("third", (Former("second", {0: 50}),), 1) == (("third", MOST), ("second", 0))  # made since


def test_after_a_promotion_a_table_has_what_the_replica_had_too() -> None:
    def first(**recorded: int) -> int:
        return Position(30, 70, 9, Q, NOW).first_missing(recorded)

    assert first() == 30
    assert first(first=40) == first(second=40) == first(first=20, second=40) == 40
    assert first(first=100) == first(second=60, first=45) == 50  # beyond that other messages have these offsets
    assert first(first=100, third=65) == 65 and first(first=100, third=40) == 50


def test_who_still_delivers_under_an_incarnation_of_before_learns_what_is_in() -> None:
    assert Position(30, 70, 9, Q, NOW).moved({}) == {"third": 70, "second": 50, "first": 50}
    assert Position(30, 45, 9, Q, NOW).moved({"third": 45, "second": 44, "first": 0}) == {"second": 45, "first": 45}
    assert Position(30, 45, 9, Q, NOW).moved({"first": 100, "second": 20}) == {"third": 45, "second": 45}


@given(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 60))
def test_what_is_missing_is_what_is_not_recorded(start: int, length: int, recorded: int | None) -> None:
    end = start + length
    known = {} if recorded is None else kept(p0=recorded)
    left = missing(of(p0=(start, end)), known)
    offsets = set(range(left.get((Q, 0), end), end))
    assert offsets == {offset for offset in range(start, end) if recorded is None or offset >= recorded}
