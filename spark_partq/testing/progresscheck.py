"""Checks that messages never wait longer than they may: the longest time without progress, outside of faults.

A message waits from the moment at which its producer knows that it is in the queue until the end of the first micro-batch that had it. A
**mark** is the moment of a fault or of its end (a kill, a restart, a member that comes or goes): a wait is measured from there on,
as what waited before may have to wait again. While a fault is **in force** that lets nobody work, as a full disk, nothing counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple


class Wait(NamedTuple):
    """Messages of a place waited from `since` to `until`, and none of it was finished in between; seconds of one monotonic clock."""

    seconds: float = 0.0
    where: Hashable = None
    since: float = 0.0
    until: float = 0.0


def longest_wait(
    messages: Mapping[Hashable, Iterable[tuple[float, float | None]]],
    marks: Iterable[float],
    in_force: Sequence[tuple[float, float]],
    end: float,
) -> Wait:
    """The longest time without progress of any place, as a partition of a group.

    Parameters
    ----------
    messages : dict
        Per place when each message was in, and when it was finished first; None if it never was.
    marks : iterable of float
        See above.
    in_force : sequence of (float, float)
        From when to when no progress can be made.
    end : float
        When it was looked last. What is not finished waits until then.
    """
    faults = [*marks, *chain.from_iterable(in_force)]
    worst = Wait()
    for where, times in messages.items():
        for wait in _waits(where, sorted(times, key=lambda m: m[0]), faults, end):
            if wait.seconds > worst.seconds and not any(a < wait.until and wait.since < b for a, b in in_force):
                worst = wait
    return worst


def _waits(
    where: Hashable, messages: Sequence[tuple[float, float | None]], faults: Iterable[float], end: float
) -> Iterable[Wait]:
    """Between any two moments at which there is progress or a fault, how long the oldest waiting message waited."""
    moments = sorted({*(done for _, done in messages if done is not None), *faults, end})
    waiting: list[tuple[float, float]] = []
    before, following = float("-inf"), 0
    for moment in moments:
        while following < len(messages) and messages[following][0] < moment:
            there, done = messages[following]
            heapq.heappush(waiting, (there, float("inf") if done is None else done))
            following += 1
        while waiting and waiting[0][1] < moment:
            heapq.heappop(waiting)
        if waiting:
            since = max(before, waiting[0][0])
            yield Wait(moment - since, where, since, moment)
        before = moment
