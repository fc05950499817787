"""The `roundrobin` assignor (K1): it deals out all partitions like cards."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Owners, Problem


def roundrobin(problem: Problem) -> Owners:
    """Give partition after partition to member after member, passing over those that do not subscribe to the queue.

    >>> from spark_partq.core.assignors.model import Member, make_problem
    >>> roundrobin(make_problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 5})).tolist()
    [0, 1, 0, 1, 0]
    """
    members = len(problem.members)
    if problem.subscriptions is None:
        return np.arange(problem.current.size, dtype=np.int32) % np.int32(members)
    owners = np.empty(problem.current.size, dtype=np.int32)
    turn = 0
    for queue, (start, count) in enumerate(zip(problem.starts.tolist(), problem.counts.tolist(), strict=True)):
        subscribers = np.flatnonzero(problem.subscriptions[:, queue])
        first = int(np.searchsorted(subscribers, turn))  # past the last one: from the beginning
        owners[start : start + count] = subscribers[(first + np.arange(count)) % subscribers.size]
        turn = int(owners[start + count - 1] + 1) % members
    return owners
