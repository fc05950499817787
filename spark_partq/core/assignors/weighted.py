"""The `weighted` assignor: by measured load and by weight, moving only what pays."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Floats, Ints, Owners, Problem

MARGIN = 0.1
"""A partition moves if the load / weight of its taker, with the partition, is lower than its giver's by more than this part of that."""


def weighted(problem: Problem) -> Owners:
    """Even out load / weight.

    Partitions without an owner are placed first, the greatest load first, each where load / weight is then the lowest. Then partitions move
    one by one, from the member with the greatest load / weight that has one to give that pays: the taker's load / weight with it
    is lower by more than `MARGIN` than the giver's was, or the taker has nothing while the giver has at least two. A member never
    gives its last one. Each such move either gives work to one that had none or replaces the higher of two loads by two lower
    ones, so it ends, and what it ends with has no move left: a second run with the same loads changes nothing.

    Examples
    --------
    >>> from spark_partq.core.assignors.model import Member, make_problem
    >>> loads = {("q", 0): 9.0, ("q", 1): 2.0, ("q", 2): 3.0, ("q", 3): 4.0}
    >>> weighted(make_problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 4}, loads)).tolist()
    [0, 1, 1, 1]
    """
    return _LoadBalance(problem).owners()


class _LoadBalance:
    def __init__(self, problem: Problem) -> None:
        members = len(problem.members)
        self.problem = problem
        self.current = problem.current.copy()
        self.subscriptions: Bools = (
            np.ones((members, len(problem.queues)), dtype=np.bool_)
            if problem.subscriptions is None
            else problem.subscriptions
        )
        self.weights: Floats = np.ones(members) if problem.weights is None else problem.weights
        self.loads: Floats = np.ones(self.current.size) if problem.loads is None else problem.loads
        self.subscribers = [np.flatnonzero(column) for column in self.subscriptions.T]
        self.sums: Floats
        self.counts: Ints
        self._add_up()

    def _add_up(self) -> None:
        """Add up all loads anew, so that the same owners always have the same sums, to the last bit."""
        owned = self.current != NOBODY
        members = self.weights.size
        self.sums = np.bincount(self.current[owned], self.loads[owned], minlength=members).astype(np.float64)
        self.counts = np.bincount(self.current[owned], minlength=members)

    def owners(self) -> Owners:
        free = np.flatnonzero(self.current == NOBODY)
        for partition in free[np.argsort(-self.loads[free], kind="stable")].tolist():
            self._place(partition)
        self._add_up()
        while self._move():
            self._add_up()
        return self.current

    def _place(self, partition: int) -> None:
        takers = self.subscribers[self.problem.queue_of[partition]]
        after = (self.sums[takers] + self.loads[partition]) / self.weights[takers]
        lowest = takers[after == after.min()]
        taker = lowest[np.argmin(self.counts[lowest] / self.weights[lowest])]
        self.current[partition] = taker
        self.sums[taker] += self.loads[partition]
        self.counts[taker] += 1

    def _move(self) -> bool:
        """Let the most loaded member that has a move that pays give partitions, as long as it is the most loaded one."""
        height = self.sums / self.weights
        return any(self._give(giver) for giver in np.lexsort((-self.counts, -height)).tolist())

    def _give(self, giver: int) -> bool:
        """Make, of the giver's moves that pay, the one after which the higher of the two is lowest; of equal ones that to the lowest taker."""
        mine = np.flatnonzero(self.current == giver)
        mine = mine[np.argsort(self.loads[mine], kind="stable")]
        queues, which = np.zeros(1, dtype=np.int64), np.zeros(mine.size, dtype=np.int64)
        if self.problem.subscriptions is not None:
            queues, which = np.unique(self.problem.queue_of[mine], return_inverse=True)
        begun = mine.size
        while mine.size > 1:
            height = self.sums / self.weights
            nobody_below = self.counts.min() and height.min() >= (1 - MARGIN) * height[giver]
            if nobody_below or (mine.size < begun and height.max() > height[giver]):
                break
            taker, exists = self._takers(giver, height, queues)
            move = self._best(giver, self.loads[mine, None], taker[which], exists[which])
            if move is None:
                break
            given, to = move[0], taker[which[move[0]], move[1]]
            self.current[mine[given]] = to
            self.sums[[giver, to]] += [-self.loads[mine[given]], self.loads[mine[given]]]
            self.counts[[giver, to]] += [-1, 1]
            mine, which = np.delete(mine, given), np.delete(which, given)
        return mine.size < begun

    def _best(self, giver: int, load: Floats, taker: Ints, exists: Bools) -> tuple[int, int] | None:
        """Row and column of the best move.

        Parameters
        ----------
        load : float64[partitions of the giver, 1]
        taker : int64[partitions of the giver, takers]
        exists : bool[partitions of the giver, takers]
            Whether there is such a taker.
        """
        before = self.sums[giver] / self.weights[giver]
        left = (self.sums[giver] - load) / self.weights[giver]
        taken = (self.sums[taker] + load) / self.weights[taker]
        pays = exists & (((taken < (1 - MARGIN) * before) & (load > 0)) | (self.counts[taker] == 0))
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
        takers, exists = [], []
        for weight in np.unique(self.weights):
            alike = order[self.weights[order] == weight]
            if alike.size:
                can = self.subscriptions[np.ix_(alike, queues)]
                takers.append(alike[np.argmax(can, axis=0)])
                exists.append(can.any(axis=0))
        if not takers:
            return np.zeros((queues.size, 1), dtype=np.int64), np.zeros((queues.size, 1), dtype=np.bool_)
        return np.stack(takers, axis=1), np.stack(exists, axis=1)
