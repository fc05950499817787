"""Improve numbers of partitions by moving single ones, along chains of members if need be.

A chain a → b → c moves one partition from a to b and another one from b to c: what a has too much of and c too little need
not be of one queue. A closed chain (and one that is closed by a difference in load) is what tells two solutions apart, so a
solution that no chain improves is the best one (minimum-cost flow by cancelling negative cycles: Klein, Management Science 14,
1967).
"""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Bools, Floats, Ints

NEVER = 1e18
TOLERANCE = 1e-6


def improve(gets: Ints, had: Ints, wants: Bools, weights: Floats) -> None:
    """Change `gets` until the loads are as even as can be, and then until no more partitions can stay.

    Parameters
    ----------
    gets : int64[members, queues]
        How many partitions each member gets of each queue; changed in place.
    had : int64[members, queues]
        How many it had.
    wants : bool[members, queues]
    weights : float64[members]
        Of mean 1.
    """
    steps = _Steps(gets, had, wants)
    while True:
        loads = gets.sum(axis=1)
        costs = np.minimum(steps.costs, _shifts(loads, weights, bool((gets < had).any())))
        cycle = _negative_cycle(costs)
        if not cycle:
            return
        for giver, taker in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if steps.costs[giver, taker] <= costs[giver, taker]:
                steps.move(giver, taker)
        steps.refresh(cycle)


class _Steps:
    """What it costs to move one partition from each member straight to each other one.

    Attributes
    ----------
    costs : float64[members, members]
        -1: it goes back to where it was; 0: it moves anyway; 1: it is taken from where it was; `NEVER`: there is none.
    """

    def __init__(self, gets: Ints, had: Ints, wants: Bools) -> None:
        self.gets, self.had, self.wants = gets, had, wants
        members = gets.shape[0]
        self.costs = np.full((members, members), NEVER)
        self._fill(np.arange(members), np.arange(members))

    def _fill(self, givers: Ints, takers: Ints) -> None:
        gets, had = self.gets, self.had
        costs = np.full((givers.size, takers.size), NEVER)
        any_of = (gets[givers] > 0, self.wants[takers])
        loose, back = gets[givers] > had[givers], gets[takers] < had[takers]
        for cost, (gives, takes) in (
            (1, any_of),
            (0, (any_of[0], back)),
            (0, (loose, any_of[1])),
            (-1, (loose, back)),
        ):
            if gives.any() and takes.any():
                costs[gives.astype(np.float32) @ takes.T.astype(np.float32) > 0.5] = cost
        costs[givers[:, None] == takers] = NEVER
        self.costs[np.ix_(givers, takers)] = costs

    def move(self, giver: int, taker: int) -> None:
        """Move the cheapest partition there is, of the first queue that has one."""
        can = (self.gets[giver] > 0) & self.wants[taker]
        loose = self.gets[giver] > self.had[giver]
        back = self.gets[taker] < self.had[taker]
        queue = np.argmax(can * (1 + loose.astype(np.int64) + back))
        self.gets[giver, queue] -= 1
        self.gets[taker, queue] += 1

    def refresh(self, changed: list[int]) -> None:
        every, some = np.arange(self.gets.shape[0]), np.array(changed)
        self._fill(some, every)
        self._fill(every, some)


def _shifts(loads: Ints, weights: Floats, back: bool) -> Floats:
    """float64[members, members]: what it is worth to end a chain at the first and to begin it at the second.

    The fall of the sum of load² / weight, which is least when the loads are most even; it outweighs any number of moves.
    """
    rise = (2 * loads + 1) / weights
    fall = (2 * loads - 1) / weights
    change = (rise[:, None] - fall[None, :]) / 2
    change[np.abs(change) < TOLERANCE] = 0
    costs = np.where(change < 0, change * (loads.size + 1) / TOLERANCE, NEVER)
    if back:
        costs[change == 0] = 0
    np.fill_diagonal(costs, NEVER)
    return costs


def _negative_cycle(costs: Floats) -> list[int]:
    """Members along a closed chain whose costs are below 0 together; empty if there is none (Bellman-Ford)."""
    members = costs.shape[0]
    every = np.arange(members)
    distance, parent = np.zeros(members), np.full(members, -1)
    for _ in range(members):
        through = distance[:, None] + costs
        best = np.argmin(through, axis=0)
        nearer = through[best, every]
        changed = nearer < distance - TOLERANCE
        if not changed.any():
            return []
        distance = np.where(changed, nearer, distance)
        parent = np.where(changed, best, parent)
        cycle = _closed(parent, changed)
        if cycle:
            return cycle
    return []


def _closed(parent: Ints, changed: Bools) -> list[int]:
    """A cycle among the parents, if there is one; such a cycle is always negative."""
    done = np.zeros(parent.size, dtype=np.bool_)
    for begin in np.flatnonzero(changed).tolist():
        path: dict[int, None] = {}
        at = begin
        while at >= 0 and at not in path and not done[at]:
            path[at] = None
            at = int(parent[at])
        if at in path:
            along = list(path)
            return along[along.index(at) :][::-1]
        done[list(path)] = True
    return []
