"""The `roundrobin` assignor (K1): all partitions are dealt out like cards."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Owners, Problem


def roundrobin(asked: Problem) -> Owners:
    """Partition after partition to member after member; who does not subscribe to the queue is passed over.

    >>> from spark_partq.core.assignors.model import Member, problem
    >>> roundrobin(problem([Member("a", ["q"]), Member("b", ["q"])], {"q": 5})).tolist()
    [0, 1, 0, 1, 0]
    """
    members = len(asked.members)
    if asked.wants is None:
        return np.arange(asked.has.size, dtype=np.int32) % np.int32(members)
    owners = np.empty(asked.has.size, dtype=np.int32)
    turn = 0
    for queue, (start, count) in enumerate(zip(asked.starts.tolist(), asked.counts.tolist(), strict=True)):
        there = np.flatnonzero(asked.wants[:, queue])
        first = int(np.searchsorted(there, turn))  # past the last one: from the beginning
        owners[start : start + count] = there[(first + np.arange(count)) % there.size]
        turn = int(owners[start + count - 1] + 1) % members
    return owners
