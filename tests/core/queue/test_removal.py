"""Which files of a partition go (Q8): what every group has acknowledged and is old enough, what is too old, and what is too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.queue.removal import removable, too_many
from spark_partq.core.queue.settings import QueueSettings

NOW_MS = 1_000_000


def gone(
    ages_ms: list[int], floor: int, *, sizes: list[int] | None = None, operating: bool = True, **settings: Any
) -> int:
    """Of files of ten messages each, the first the oldest."""
    return removable(
        np.arange(1, len(ages_ms) + 1, dtype=np.int64) * 10,
        np.array(sizes or [100] * len(ages_ms), dtype=np.int64),
        (NOW_MS - np.array(ages_ms, dtype=np.int64)) * 1000,
        floor,
        QueueSettings.parse(settings),
        NOW_MS,
        operating=operating,
    )


@pytest.mark.parametrize(
    ("floor", "settings", "files"),
    [
        (0, {}, 0),
        (29, {}, 2),
        (50, {}, 5),
        (50, {"min_retention_ms": 299}, 3),
        (50, {"min_retention_ms": 300}, 2),  # what is just so old stays
        (19, {"min_retention_ms": 300}, 1),
        (50, {"min_retention_ms": 10_000}, 0),
        (0, {"retention_ms": 300}, 2),
        (0, {"retention_ms": 300, "min_retention_ms": 300}, 2),
        (50, {"retention_ms": 400, "min_retention_ms": 200}, 3),
        (0, {"max_bytes": 500}, 0),
        (0, {"max_bytes": 499}, 1),
        (0, {"max_bytes": 201}, 3),
        (0, {"max_bytes": 1}, 5),
        (0, {"max_bytes": 200, "min_retention_ms": 10_000}, 3),  # the size wins
        (50, {"max_bytes": 499, "min_retention_ms": 300}, 2),  # whichever removes more
    ],
)
def test_what_goes(floor: int, settings: dict[str, Any], files: int) -> None:
    assert gone([500, 400, 300, 200, 100], floor, **settings) == files


def test_what_consumers_do_not_share_is_not_kept() -> None:
    """Nobody could be given it."""
    assert gone([500, 400], 20, operating=False, min_retention_ms=10_000) == 2


def test_nothing_of_nothing() -> None:
    assert gone([], 0, min_retention_ms=1, retention_ms=5, max_bytes=1) == 0


@given(sizes=st.lists(st.integers(0, 50), max_size=12), most=st.integers(1, 200))
def test_no_more_go_than_must_for_the_size(sizes: list[int], most: int) -> None:
    files = too_many(np.array(sizes, dtype=np.int64), most)
    assert sum(sizes[files:]) <= most
    assert files == 0 or sum(sizes[files - 1 :]) > most


def test_what_is_stuck_stays() -> None:
    """S6: a group wants it, and could not be given it in time."""
    found = [
        removable(
            np.array([10, 20]),
            np.array([100, 100]),
            np.zeros(2, np.int64),
            floor,
            settings,
            NOW_MS,
            operating=False,
            stuck=True,
        )
        for settings in (QueueSettings.parse({"retention_ms": 0}), QueueSettings.parse({"max_bytes": 1}))
        for floor in (0, 10)
    ]
    assert found == [0, 1, 0, 1]
