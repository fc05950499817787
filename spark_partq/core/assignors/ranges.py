"""The `range` assignor (K1): it cuts each queue by itself into ranges."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Owners, Problem


def ranges(problem: Problem) -> Owners:
    """Each subscriber gets a range of a queue's partitions, all of equal length; if they do not divide evenly, the first get one more.

    >>> from spark_partq.core.assignors.model import Member, make_problem
    >>> ranges(make_problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 5})).tolist()
    [0, 0, 0, 1, 1]
    """
    members, queues = len(problem.members), len(problem.queues)
    subscriptions = (
        np.ones((queues, members), dtype=np.bool_) if problem.subscriptions is None else problem.subscriptions.T
    )
    rank = np.cumsum(subscriptions, axis=1) - 1  # [queues, members], among the queue's subscribers
    base, longer = np.divmod(problem.counts, subscriptions.sum(axis=1))
    lengths = np.where(subscriptions, base[:, None] + (rank < longer[:, None]), 0)
    return np.repeat(np.tile(np.arange(members, dtype=np.int32), queues), lengths.ravel())
