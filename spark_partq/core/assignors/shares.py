"""Shares in proportion to weights, if all members subscribe to the same queues."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.even import fewest_first, last_of
from spark_partq.core.assignors.model import NOBODY, Floats, Ints, Owners

ROUNDING = 1e-9


def by_weight(has: Owners, weights: Floats) -> Owners:
    """Each member gets its quota, rounded up or down, and no more partitions move than that needs.

    Parameters
    ----------
    has : int32[partitions]
        Index of each one's member, or `NOBODY`.
    weights : float64[members]

    Examples
    --------
    >>> by_weight(np.full(6, NOBODY, dtype=np.int32), np.array([2.0, 1.0])).tolist()
    [0, 0, 0, 1, 0, 1]
    """
    counts = np.bincount(has[has != NOBODY], minlength=weights.size)
    quota = quotas(has.size, weights, counts)
    givers = np.repeat(np.arange(weights.size, dtype=np.int32), np.maximum(counts - quota, 0))
    owners = has.copy()
    if givers.size:
        owners[last_of(owners, givers, np.zeros(has.size, dtype=np.bool_))] = NOBODY
    free = np.flatnonzero(owners == NOBODY)
    room = np.maximum(quota - counts, 0)
    # Those with the most room first, so that the members' partitions lie mixed.
    owners[free] = fewest_first(-room, int(room.sum()))
    return owners


def quotas(partitions: int, weights: Floats, counts: Ints) -> Ints:
    """How many partitions each member gets: its exact share, rounded down or up.

    It is rounded up for who has more than the rounded-down share already, then for who loses most by rounding.

    >>> quotas(7, np.array([1.0, 2.0, 1.0]), np.array([0, 0, 0])).tolist()
    [2, 3, 2]
    """
    weights = weights / weights.max()
    exact = partitions * (weights / weights.sum())
    quota: Ints = np.floor(exact + ROUNDING).astype(np.int64)
    lost = np.maximum(exact - quota, 0)
    order = np.lexsort((np.arange(weights.size), -lost, counts <= quota, lost <= ROUNDING))
    quota[order[: partitions - quota.sum()]] += 1
    return quota
