"""Assign in proportion to weights, if all members subscribe to the same queues."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.homogeneous import fewest_first, partitions_to_move
from spark_partq.core.assignors.model import NOBODY, Floats, Ints, Owners

ROUNDING = 1e-9


def assign_proportionally(current: Owners, weights: Floats) -> Owners:
    """Each member gets its quota, rounded up or down, and no more partitions move than that needs.

    Parameters
    ----------
    current : int32[partitions]
        Index of each one's member, or `NOBODY`.
    weights : float64[members]

    Examples
    --------
    >>> assign_proportionally(np.full(6, NOBODY, dtype=np.int32), np.array([2.0, 1.0])).tolist()
    [0, 0, 0, 1, 0, 1]
    """
    counts = np.bincount(current[current != NOBODY], minlength=weights.size)
    quota = quotas(current.size, weights, counts)
    givers = np.repeat(np.arange(weights.size, dtype=np.int32), np.maximum(counts - quota, 0))
    owners = current.copy()
    if givers.size:
        owners[partitions_to_move(owners, givers, np.zeros(current.size, dtype=np.bool_))] = NOBODY
    free = np.flatnonzero(owners == NOBODY)
    room = np.maximum(quota - counts, 0)
    # Those with the most room first, so that the members' partitions lie mixed.
    owners[free] = fewest_first(-room, int(room.sum()))
    return owners


def quotas(partitions: int, weights: Floats, counts: Ints) -> Ints:
    """How many partitions each member gets: its exact share, rounded down or up (the method of largest remainders).

    It is rounded up first for members that have more than the rounded-down share already, then for those that lose most by
    rounding.

    >>> quotas(7, np.array([1.0, 2.0, 1.0]), np.array([0, 0, 0])).tolist()
    [2, 3, 2]
    """
    weights = weights / weights.max()
    exact = partitions * (weights / weights.sum())
    quota: Ints = np.floor(exact + ROUNDING).astype(np.int64)
    remainder = np.maximum(exact - quota, 0)
    order = np.lexsort((np.arange(weights.size), -remainder, counts <= quota, remainder <= ROUNDING))
    quota[order[: partitions - quota.sum()]] += 1
    return quota
