"""Members with few partitions steal from members with many, many partitions at once."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Bools, Ints


def steal(assigned: Ints, previous: Ints, subscriptions: Bools) -> None:
    """Let each member, the one with the fewest first, steal single partitions from those that have at least two more.

    This is the bulk of the work when members join or subscribe to more. A thief takes from the owner directly; what needs a
    third member in between is left to `cycle_cancelling`.

    Parameters
    ----------
    assigned : int64[members, queues]
        How many partitions each member gets of each queue; changed in place.
    previous : int64[members, queues]
        How many it had; what it gets beyond them is stolen first.
    subscriptions : bool[members, queues]
    """
    loads = assigned.sum(axis=1)
    for thief in np.argsort(loads, kind="stable").tolist():
        if loads[thief] + 2 > loads.max():
            return
        offered = assigned @ subscriptions[thief]
        offered[thief] = 0
        amounts = _amounts(loads, offered, int(loads[thief]))
        victims = np.flatnonzero(amounts)
        if victims.size:
            stolen = _new_ones_first(assigned[victims], previous[victims], subscriptions[thief], amounts[victims])
            assigned[victims] -= stolen
            assigned[thief] += stolen.sum(axis=0)
            loads = assigned.sum(axis=1)


def _amounts(loads: Ints, offered: Ints, load: int) -> Ints:
    """How many partitions a thief that has `load` takes from each member.

    It takes from the most loaded first, and from nobody that has not at least two more than it has at that moment.

    >>> _amounts(np.array([0, 5, 4]), np.array([0, 9, 1]), 0).tolist()
    [0, 2, 1]
    """

    def down_to(level: int) -> Ints:
        return np.minimum(np.maximum(loads - level, 0), offered)

    low, high = load, int(loads.max())  # the lowest level of the victims at which the thief has not more than they
    while low < high:
        level = (low + high) // 2
        low, high = (low, level) if load + int(down_to(level).sum()) <= level else (level + 1, high)
    amounts = down_to(low)
    can_give = np.flatnonzero(down_to(low - 1) > amounts)
    amounts[can_give[: max(low - 1 - load - int(amounts.sum()), 0)]] += 1
    return amounts


def _new_ones_first(assigned: Ints, previous: Ints, subscribed: Bools, amounts: Ints) -> Ints:
    """int64[victims, queues]: so many of what each has in the thief's queues, first what it did not have before."""
    new = np.maximum(assigned - previous, 0)
    stock = np.concatenate([new, assigned - new], axis=1) * np.tile(subscribed, 2)
    taken = np.clip(amounts[:, None] - (np.cumsum(stock, axis=1) - stock), 0, stock)
    queues = subscribed.size
    both: Ints = taken[:, :queues] + taken[:, queues:]
    return both
