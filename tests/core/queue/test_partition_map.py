"""Partition maps: which generation placed a message, and what may be delivered while the count changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.queue.partition_map import (
    PARENT,
    Barrier,
    Generation,
    drained,
    generation_at,
    may_append,
    partition_numbers,
    target,
)

COUNTS = st.sampled_from((0, 1, 2, 3, 4, 5, 6, 9))


@dataclass
class Past:
    """A queue that was resized often: the generation of every message of every partition, in order."""

    generations: list[Generation]
    placed: dict[int, list[int]]


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Cuts as sealing makes them: of the partitions of the old and the new map, at the end of each."""
    counts = draw(st.lists(COUNTS, min_size=1, max_size=5))
    placed: dict[int, list[int]] = {p: [] for count in counts for p in partition_numbers(count)}
    generations = []
    for g, count in enumerate(counts):
        for p in partition_numbers(count):
            placed[p] += [g] * draw(st.integers(0, 2))
        cuts = {}
        if g + 1 < len(counts):
            cuts = {p: len(placed[p]) for p in {*partition_numbers(count), *partition_numbers(counts[g + 1])}}
        generations.append(Generation(count, cuts))
    return Past(generations, placed)


def may(past: Past, settled: dict[int, int], gone: dict[int, int], b: int, x: int) -> bool:
    """The definition, word for word."""
    j = past.placed[b][x]
    after = past.generations[j].partition_count
    for g in range(j):
        before = past.generations[g]
        if before.partition_count == 0:
            continue
        for a in range(before.partition_count):
            reachable = after == 0 or (a - b) % gcd(before.partition_count, after) == 0
            if reachable and max(settled.get(a, 0), gone.get(a, 0)) < before.cuts[a]:
                return False
    return True


@given(st.data(), pasts())
def test_the_barrier_is_its_definition(data: st.DataObject, past: Past) -> None:
    """S5, I16: exactly the messages may be delivered that the definition allows, from wherever one starts."""
    settled = {p: data.draw(st.integers(0, len(rows))) for p, rows in past.placed.items()}
    gone = {p: data.draw(st.integers(0, len(rows))) for p, rows in past.placed.items() if data.draw(st.booleans())}
    barrier = Barrier(past.generations, lambda p: settled[p], gone)
    for b, rows in past.placed.items():
        start = data.draw(st.integers(0, len(rows)))
        end = data.draw(st.integers(start, len(rows)))
        allowed = start
        while allowed < end and may(past, settled, gone, b, allowed):
            allowed += 1
        assert barrier.limit(b, start, end) == allowed
        for x in range(len(rows)):
            assert barrier.passed(b, rows[x]) == may(past, settled, gone, b, x)


@given(pasts(), st.data())
def test_what_the_barrier_waits_for(past: Past, data: st.DataObject) -> None:
    """It names the partitions that are waited for; once they are settled nothing is held back, and it says from where to look."""
    settled = {p: data.draw(st.integers(0, len(rows))) for p, rows in past.placed.items()}
    barrier = Barrier(past.generations, lambda p: settled[p], {})
    assert PARENT not in barrier.missing
    for a, cut in barrier.missing.items():
        assert settled[a] < cut
    again = Barrier(past.generations, lambda p: settled[p], {}, first=barrier.first_open)
    for b, rows in past.placed.items():
        assert again.limit(b, 0, len(rows)) == barrier.limit(b, 0, len(rows))
    after = barrier
    for _ in past.generations:  # one generation after the other
        settled.update(after.missing)
        after = Barrier(past.generations, lambda p: settled[p], {})
    assert (after.missing, after.first_open) == ({}, len(past.generations) - 1)
    assert all(after.limit(b, 0, len(rows)) == len(rows) for b, rows in past.placed.items())


@given(pasts(), st.data())
def test_a_barrier_only_opens(past: Past, data: st.DataObject) -> None:
    """What was planned may still be delivered later: settled offsets only grow."""
    settled = {p: data.draw(st.integers(0, len(rows))) for p, rows in past.placed.items()}
    later = {p: data.draw(st.integers(settled[p], len(rows))) for p, rows in past.placed.items()}
    before, after = (Barrier(past.generations, s.__getitem__, {}) for s in (settled, later))
    for b, rows in past.placed.items():
        assert before.limit(b, 0, len(rows)) <= after.limit(b, 0, len(rows))


@given(pasts())
def test_the_barrier_can_always_end(past: Past) -> None:
    """Whoever acknowledges what it may be given, and nothing else, gets everything in the end."""
    settled = dict.fromkeys(past.placed, 0)
    for _ in range(1 + sum(map(len, past.placed.values()))):
        barrier = Barrier(past.generations, settled.__getitem__, {})
        settled = {p: barrier.limit(p, settled[p], len(rows)) for p, rows in past.placed.items()}
    assert settled == {p: len(rows) for p, rows in past.placed.items()}


@given(pasts())
def test_a_cut_tells_the_generation(past: Past) -> None:
    """I15: the generation that placed a message follows from its offset."""
    for p, rows in past.placed.items():
        assert [generation_at(past.generations, p, x) for x in range(len(rows))] == rows


@given(st.integers(), st.lists(COUNTS.filter(bool), min_size=2, max_size=2), st.integers(0, 8))
def test_a_key_waits_where_it_could_have_been(hash_: int, counts: list[int], a: int) -> None:
    """S5: the congruence modulo the greatest common divisor is exactly the chance that some key was in one and is in the other."""
    before, after = counts
    a %= before
    b = target(hash_, after)
    met = any(target(h, before) == a and target(h, after) == b for h in range(before * after))
    placed = Barrier(
        [Generation(before, {p: int(p == a) for p in range(max(before, after))}), Generation(after)], lambda _: 0, {}
    )
    assert placed.passed(b, 1) == (not met)


def test_4_to_6_by_hand() -> None:
    """gcd 2: even new partitions wait for even old ones, odd for odd."""
    generations = [Generation(4, {0: 3, 1: 0, 2: 2, 3: 5, 4: 0, 5: 0}), Generation(6)]
    settled = {0: 3, 2: 1, 3: 5}
    barrier = Barrier(generations, lambda p: settled.get(p, 0), {})
    assert barrier.missing == {2: 2}
    assert [barrier.limit(p, 0, 9) for p in range(6)] == [3, 9, 2, 9, 0, 9]
    assert barrier.limit(0, 5, 9) == 5
    assert Barrier(generations, lambda p: settled.get(p, 0), {2: 2}).missing == {}


def test_the_parent_is_never_waited_for() -> None:
    """S6: what is stuck in it holds nobody back; but it waits for all partitions that there were."""
    generations = [Generation(0, {PARENT: 4, 0: 0, 1: 0}), Generation(2, {PARENT: 4, 0: 1, 1: 1}), Generation(0)]
    for done, left in ((0, 1), (1, 0)):
        barrier = Barrier(generations, {done: 1, left: 0}.__getitem__, {})
        assert barrier.limit(0, 0, 1) == 1
        assert barrier.limit(PARENT, 0, 6) == 4
        assert barrier.missing == {left: 1}


def test_what_a_past_map_left_behind_waits_no_longer_than_it_must() -> None:
    """5 → 2 → 1 → 5: partitions that come back wait for each other no more than keys could have moved between them."""
    generations = [
        Generation(5, dict.fromkeys(range(5), 1)),
        Generation(2, dict.fromkeys(range(2), 1)),
        Generation(1, dict.fromkeys(range(5), 1)),
        Generation(5),
    ]
    barrier = Barrier(generations, lambda p: int(p != 4), {})
    assert [barrier.limit(p, 0, 4) for p in range(5)] == [4, 4, 4, 4, 1]


# ---- writing
@pytest.mark.parametrize(
    ("hash_", "count", "partition"), [(7, 4, 3), (-1, 4, 3), (-8, 3, 1), (7, 0, PARENT), (7, 1, 0)]
)
def test_where_a_row_goes(hash_: int, count: int, partition: int) -> None:
    """Q2: the remainder is never negative."""
    assert target(hash_, count) == partition
    assert partition in partition_numbers(count)


@pytest.mark.parametrize("sealed", range(-1, 4))
@pytest.mark.parametrize("generation", range(4))
def test_a_table_takes_rows_of_one_generation(sealed: int, generation: int) -> None:
    """I15: of the one after that under which it was sealed; and none while a replica takes over (S7)."""
    assert may_append(sealed, False, generation) == (generation == sealed + 1)
    assert not may_append(sealed, True, generation)


def test_drained() -> None:
    """I17: by every group, up to every end."""
    ends = {2: 5, 3: 0}
    assert drained(ends, [{2: 5, 3: 0}.__getitem__, {2: 6, 3: 0}.__getitem__])
    assert not drained(ends, [{2: 5, 3: 0}.__getitem__, {2: 4, 3: 9}.__getitem__])
    assert drained({}, [{2: 5}.__getitem__])
