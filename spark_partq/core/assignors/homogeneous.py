"""Assign if all members subscribe to the same queues: the same number of partitions for each, plus or minus one."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Ints, Owners


def assign_homogeneous(current: Owners, members: int) -> Owners:
    """Steps 2 to 6 of the `balanced` assignor (R6), all moves of a kind at once.

    Parameters
    ----------
    current : int32[partitions]
        Index of each one's member, or `NOBODY`.
    members : int
        How many there are, at least one. Ties are decided in their order.

    Returns
    -------
    int32[partitions]
        No more partitions move than balance needs.

    Examples
    --------
    >>> assign_homogeneous(np.array([0, 1, 2, 0, 1, 2, 0], dtype=np.int32), 4).tolist()
    [0, 1, 2, 0, 1, 2, 3]
    """
    owners = current.copy()
    free = np.flatnonzero(current == NOBODY)
    counts = np.bincount(current[current != NOBODY], minlength=members)
    owners[free] = fewest_first(counts, free.size)  # step 2
    counts = np.bincount(owners, minlength=members)
    base = owners.size // members
    moves = int(max(np.maximum(counts - base - 1, 0).sum(), np.maximum(base - counts, 0).sum()))
    if moves:  # steps 4 to 6, each from the most loaded to the least loaded
        givers = fewest_first(-counts, moves)
        owners[partitions_to_move(owners, givers, current == NOBODY)] = fewest_first(counts, moves)
    return owners


def fewest_first(counts: Ints, how_many: int) -> Owners:
    """Who gets each of `how_many` partitions if every one goes to the member that then has the fewest, the first of these.

    >>> fewest_first(np.array([2, 0, 1]), 4).tolist()
    [1, 1, 2, 0]
    """
    given: list[Ints] = []
    levels = np.unique(counts).tolist()
    for level, above in zip(levels, [*levels[1:], None], strict=True):
        if how_many <= 0:
            break
        taking = np.flatnonzero(counts <= level)  # between two levels it is always the same members, round after round
        rounds = -(-how_many // taking.size)
        given.append(np.tile(taking, rounds if above is None else min(rounds, above - level))[:how_many])
        how_many -= given[-1].size
    return np.concatenate(given).astype(np.int32) if given else np.empty(0, dtype=np.int32)


def partitions_to_move(owners: Owners, givers: Owners, new: Bools) -> Ints:
    """The partition that each giver gives: its last one, then the one before, …; those that it has only just got (`new`) first."""
    giving = np.zeros(owners.max() + 1, dtype=np.bool_)
    giving[givers] = True
    mine = np.flatnonzero(giving[owners] & (owners != NOBODY))
    mine = mine[np.lexsort((mine, new[mine], owners[mine]))]
    ends = np.cumsum(np.bincount(owners[mine], minlength=giving.size))
    given: Ints = mine[ends[givers] - 1 - occurrence(givers)]
    return given


def occurrence(values: Owners | Ints) -> Ints:
    """How often each value has occurred before.

    >>> occurrence(np.array([5, 3, 5, 5, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    begins = np.maximum.accumulate(np.where(first, np.arange(values.size), 0))
    result = np.empty(values.size, dtype=np.int64)
    result[order] = np.arange(values.size) - begins
    return result
