"""Cycle cancelling: improve an assignment by moving single partitions along paths of members, until no path improves it.

A path a → b → c moves a partition from a to b and another one from b to c: what a has too much of and c too little need not
be of one queue. Two assignments differ by such paths; some are closed, the others change the loads of their two ends. So an
assignment that no path improves is the best one (minimum-cost flow by cancelling negative cycles: Klein, Management Science 14,
1967). A path that is not closed becomes a cycle by an edge from its end to its beginning, whose cost is what the loads change.
"""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Bools, Floats, Ints

NO_EDGE = 1 << 61
LARGEST = 1 << 60  # a sum of costs stays below it: whole numbers are compared, and they must not overflow
FINEST = 1e6


def cancel_negative_cycles(assigned: Ints, previous: Ints, subscriptions: Bools, weights: Floats | None) -> None:
    """Change `assigned` until the loads are as even as can be, and then until no more partitions can stay.

    Parameters
    ----------
    assigned : int64[members, queues]
        How many partitions each member gets of each queue; changed in place.
    previous : int64[members, queues]
        How many it had.
    subscriptions : bool[members, queues]
    weights : float64[members], optional
        None if they are all equal.
    """
    if weights is None and _is_clearly_optimal(assigned, previous):
        return
    load_costs = _LoadCosts(int(assigned.sum()), assigned.shape[0], weights)
    moves = _Moves(assigned, previous, subscriptions)
    while True:
        closing = load_costs.closing_edges(assigned.sum(axis=1), bool((assigned < previous).any()))
        cycles = _negative_cycles(np.minimum(moves.costs, closing))
        if not cycles:
            return
        for taker, giver in cycles.items():
            if moves.costs[giver, taker] <= closing[giver, taker]:
                moves.move(giver, taker)
        moves.update_costs(np.array(list(cycles)))


def _is_clearly_optimal(assigned: Ints, previous: Ints) -> bool:
    """Whether a glance says that nothing can be improved: all loads alike, and each member keeps all that its load allows."""
    loads, before = assigned.sum(axis=1), previous.sum(axis=1)
    base, more = divmod(int(loads.sum()), loads.size)
    could_stay = np.minimum(before, base).sum() + min(more, int((before > base).sum()))
    return bool(np.ptp(loads) <= 1 and np.minimum(assigned, previous).sum() == could_stay)


class _Moves:
    """What it costs to move one partition from each member directly to each other one.

    Attributes
    ----------
    costs : int64[members, members]
        From row to column. -1: a partition returns to its previous owner; 0: one moves that moves anyway; 1: one leaves its
        previous owner; `NO_EDGE`: no partition can move between the two.
    """

    def __init__(self, assigned: Ints, previous: Ints, subscriptions: Bools) -> None:
        self.assigned, self.previous, self.subscriptions = assigned, previous, subscriptions
        self.costs = self._between(slice(None), slice(None))
        np.fill_diagonal(self.costs, NO_EDGE)

    def _between(self, givers: slice | Ints, takers: slice | Ints) -> Ints:
        owned, subscribed = self.assigned[givers] > 0, self.subscriptions[takers]
        new = self.assigned[givers] > self.previous[givers]
        lacking = self.assigned[takers] < self.previous[takers]
        costs: Ints = np.where(_share_a_queue(owned, subscribed), np.int64(1), np.int64(NO_EDGE))
        costs[_share_a_queue(owned, lacking) | _share_a_queue(new, subscribed)] = 0
        costs[_share_a_queue(new, lacking)] = -1
        return costs

    def move(self, giver: int, taker: int) -> None:
        """Move a partition of the queue with which it costs least."""
        can = (self.assigned[giver] > 0) & self.subscriptions[taker]
        new = self.assigned[giver] > self.previous[giver]
        lacking = self.assigned[taker] < self.previous[taker]
        queue = np.argmax(can * (1 + new.astype(np.int64) + lacking))
        self.assigned[giver, queue] -= 1
        self.assigned[taker, queue] += 1

    def update_costs(self, changed: Ints) -> None:
        """Compute the costs of the moves from and to these members again."""
        self.costs[changed] = self._between(changed, slice(None))
        self.costs[:, changed] = self._between(slice(None), changed)
        self.costs[changed, changed] = NO_EDGE


def _share_a_queue(givers: Bools, takers: Bools) -> Bools:
    """bool[givers, takers]: whether there is a queue that is set in both rows."""
    shared = np.zeros((givers.shape[0], takers.shape[0]), dtype=np.bool_)
    queues = np.flatnonzero(givers.any(axis=0) & takers.any(axis=0))
    if queues.size:
        shared[:] = givers[:, queues].astype(np.float32) @ takers[:, queues].T.astype(np.float32) > 0.5
    return shared


class _LoadCosts:
    """What it costs to change loads.

    A member's n-th partition costs (2 n - 1) / weight, so that all of them together cost load² / weight, and the sum of that is
    least where the loads are most even. Any such difference outweighs all moves of a cycle.
    """

    def __init__(self, partitions: int, members: int, weights: Floats | None) -> None:
        self.weights = np.ones(members) if weights is None else weights
        outweigh = 2 * members
        highest = (2 * partitions + 1) / self.weights.min()
        scale = 1.0 if weights is None else min(FINEST, LARGEST / (members * outweigh * highest))
        self.outweigh, self.scale = outweigh, scale

    def closing_edges(self, loads: Ints, some_can_return: bool) -> Ints:
        """int64[members, members]: the cost of a path that ends at the row's member and begins at the column's.

        A path between equally even loads only matters if `some_can_return` to their previous owners.
        """
        change = self._marginal(loads + 1)[:, None] - self._marginal(loads)[None, :]
        costs = np.where(change <= (0 if some_can_return else -1), change * self.outweigh, NO_EDGE)
        np.fill_diagonal(costs, NO_EDGE)
        return costs

    def _marginal(self, number: Ints) -> Ints:
        """What each member's partition of this number costs."""
        cost: Ints = np.rint((2 * number - 1) / self.weights * self.scale).astype(np.int64)
        return cost


def _negative_cycles(costs: Ints) -> dict[int, int]:
    """Cycles without a common member, each of negative cost; empty if there is none (Bellman-Ford).

    Returns
    -------
    dict
        Each member of such a cycle to its predecessor.
    """
    members = costs.shape[0]
    every = np.arange(members)
    distance, predecessor = np.zeros(members, dtype=np.int64), np.full(members, members)  # the last one stands for none
    for _ in range(members + 1):
        through = distance[:, None] + costs
        nearest = np.argmin(through, axis=0)
        nearer = through[nearest, every] < distance
        if not nearer.any():
            return {}
        distance = np.where(nearer, through[nearest, every], distance)
        predecessor = np.where(nearer, nearest, predecessor)
        cycles = _cycles(predecessor)
        if cycles:
            return cycles
    return {}


def _cycles(predecessor: Ints) -> dict[int, int]:
    """The cycles of a graph in which each member has one predecessor, or none."""
    members = predecessor.size
    ancestor = np.append(predecessor, members)
    for _ in range(members.bit_length()):
        ancestor = ancestor[ancestor]
    # So many steps back, every member is in a cycle, except those whose path has a beginning.
    cycles: dict[int, int] = {}
    for begin in np.unique(ancestor[ancestor < members]).tolist():
        at = begin
        while at not in cycles:
            cycles[at] = int(predecessor[at])
            at = cycles[at]
    return cycles
