"""Assign if members subscribe to different queues: the most even numbers that the subscriptions allow, keeping what these allow."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.cycle_cancelling import cancel_negative_cycles
from spark_partq.core.assignors.homogeneous import occurrence
from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem
from spark_partq.core.assignors.stealing import steal
from spark_partq.core.assignors.water_filling import fill

PASSES = 5


def assign_heterogeneous(problem: Problem) -> Owners:
    """The most even loads there are, and of these the ones that keep the most.

    It computes how many partitions each member gets of each queue, and picks the partitions at the end: those of one queue are
    interchangeable.
    """
    members, queues = len(problem.members), len(problem.queues)
    subscriptions = (
        np.ones((members, queues), dtype=np.bool_) if problem.subscriptions is None else problem.subscriptions
    )
    owned = problem.current != NOBODY
    cells = problem.current[owned] * np.int64(queues) + problem.queue_of[owned]
    previous = np.bincount(cells, minlength=members * queues).reshape(members, queues)
    assigned = previous.copy()
    _assign_free(assigned, problem.counts - previous.sum(axis=0), subscriptions, problem.weights)
    if problem.weights is None:
        steal(assigned, previous, subscriptions)
    cancel_negative_cycles(assigned, previous, subscriptions, problem.weights)
    return _pick(problem, previous, assigned)


def _assign_free(assigned: Ints, free: Ints, subscriptions: Bools, weights: Floats | None) -> None:
    """Give what is free of each queue to its subscribers with the fewest, queue after queue, in several passes.

    In the first pass a queue knows nothing of those after it. What is still uneven after the last is left to `stealing` and
    `cycle_cancelling`.
    """
    subscribers = [np.flatnonzero(column) for column in subscriptions.T]
    order = [queue for queue in np.argsort(subscriptions.sum(axis=0), kind="stable").tolist() if free[queue]]
    given = [np.zeros(takers.size, dtype=np.int64) for takers in subscribers]
    loads = assigned.sum(axis=1)
    for _ in range(PASSES):
        before = loads.copy()
        for queue in order:
            takers = subscribers[queue]
            loads[takers] -= given[queue]
            given[queue] = fill(loads[takers], None if weights is None else weights[takers], int(free[queue]))
            loads[takers] += given[queue]
        if np.ptp(loads) <= 1 or np.array_equal(loads, before):
            break
    for queue in order:
        assigned[subscribers[queue], queue] += given[queue]


def _pick(problem: Problem, previous: Ints, assigned: Ints) -> Owners:
    """Pick partitions for the numbers: each member keeps its first ones of a queue, the others are assigned in order."""
    members, queues = assigned.shape
    owners = problem.current.copy()
    kept = np.minimum(previous, assigned)
    if (kept < previous).any():
        owned = np.flatnonzero(owners != NOBODY)
        cells = owners[owned] * np.int64(queues) + problem.queue_of[owned]
        owners[owned[occurrence(cells) >= kept.ravel()[cells]]] = NOBODY
    room = (assigned - kept).T.ravel()
    owners[owners == NOBODY] = np.repeat(np.tile(np.arange(members, dtype=np.int32), queues), room)
    return owners
