"""The `weighted` assignor: by measured load and by weight, moving only what pays."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem

MARGIN = 0.1
"""A partition moves if its taker has, even with it, a load / weight lower than its giver's by more than this part of that."""


def weighted(asked: Problem) -> Owners:
    """Even out load / weight.

    What nobody has is placed first, the greatest load first, each where load / weight is then the lowest. Then partitions move
    one by one, from the member with the greatest load / weight that has one to give that pays: the taker's load / weight with it
    is lower by more than `MARGIN` than the giver's was, or the taker has nothing while the giver has at least two. A member never
    gives its last one. Each such move either gives work to one that had none or replaces the higher of two loads by two lower
    ones, so it ends, and what it ends with has no move left: asked again with the same loads, it changes nothing.

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
        """Let the most loaded member that has a move give, as long as it is the most loaded one."""
        height = self.sums / self.weights
        return any(self._give(giver) for giver in np.lexsort((-self.counts, -height)).tolist())

    def _give(self, giver: int) -> bool:
        """Of its moves that pay, make the one after which the higher of the two is lowest, of these the one with the lowest taker."""
        mine = np.flatnonzero(self.has == giver)
        mine = mine[np.argsort(self.loads[mine], kind="stable")]
        queues, which = np.zeros(1, dtype=np.int64), np.zeros(mine.size, dtype=np.int64)
        if self.asked.wants is not None:
            queues, which = np.unique(self.asked.queue_of[mine], return_inverse=True)
        begun = mine.size
        while mine.size > 1:
            height = self.sums / self.weights
            nobody_below = self.counts.min() and height.min() >= (1 - MARGIN) * height[giver]
            if nobody_below or (mine.size < begun and height.max() > height[giver]):
                break
            taker, there = self._takers(giver, height, queues)
            move = self._best(giver, self.loads[mine, None], taker[which], there[which])
            if move is None:
                break
            given, to = move[0], taker[which[move[0]], move[1]]
            self.has[mine[given]] = to
            self.sums[[giver, to]] += [-self.loads[mine[given]], self.loads[mine[given]]]
            self.counts[[giver, to]] += [-1, 1]
            mine, which = np.delete(mine, given), np.delete(which, given)
        return mine.size < begun

    def _best(self, giver: int, load: Floats, taker: Ints, there: Bools) -> tuple[int, int] | None:
        """Row and column of the best move.

        Parameters
        ----------
        load : float64[partitions of the giver, 1]
        taker : int64[partitions of the giver, takers]
        there : bool[partitions of the giver, takers]
            Whether there is such a taker.
        """
        before = self.sums[giver] / self.weights[giver]
        left = (self.sums[giver] - load) / self.weights[giver]
        taken = (self.sums[taker] + load) / self.weights[taker]
        pays = there & (((taken < (1 - MARGIN) * before) & (load > 0)) | (self.counts[taker] == 0))
        if not pays.any():
            return None
        after = np.where(pays, np.maximum(left, taken), np.inf).ravel()
        best = np.flatnonzero(after == after.min())
        move = int(best[np.argmin(taken.ravel()[best])])
        return move // taker.shape[1], move % taker.shape[1]

    def _takers(self, giver: int, height: Floats, queues: Ints) -> tuple[Ints, Bools]:
        """Who could take a partition: of each queue the lowest member of each weight, and whether there is one.

        Of members of one weight, the lowest one has the lowest load / weight afterwards too.
        """
        order = np.lexsort((self.counts, height))
        order = order[order != giver]
        takers, there = [], []
        for weight in np.unique(self.weights):
            alike = order[self.weights[order] == weight]
            if alike.size:
                can = self.wants[np.ix_(alike, queues)]
                takers.append(alike[np.argmax(can, axis=0)])
                there.append(can.any(axis=0))
        if not takers:
            return np.zeros((queues.size, 1), dtype=np.int64), np.zeros((queues.size, 1), dtype=np.bool_)
        return np.stack(takers, axis=1), np.stack(there, axis=1)
