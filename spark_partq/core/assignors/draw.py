"""Give much to members that have little, many partitions at once."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Bools, Ints


def draw(gets: Ints, had: Ints, wants: Bools) -> None:
    """Let each member, the one with the fewest first, take single partitions from those that have at least two more.

    This is the bulk of the work when members join or subscribe to more. It takes straight from the owners only.

    Parameters
    ----------
    gets : int64[members, queues]
        How many partitions each member gets of each queue; changed in place.
    had : int64[members, queues]
        How many it had; what it gets beyond them is taken from it first.
    wants : bool[members, queues]
    """
    loads = gets.sum(axis=1)
    for taker in np.argsort(loads, kind="stable").tolist():
        if loads[taker] + 2 > loads.max():
            return  # what may still be uneven is for chains
        offered = gets @ wants[taker]
        offered[taker] = 0
        number = _numbers(loads, offered, int(loads[taker]))
        givers = np.flatnonzero(number)
        if givers.size:
            taken = _loose_first(gets[givers], had[givers], wants[taker], number[givers])
            gets[givers] -= taken
            gets[taker] += taken.sum(axis=0)
            loads = gets.sum(axis=1)


def _numbers(loads: Ints, offered: Ints, has: int) -> Ints:
    """How many each gives, the most loaded first, as long as the giver had two more than the taker.

    >>> _numbers(np.array([0, 5, 4]), np.array([0, 9, 1]), 0).tolist()
    [0, 2, 1]
    """

    def down_to(level: int) -> Ints:
        return np.minimum(np.maximum(loads - level, 0), offered)

    low, high = has, int(loads.max())  # the lowest level of the givers that is not below the taker's then
    while low < high:
        level = (low + high) // 2
        low, high = (low, level) if has + int(down_to(level).sum()) <= level else (level + 1, high)
    number = down_to(low)
    could = np.flatnonzero(down_to(low - 1) > number)
    number[could[: max(low - 1 - has - int(number.sum()), 0)]] += 1
    return number


def _loose_first(gets: Ints, had: Ints, wanted: Bools, number: Ints) -> Ints:
    """int64[givers, queues]: so many of what each has in wanted queues, first what it did not have before."""
    loose = np.maximum(gets - had, 0)
    stock = np.concatenate([loose, gets - loose], axis=1) * np.tile(wanted, 2)
    taken = np.clip(number[:, None] - (np.cumsum(stock, axis=1) - stock), 0, stock)
    queues = wanted.size
    both: Ints = taken[:, :queues] + taken[:, queues:]
    return both
