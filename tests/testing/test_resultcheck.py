"""A table of results: what is lost, twice or out of order in it is found."""

from __future__ import annotations

import pytest

from spark_partq.testing.resultcheck import Result, check_results

SENT = [("k", 0), ("k", 1), ("k", 2), ("l", 3)]
RIGHT = [Result("k", 0, 0, 0, 1), Result("k", 1, 0, 1, 1), Result("k", 2, 5, 0, 2), Result("l", 3, 0, 2, 1)]


def test_right() -> None:
    report = check_results(reversed(RIGHT), SENT)
    assert report.ok and report.processed == 4


@pytest.mark.parametrize(
    ("number", "change", "lost", "twice", "out_of_order"),
    [
        (1, None, [("k", 1)], [], []),
        (1, {"value": 9}, [("k", 1)], [("k", 9)], [("k", 9)]),  # nobody sent it
        (1, {"commit": 2, "partition": 5, "offset": 1}, [], [], [("k", 2)]),  # the offset of the next one is lower
        (1, {"commit": 0}, [], [], [("k", 1)]),  # in an earlier commit than the one before
        (2, {"commit": 1}, [], [], [("k", 2)]),  # in one commit with another partition's
    ],
)
def test_wrong(number: int, change: dict[str, int] | None, lost: list, twice: list, out_of_order: list) -> None:
    rows = [*RIGHT[:number], *([] if change is None else [RIGHT[number]._replace(**change)]), *RIGHT[number + 1 :]]
    report = check_results(rows, SENT)
    assert (report.lost, report.twice, report.out_of_order) == (lost, twice, out_of_order)


def test_twice() -> None:
    report = check_results([*RIGHT, RIGHT[0]._replace(commit=9)], SENT)
    assert report.twice == [("k", 0)] and not report.lost
