"""Improve numbers of partitions by moving single ones, along chains of members if need be.

A chain a → b → c moves a partition from a to b and another one from b to c: what a has too much of and c too little of need not
be of one queue. Two solutions differ by such chains, closed ones and ones that change the loads of their two ends. So a solution
that no chain improves is the best one (minimum-cost flow by cancelling negative cycles: Klein, Management Science 14, 1967).
"""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Bools, Floats, Ints

NEVER = 1 << 61
LARGEST = 1 << 60  # a sum of costs stays below it: whole numbers are compared, and they must not overflow
FINEST = 1e6


def improve(gets: Ints, had: Ints, wants: Bools, weights: Floats | None) -> None:
    """Change `gets` until the loads are as even as can be, and then until no more partitions can stay.

    Parameters
    ----------
    gets : int64[members, queues]
        How many partitions each member gets of each queue; changed in place.
    had : int64[members, queues]
        How many it had.
    wants : bool[members, queues]
    weights : float64[members], optional
        None if they are all equal.
    """
    if weights is None and _cannot_be_better(gets, had):
        return
    prices = _Prices(int(gets.sum()), gets.shape[0], weights)
    steps = _Steps(gets, had, wants)
    while True:
        shifts = prices.shifts(gets.sum(axis=1), bool((gets < had).any()))
        along = _negative_cycles(np.minimum(steps.costs, shifts))
        if not along:
            return
        for taker, giver in along.items():
            if steps.costs[giver, taker] <= shifts[giver, taker]:
                steps.move(giver, taker)
        steps.refresh(np.array(list(along)))


def _cannot_be_better(gets: Ints, had: Ints) -> bool:
    """Whether it is seen at once that nothing is to be improved: all loads alike, and each load full of what it had."""
    loads, before = gets.sum(axis=1), had.sum(axis=1)
    base, more = divmod(int(loads.sum()), loads.size)
    could_stay = np.minimum(before, base).sum() + min(more, int((before > base).sum()))
    return bool(np.ptp(loads) <= 1 and np.minimum(gets, had).sum() == could_stay)


class _Steps:
    """What it costs to move one partition from each member straight to each other one.

    Attributes
    ----------
    costs : int64[members, members]
        From row to column. -1: it goes back to where it was; 0: it moves anyway; 1: it is taken from where it was; `NEVER`: there
        is none.
    """

    def __init__(self, gets: Ints, had: Ints, wants: Bools) -> None:
        self.gets, self.had, self.wants = gets, had, wants
        self.costs = self._between(slice(None), slice(None))
        np.fill_diagonal(self.costs, NEVER)

    def _between(self, givers: slice | Ints, takers: slice | Ints) -> Ints:
        owns, wants = self.gets[givers] > 0, self.wants[takers]
        loose, back = self.gets[givers] > self.had[givers], self.gets[takers] < self.had[takers]
        costs: Ints = np.where(_some(owns, wants), np.int64(1), np.int64(NEVER))
        costs[_some(owns, back) | _some(loose, wants)] = 0
        costs[_some(loose, back)] = -1
        return costs

    def move(self, giver: int, taker: int) -> None:
        """Move a partition of the queue with which it costs least."""
        can = (self.gets[giver] > 0) & self.wants[taker]
        loose, back = self.gets[giver] > self.had[giver], self.gets[taker] < self.had[taker]
        queue = np.argmax(can * (1 + loose.astype(np.int64) + back))
        self.gets[giver, queue] -= 1
        self.gets[taker, queue] += 1

    def refresh(self, changed: Ints) -> None:
        """Look again at what these members can give and take."""
        self.costs[changed] = self._between(changed, slice(None))
        self.costs[:, changed] = self._between(slice(None), changed)
        self.costs[changed, changed] = NEVER


def _some(gives: Bools, takes: Bools) -> Bools:
    """bool[givers, takers]: whether there is a queue that the one gives and the other takes."""
    there = np.zeros((gives.shape[0], takes.shape[0]), dtype=np.bool_)
    queues = np.flatnonzero(gives.any(axis=0) & takes.any(axis=0))
    if queues.size:
        there[:] = gives[:, queues].astype(np.float32) @ takes[:, queues].T.astype(np.float32) > 0.5
    return there


class _Prices:
    """What it is worth to change loads.

    A member's n-th partition costs (2 n - 1) / weight, so that all of them together cost load² / weight, and the sum of that is
    least where the loads are most even. Any such difference outweighs all moves of a chain.
    """

    def __init__(self, partitions: int, members: int, weights: Floats | None) -> None:
        self.weights = np.ones(members) if weights is None else weights
        outweigh = 2 * members
        highest = (2 * partitions + 1) / self.weights.min()
        scale = 1.0 if weights is None else min(FINEST, LARGEST / (members * outweigh * highest))
        self.outweigh, self.scale = outweigh, scale

    def shifts(self, loads: Ints, back: bool) -> Ints:
        """int64[members, members]: the price of ending a chain at the row's member and beginning it at the column's.

        Chains between equally even loads only matter if there is something to win `back`.
        """
        change = self._price(loads + 1)[:, None] - self._price(loads)[None, :]
        costs = np.where(change <= (0 if back else -1), change * self.outweigh, NEVER)
        np.fill_diagonal(costs, NEVER)
        return costs

    def _price(self, number: Ints) -> Ints:
        price: Ints = np.rint((2 * number - 1) / self.weights * self.scale).astype(np.int64)
        return price


def _negative_cycles(costs: Ints) -> dict[int, int]:
    """Closed chains that do not touch and whose costs are each below 0 together; empty if there is none (Bellman-Ford).

    Returns
    -------
    dict
        Each member of such a chain to the one before it, along the chains.
    """
    members = costs.shape[0]
    every = np.arange(members)
    distance, before = np.zeros(members, dtype=np.int64), np.full(members, members)  # the last one stands for none
    for _ in range(members + 1):
        through = distance[:, None] + costs
        nearest = np.argmin(through, axis=0)
        nearer = through[nearest, every] < distance
        if not nearer.any():
            return {}
        distance = np.where(nearer, through[nearest, every], distance)
        before = np.where(nearer, nearest, before)
        closed = _closed(before)
        if closed:
            return closed
    return {}


def _closed(before: Ints) -> dict[int, int]:
    """The cycles among who comes before whom."""
    members = before.size
    far = np.append(before, members)
    for _ in range(members.bit_length()):
        far = far[far]
    # So many steps back, all are in cycles, but for those that have come to a beginning.
    cycles: dict[int, int] = {}
    for begin in np.unique(far[far < members]).tolist():
        at = begin
        while at not in cycles:
            cycles[at] = int(before[at])
            at = cycles[at]
    return cycles
