"""The `range` assignor (K1): each queue alone is cut into stretches."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Owners, Problem


def ranges(asked: Problem) -> Owners:
    """A queue's partitions in stretches of equal length, the first members' one longer if it does not divide evenly.

    >>> from spark_partq.core.assignors.model import Member, problem
    >>> ranges(problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 5})).tolist()
    [0, 0, 0, 1, 1]
    """
    members, queues = len(asked.members), len(asked.queues)
    wants = np.ones((queues, members), dtype=np.bool_) if asked.wants is None else asked.wants.T
    rank = np.cumsum(wants, axis=1) - 1  # [queues, members], among the queue's subscribers
    base, longer = np.divmod(asked.counts, wants.sum(axis=1))
    lengths = np.where(wants, base[:, None] + (rank < longer[:, None]), 0)
    return np.repeat(np.tile(np.arange(members, dtype=np.int32), queues), lengths.ravel())
