"""As even as unequal subscriptions allow, keeping as much as that leaves."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.chains import improve
from spark_partq.core.assignors.draw import draw
from spark_partq.core.assignors.even import occurrence
from spark_partq.core.assignors.levels import fill
from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem

PASSES = 5


def uneven(asked: Problem) -> Owners:
    """The most even loads there are, and of these the ones that keep the most.

    It thinks in numbers of partitions that a member has of a queue, and picks the partitions at the end: those of one queue
    are all alike to it.
    """
    members, queues = len(asked.members), len(asked.queues)
    wants = np.ones((members, queues), dtype=np.bool_) if asked.wants is None else asked.wants
    owned = asked.has != NOBODY
    cells = asked.has[owned] * np.int64(queues) + asked.queue_of[owned]
    had = np.bincount(cells, minlength=members * queues).reshape(members, queues)
    gets = had.copy()
    _hand_out(gets, asked.counts - had.sum(axis=0), wants, asked.weights)
    if asked.weights is None:
        draw(gets, had, wants)
    improve(gets, had, wants, asked.weights)
    return _pick(asked, had, gets)


def _hand_out(gets: Ints, free: Ints, wants: Bools, weights: Floats | None) -> None:
    """Give what is free of each queue to its subscribers with the fewest, queue after queue, a few times over.

    The first time a queue knows nothing of those after it. What is still uneven in the end is for chains.
    """
    there = [np.flatnonzero(column) for column in wants.T]
    order = [queue for queue in np.argsort(wants.sum(axis=0), kind="stable").tolist() if free[queue]]
    given = [np.zeros(mine.size, dtype=np.int64) for mine in there]
    loads = gets.sum(axis=1)
    for _ in range(PASSES):
        before = loads.copy()
        for queue in order:
            mine = there[queue]
            loads[mine] -= given[queue]
            given[queue] = fill(loads[mine], None if weights is None else weights[mine], int(free[queue]))
            loads[mine] += given[queue]
        if np.ptp(loads) <= 1 or np.array_equal(loads, before):
            break
    for queue in order:
        gets[there[queue], queue] += given[queue]


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
