"""The `weighted` assignor: by measured load and by weight, moving only what pays."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem

GAIN = 0.1
"""A partition moves if the greater of the two members' loads falls by more than this part of itself."""


def weighted(asked: Problem) -> Owners:
    """Even out load / weight.

    What nobody has is placed first, the greatest load first, each where load / weight is then the lowest. Then partitions move
    one by one, from the member with the greatest load / weight that has one to give that pays: the greater load / weight of the
    two members falls by more than `GAIN`, or the taker has nothing while the giver has at least two. A member never gives its
    last one. Each such move either gives work to one that had none or lowers the higher of two loads, so it ends, and what it
    ends with has no move left: asked again with the same loads, it changes nothing.

    Examples
    --------
    >>> from spark_partq.core.assignors.model import Member, problem
    >>> loads = {("q", 0): 9.0, ("q", 1): 2.0, ("q", 2): 3.0, ("q", 3): 4.0}
    >>> weighted(problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 4}, loads)).tolist()
    [0, 1, 1, 1]
    """
    return _Balance(asked).owners()


class _Balance:
    def __init__(self, asked: Problem) -> None:
        members = len(asked.members)
        self.asked = asked
        self.has = asked.has.copy()
        self.wants: Bools = (
            np.ones((members, len(asked.queues)), dtype=np.bool_) if asked.wants is None else asked.wants
        )
        self.weights: Floats = np.ones(members) if asked.weights is None else asked.weights
        self.loads: Floats = np.ones(self.has.size) if asked.loads is None else asked.loads
        self.there = [np.flatnonzero(column) for column in self.wants.T]
        self.sums: Floats
        self.counts: Ints
        self._add_up()

    def _add_up(self) -> None:
        """From the beginning, so that the same owners always have the same sums, to the last bit."""
        owned = self.has != NOBODY
        members = self.weights.size
        self.sums = np.bincount(self.has[owned], self.loads[owned], minlength=members).astype(np.float64)
        self.counts = np.bincount(self.has[owned], minlength=members)

    def owners(self) -> Owners:
        free = np.flatnonzero(self.has == NOBODY)
        for partition in free[np.argsort(-self.loads[free], kind="stable")].tolist():
            self._place(partition)
        self._add_up()
        while self._move():
            self._add_up()
        return self.has

    def _place(self, partition: int) -> None:
        there = self.there[self.asked.queue_of[partition]]
        after = (self.sums[there] + self.loads[partition]) / self.weights[there]
        lowest = there[after == after.min()]
        taker = lowest[np.argmin(self.counts[lowest] / self.weights[lowest])]
        self.has[partition] = taker
        self.sums[taker] += self.loads[partition]
        self.counts[taker] += 1

    def _move(self) -> bool:
        """Make the best move of the most loaded member that has one; of equally good ones that of the smallest load."""
        height = self.sums / self.weights
        for giver in np.lexsort((-self.counts, -height)).tolist():
            if self.counts[giver] < 2:
                continue
            mine = np.flatnonzero(self.has == giver)
            mine = mine[np.argsort(self.loads[mine], kind="stable")]
            can = self.wants[:, self.asked.queue_of[mine]].T.copy()  # [its partitions, members]
            can[:, giver] = False
            left = (self.sums[giver] - self.loads[mine]) / self.weights[giver]
            after = np.maximum((self.sums + self.loads[mine, None]) / self.weights, left[:, None])
            pays = can & ((after < (1 - GAIN) * height[giver]) | (self.counts == 0))
            if pays.any():
                best = int(np.argmin(np.where(pays, after, np.inf)))
                self.has[mine[best // self.counts.size]] = best % self.counts.size
                return True
        return False
