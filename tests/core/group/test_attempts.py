"""How often messages were delivered, what is given again, and which message is found to be at fault (dead messages)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.group.attempts import PIECES, Attempts, deliveries, is_dead, is_suspect, needed, piece

TWICE = {(0, 100): 2, (10, 20): 4, (20, 21): 1}


@pytest.mark.parametrize(
    ("offset", "count", "until"),
    [
        (0, 2, 10),  # the range that begins within it is another number
        (9, 2, 10),
        (10, 4, 20),
        (19, 4, 20),
        (20, 2, 21),  # of several numbers the highest
        (21, 2, 100),
        (99, 2, 100),
        (100, 1, 150),  # delivered, and not counted
        (149, 1, 150),
        (150, 0, 150),  # not delivered
        (151, 0, 151),
    ],
)
def test_how_often_a_message_was_delivered(offset: int, count: int, until: int) -> None:
    assert deliveries(TWICE, 150, offset) == (count, until)


def test_what_nobody_has_delivered_ends_where_a_counted_range_begins() -> None:
    """Before such a range is delivered, its number is written down."""
    assert deliveries({(10, 20): 1}, 5, 5) == (0, 10)
    assert deliveries({(10, 20): 3, (12, 20): 1}, 11, 10) == (3, 11)


@pytest.mark.parametrize(
    ("number", "max_deliveries", "suspect"),
    [(1, 1, True), (1, 2, True), (1, 3, False), (2, 3, True), (2, 4, False), (3, 4, True), (4, 4, True)],
)
def test_what_is_suspect(number: int, max_deliveries: int, suspect: bool) -> None:
    """What was delivered all but one of the times that it may be; what was never delivered is not."""
    assert is_suspect({(0, 8): number}, 8, 3, max_deliveries) is suspect
    assert not is_suspect({(0, 8): number}, 8, 8, max_deliveries)


@pytest.mark.parametrize(
    ("start", "end", "max_deliveries", "until"),
    [
        (0, 70, 9, 64),  # not mixed with what was not delivered yet
        (0, 40, 9, 40),
        (64, 70, 2, 70),  # nothing of it was delivered
        (0, 70, 3, 8),  # one of so many pieces
        (8, 70, 3, 15),
        (60, 70, 3, 61),  # at least one message
        (0, 5, 3, 5),
    ],
)
def test_a_piece(start: int, end: int, max_deliveries: int, until: int) -> None:
    assert PIECES == 8
    assert piece({(0, 64): 2}, 64, start, end, max_deliveries) == until


def test_pieces_of_pieces_end_with_one_message() -> None:
    """A number that has grown in between is a piece of its own."""
    assert piece({(0, 64): 2, (0, 8): 3}, 64, 0, 64, 3) == 1
    assert piece({(0, 64): 2, (0, 8): 3}, 64, 8, 64, 3) == 15


@pytest.mark.parametrize(
    ("attempts", "max_deliveries", "dead"),
    [
        ({(5, 6): 2}, 1, True),
        ({(5, 6): 1}, 1, False),
        ({(5, 6): 2}, 2, True),
        ({(5, 6): 2}, 3, False),
        ({(5, 6): 3}, 3, True),
        ({(5, 7): 9, (4, 6): 9}, 1, False),  # never alone
        ({}, 1, False),
    ],
)
def test_a_message_is_dead_if_it_came_alone_the_last_time(attempts: Attempts, max_deliveries: int, dead: bool) -> None:
    assert is_dead(attempts, 5, max_deliveries) is dead


def test_what_is_needed() -> None:
    """Of what ends above the position, whatever another range does not say as well; a message alone says that it was alone.

    A first delivery is known by the end of what was delivered: who acknowledges by hand may leave one message and be given thousands of ranges.
    """
    assert of_one_epoch({(0, 10): 3, (10, 20): 2}, 10) == {(10, 20): 2}
    assert of_one_epoch({(0, 10): 3, (10, 20): 2}, 9) == {(0, 10): 3, (10, 20): 2}
    assert of_one_epoch({(0, 10): 3, (2, 8): 3, (0, 5): 2, (5, 10): 4, (3, 4): 2, (3, 5): 3}, 0) == {
        (0, 10): 3,
        (5, 10): 4,
        (3, 4): 2,
    }
    assert of_one_epoch({(n, n + 1): 1 for n in range(1_000)}, 0) == {}


def of_one_epoch(attempts: Attempts, position: int) -> Attempts:
    left = needed({range_: (5, number) for range_, number in attempts.items()}, position)
    return {range_: number for range_, (_, number) in left.items()}


def test_what_a_reset_voids_does_not_speak_for_what_came_since() -> None:
    """H4: else a message that kills whoever is given it is never found to be dead after a reset."""
    before, since = {(50, 150): (3, 4)}, {(61, 150): (7, 3)}
    assert needed(before | since, 0) == before | since
    assert needed({(50, 150): (8, 4)} | since, 0) == {(50, 150): (8, 4)}


_RANGES = st.tuples(st.integers(0, 9), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.dictionaries(_RANGES, st.integers(1, 4), max_size=8), st.integers(0, 15))
def test_nothing_is_lost_with_what_is_not_needed(attempts: dict[tuple[int, int], int], position: int) -> None:
    left = of_one_epoch(attempts, position)
    for offset in range(position, 16):
        assert deliveries(left, 16, offset)[0] == deliveries(attempts, 16, offset)[0]
        assert [is_dead(left, offset, most) for most in (1, 3)] == [is_dead(attempts, offset, most) for most in (1, 3)]
