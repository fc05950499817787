"""Which files are put together: each once, none that is young, large, or beyond a border."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.queue import decide, replicas, segments
from spark_partq.core.queue.segments import MOST_BYTES, MOST_FILES, SMALL_BYTES, due
from tests.core.queue.queues import follow, ready

PERIOD = 1_000


def runs(
    times: list[int],
    now: int,
    *,
    sizes: list[int] | None = None,
    cuts: Collection[int] = (),
    merged: Collection[int] = (),
) -> list[list[int]]:
    """Files of ten messages each, that came at these times."""
    count = len(times)
    alone = np.array([i not in merged for i in range(count)], dtype=bool)
    found = due(
        np.arange(count, dtype=np.int64) * 10,
        np.array(sizes or [1] * count, dtype=np.int64),
        np.array(times, dtype=np.int64),
        alone,
        cuts,
        PERIOD,
        now,
    )
    return [list(run) for run in found]


def test_a_period_that_has_been_over_for_as_long() -> None:
    times = [0, 1, 999, 1_000, 1_500, 2_000]
    assert runs(times, 1_999) == []
    assert runs(times, 2_000) == [[0, 1, 2]]
    assert runs(times, 3_000) == [[0, 1, 2], [3, 4]]
    assert runs(times, 9_000) == [[0, 1, 2], [3, 4]]  # one file alone stays


def test_large_files_and_segments_stay() -> None:
    assert runs([0] * 5, 9_000, sizes=[1, 1, SMALL_BYTES, 1, 1]) == [[0, 1], [3, 4]]
    assert runs([0] * 5, 9_000, sizes=[1, 1, SMALL_BYTES - 1, 1, 1]) == [[0, 1, 2, 3, 4]]
    assert runs([0] * 5, 9_000, merged={0, 1}) == [[2, 3, 4]]


def test_a_segment_has_bounds() -> None:
    most = MOST_BYTES // (SMALL_BYTES - 1)
    sizes = [SMALL_BYTES - 1] * (most + 2)
    assert runs([0] * (most + 2), 9_000, sizes=sizes) == [list(range(most)), [most, most + 1]]
    assert [len(run) for run in runs([0] * (MOST_FILES + 2), 9_000)] == [MOST_FILES, 2]


def test_none_goes_on_beyond_a_cut() -> None:
    assert runs([0] * 4, 9_000, cuts={20}) == [[0, 1], [2, 3]]
    assert runs([0] * 4, 9_000, cuts={0, 40}) == [[0, 1, 2, 3]]


@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 2 * SMALL_BYTES)), max_size=30),
    st.sets(st.integers(0, 30)),
    st.integers(0, 10_000),
)
def test_any_files(given_files: list[tuple[int, int]], cuts: set[int], now: int) -> None:
    """What comes back are runs of neighbours of one period; and what is put together is not put together again."""
    times = list(itertools.accumulate(gap for gap, _ in given_files))
    sizes = [size for _, size in given_files]
    found = runs(times, now, sizes=sizes, cuts={10 * cut for cut in cuts})
    for run in found:
        assert len(run) > 1 and run == list(range(run[0], run[-1] + 1))
        assert len({times[i] // PERIOD for i in run}) == 1 and (times[run[0]] // PERIOD + 2) * PERIOD <= now
        assert not cuts & set(run[1:]) and sum(sizes[i] for i in run) <= MOST_BYTES
    together = set(itertools.chain(*found))
    again = runs(times, now, sizes=sizes, cuts={10 * cut for cut in cuts}, merged=together)
    assert again == []


def test_older_programs_are_kept_away_once() -> None:
    state = ready()
    (fact,) = segments.allow_segments(state)
    after = follow(state, [fact])
    assert after.format.features == ("segments",) and segments.allow_segments(after) == ()


def test_nothing_is_decided_of_a_queue_that_ends() -> None:
    state = ready()
    assert segments.allow_segments(follow(state, decide.delete(state))) == ()
    state = follow(state, replicas.add_replica(state, "file:///replica"))
    assert segments.allow_segments(follow(state, replicas.fence(state, "file:///replica"))) == ()
