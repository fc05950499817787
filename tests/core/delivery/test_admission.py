"""Q7: what one micro-batch takes of each partition's backlog."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_partq.core.delivery.admission import Backlog, Limits, admit, share

files = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4000)), max_size=5)
queues = st.lists(files, min_size=1, max_size=6)
limit = st.none() | st.integers(1, 100)
limits = st.builds(Limits, limit, st.none() | st.integers(1, 20_000), st.none() | st.integers(1, 12))


def backlog(parts: list[tuple[int, int]]) -> Backlog:
    return Backlog(np.array([r for r, _ in parts], dtype=np.int64), np.array([b for _, b in parts], dtype=np.int64))


def touched(part: Backlog, rows: int) -> int:
    """Files that hold the first `rows` rows."""
    return int(np.searchsorted(np.cumsum(part.rows), rows, side="left")) + 1 if rows else 0


def stored(part: Backlog, rows: int) -> float:
    """Stored bytes of the first `rows` rows, spread evenly in each file."""
    total = 0.0
    for r, b in zip(part.rows, part.bytes, strict=True):
        take = min(rows, int(r))
        total += b * take / r
        rows -= take
    return total


@given(queues, limits)
@example([[(10, 10)], [(1, 1), (1, 1)]], Limits(max_rows=1, max_files=1))
@example([[(10, 1000)], [(1, 4000)]], Limits(max_rows=1, max_bytes=150))
def test_limits_hold_and_something_happens(queues: list[list[tuple[int, int]]], limits: Limits) -> None:
    """Q7: never more than there is, never more than a limit, and always progress."""
    backlogs = [backlog(parts) for parts in queues]
    have = [int(b.rows.sum()) for b in backlogs]
    take = admit(backlogs, limits)
    assert len(take) == len(have)
    assert all(0 <= t <= h for t, h in zip(take, have, strict=True))
    assert sum(take) > 0 or sum(have) == 0
    if limits.max_rows is not None:
        assert sum(take) <= limits.max_rows
    if limits.max_files is not None:
        assert sum(touched(b, t) for b, t in zip(backlogs, take, strict=True)) <= limits.max_files
    if limits.max_bytes is not None:
        widest = max((b.bytes[i] / b.rows[i] for b in backlogs for i in range(len(b.rows))), default=0)
        used = sum(stored(b, t) for b, t in zip(backlogs, take, strict=True))
        assert used <= limits.max_bytes + widest * len(backlogs)


@given(queues, st.integers(1, 100))
def test_rows_are_shared_evenly(queues: list[list[tuple[int, int]]], max_rows: int) -> None:
    """Q7: nobody gets two more than another who still has some, and nothing of the limit is left unused."""
    backlogs = [backlog(parts) for parts in queues]
    have = [int(b.rows.sum()) for b in backlogs]
    take = admit(backlogs, Limits(max_rows=max_rows))
    assert sum(take) == min(max_rows, sum(have))
    for t, h in zip(take, have, strict=True):
        assert t == h or t + 1 >= max(take)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 200))
def test_share(have: list[int], total: int) -> None:
    given_ = share(np.array(have, dtype=np.int64), total)
    assert given_.sum() == min(total, sum(have))
    assert all(0 <= g <= h for g, h in zip(given_, have, strict=True))


def test_who_stands_first_gets_the_odd_ones_of_a_share() -> None:
    """H5: all others get the same, and what one has not is divided among those that have more."""
    for have, total, expected in (
        ([5, 5, 5], 7, [3, 2, 2]),
        ([1, 5, 5], 8, [1, 4, 3]),
        ([5, 0, 5, 2], 9, [4, 0, 3, 2]),
        ([3, 3], 6, [3, 3]),
        ([3, 3], 0, [0, 0]),
    ):
        assert share(np.array(have, dtype=np.int64), total).tolist() == expected


def test_no_limit_takes_all() -> None:
    assert admit([backlog([(3, 9), (4, 9)]), backlog([])], Limits()) == [7, 0]
    assert not Limits() and Limits(max_files=1)


def test_a_limit_of_bytes_takes_a_part_of_a_file() -> None:
    """Q7: whole files, and of the next one as many rows as the bytes that are left are worth."""
    assert admit([backlog([(10, 100), (10, 100)])], Limits(max_bytes=150)) == [15]


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_rows=1),
        Limits(max_files=1),
        Limits(max_bytes=1),
        Limits(max_bytes=100),
        Limits(max_rows=2, max_bytes=100, max_files=1),
    ],
    ids=str,
)
def test_nobody_starves(limits: Limits) -> None:
    """Q7: with the longest wait first, each partition is served although others are always refilled.

    Partition 2 has a single row of 5000 bytes beside two partitions of endless small ones.
    """
    endless = backlog([(50, 500)] * 4)
    waiting = {0: endless, 1: endless, 2: backlog([(1, 5000)])}
    order = [0, 1, 2]
    served: set[int] = set()
    for _ in range(3):
        take = dict(zip(order, admit([waiting[p] for p in order], limits), strict=True))
        served |= {p for p, rows in take.items() if rows}
        order.sort(key=lambda p: take[p] > 0)
    assert served == {0, 1, 2}


@given(queues, limits)
def test_first_of_the_list_comes_first(queues: list[list[tuple[int, int]]], limits: Limits) -> None:
    """Q7: whoever stands first gets at least a row, whatever the limits."""
    backlogs = [b for b in map(backlog, queues) if len(b.rows)]
    if backlogs:
        assert admit(backlogs, limits)[0] > 0
        assert admit(backlogs, replace(limits, max_rows=None))[0] > 0
