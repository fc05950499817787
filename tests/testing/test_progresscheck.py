"""The check of waits finds a gap that is stretched, and lets faults have their time."""

from __future__ import annotations

import pytest

from spark_partq.testing.progresscheck import longest_wait

FLOWING = [(float(n), n + 0.5) for n in range(10)]  # a message a second, finished half a second later


def longest(
    messages: list[tuple[float, float | None]],
    marks: tuple[float, ...] = (),
    in_force: tuple[tuple[float, float], ...] = (),
) -> tuple[float, float, float]:
    wait = longest_wait({"p": messages}, marks, in_force, 12.0)
    return wait.seconds, wait.since, wait.until


def test_while_it_flows() -> None:
    assert longest(list(FLOWING)) == (0.5, 0.0, 0.5)
    assert longest([]) == (0.0, 0.0, 0.0), "nothing waits"


def test_a_gap_begins_with_the_message_that_waits_or_with_the_last_progress() -> None:
    assert longest([*FLOWING[:3], (3.25, 8.0), (7.0, 7.5)]) == (4.25, 3.25, 7.5)
    assert longest([(0.0, 1.0), (0.5, 9.0)]) == (8.0, 1.0, 9.0)


def test_what_is_never_finished_waits_until_the_end() -> None:
    assert longest([*FLOWING, (9.0, None)]) == (2.5, 9.5, 12.0)


def test_idle_time_is_no_wait() -> None:
    assert longest([(0.0, 0.5), (11.0, 11.25)]) == (0.5, 0.0, 0.5)


@pytest.mark.parametrize(("marks", "expected"), [((4.0,), (5.0, 4.0, 9.0)), ((1.5, 3.0, 8.5), (5.5, 3.0, 8.5))])
def test_a_fault_begins_a_new_wait(marks: tuple[float, ...], expected: tuple[float, float, float]) -> None:
    assert longest([(1.0, 9.0)], marks) == expected


def test_while_a_fault_is_in_force_nothing_counts() -> None:
    assert longest([(1.0, 9.0)], (), ((2.0, 8.5),)) == (1.0, 1.0, 2.0)
    assert longest([(1.0, 9.0)], (4.0,), ((2.0, 8.5),)) == (1.0, 1.0, 2.0)


def test_the_slowest_of_all_places() -> None:
    wait = longest_wait({"p": FLOWING, "q": [(2.0, 6.0)]}, (), (), 12.0)
    assert (wait.where, wait.seconds) == ("q", 4.0)
