"""As even as unequal subscriptions allow, keeping as much as that leaves."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.chains import improve
from spark_partq.core.assignors.even import occurrence
from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem


def uneven(asked: Problem) -> Owners:
    """The most even loads there are, and of these the ones that keep the most.

    It thinks in numbers of partitions that a member has of a queue, and picks the partitions at the end: those of one queue
    are all alike to it.
    """
    members, queues = len(asked.members), len(asked.queues)
    wants = np.ones((members, queues), dtype=np.bool_) if asked.wants is None else asked.wants
    weights = np.ones(members) if asked.weights is None else asked.weights / asked.weights.mean()
    owned = asked.has != NOBODY
    cells = asked.has[owned] * np.int64(queues) + asked.queue_of[owned]
    had = np.bincount(cells, minlength=members * queues).reshape(members, queues)
    gets = had.copy()
    _hand_out(gets, asked.counts - had.sum(axis=0), wants, weights)
    improve(gets, had, wants, weights)
    return _pick(asked, had, gets)


def _hand_out(gets: Ints, free: Ints, wants: Bools, weights: Floats) -> None:
    """Give what is free of each queue to its subscribers with the fewest; those with few subscribers first."""
    loads = gets.sum(axis=1)
    for queue in np.argsort(wants.sum(axis=0), kind="stable").tolist():
        if free[queue]:
            there = np.flatnonzero(wants[:, queue])
            more = fill(loads[there], weights[there], int(free[queue]))
            gets[there, queue] += more
            loads[there] += more


def fill(loads: Ints, weights: Floats, how_many: int) -> Ints:
    """How many of so many things each gets if every one goes to where load / weight is then the lowest.

    >>> fill(np.array([3, 0, 1]), np.ones(3), 4).tolist()
    [0, 3, 1]
    """
    # A place n of a member has the height (n + 1/2) / weight; the lowest places that are free are taken.
    low, high = 0.0, float(((loads + how_many + 1) / weights).max())
    for _ in range(64):
        level = (low + high) / 2
        if int(_below(level, loads, weights).sum()) <= how_many:
            low = level
        else:
            high = level
    more: Ints = _below(low, loads, weights)
    rest = how_many - int(more.sum())
    next_height = (loads + more + 0.5) / weights
    more[np.argsort(next_height, kind="stable")[:rest]] += 1
    return more


def _below(level: float, loads: Ints, weights: Floats) -> Ints:
    below: Ints = np.maximum(np.floor(level * weights + 0.5).astype(np.int64) - loads, 0)
    return below


def _pick(asked: Problem, had: Ints, gets: Ints) -> Owners:
    """Partitions for the numbers: each member keeps its first ones of a queue, the others are dealt out in order."""
    members, queues = gets.shape
    owners = asked.has.copy()
    kept = np.minimum(had, gets)
    if (kept < had).any():
        owned = np.flatnonzero(owners != NOBODY)
        cells = owners[owned] * np.int64(queues) + asked.queue_of[owned]
        owners[owned[occurrence(cells) >= kept.ravel()[cells]]] = NOBODY
    room = (gets - kept).T.ravel()
    owners[owners == NOBODY] = np.repeat(np.tile(np.arange(members, dtype=np.int32), queues), room)
    return owners
