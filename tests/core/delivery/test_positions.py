"""What a table lacks of a micro-batch, by the positions that it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.delivery.positions import Position, gaps, missing, position_app

Q = "id"


def of(**ranges: tuple[int, int]) -> dict[tuple[str, int], Position]:
    return {(Q, int(name[1:])): Position(start, end, 1, Q) for name, (start, end) in ranges.items()}


def test_names_of_positions_tell_sinks_groups_and_partitions_apart() -> None:
    assert position_app("g", None, (Q, 3)) == "partq:g/id/3"
    assert position_app("g", "errors", (Q, -1)) == "partq:g/errors/id/-1"


def test_what_a_table_has_is_left_out() -> None:
    batch = of(p0=(10, 20), p1=(10, 20), p2=(10, 20), p3=(5, 5))
    recorded = {(Q, 0): 20, (Q, 1): 15}
    assert missing(batch, recorded) == {(Q, 1): 15, (Q, 2): 10}
    assert gaps(batch, recorded) == {}


def test_messages_between_the_table_and_the_micro_batch_are_a_gap() -> None:
    assert gaps(of(p0=(10, 20), p1=(10, 20), p2=(30, 30)), {(Q, 0): 4, (Q, 2): 1}) == {(Q, 0): range(4, 10)}


@given(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 60))
def test_what_is_missing_is_what_is_not_recorded(start: int, length: int, recorded: int | None) -> None:
    end = start + length
    known = {} if recorded is None else {(Q, 0): recorded}
    left = missing(of(p0=(start, end)), known)
    offsets = set(range(left.get((Q, 0), end), end))
    assert offsets == {offset for offset in range(start, end) if recorded is None or offset >= recorded}
