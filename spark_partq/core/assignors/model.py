"""The problem that an assignor solves: names outside, arrays inside.

Inside, all partitions are numbered consecutively: those of the first queue, then those of the second, … with the queues sorted by name.
Queues that have no partitions or that nobody subscribes to are left out, and so are members that are left with no queue: no
assignor has to handle them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition

Ints = NDArray[np.int64]
Owners = NDArray[np.int32]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

NOBODY = -1
LIGHTEST = 1e-6
"""The least weight of a member, as a part of the heaviest one's: so sums stay exact enough."""


@dataclass(frozen=True)
class Member:
    """A consumer as an assignor sees it.

    Attributes
    ----------
    id : str
        Its name in the result.
    queues : list of str
        What it subscribes to.
    instance_id : str, optional
        Of a static member.
    owned : list of (str, int)
        Partitions that it claims to own: queue and number.
    generation : int
        Of that claim; of two claims on one partition the higher one counts.
    weight : float
        Its share relative to the others', > 0; only some assignors use it.
    """

    id: str
    queues: Sequence[str]
    instance_id: str | None = None
    owned: Sequence[QueuePartition] = ()
    generation: int = -1
    weight: float = 1.0


@dataclass(frozen=True)
class Problem:
    """An assignment to make.

    Attributes
    ----------
    members : list of Member
        In the order that decides ties.
    queues : list of str
        Sorted by name.
    counts : int64[queues]
        Partitions of each, at least 1.
    current : int32[partitions]
        Index of the member that owns it and subscribes to its queue, or `NOBODY`.
    subscriptions : bool[members, queues], optional
        Who subscribes to what; None if all subscribe to all.
    weights : float64[members], optional
        The heaviest one's is 1. None if they are all equal.
    loads : float64[partitions], optional
        None if they are all equal.
    """

    members: Sequence[Member]
    queues: Sequence[str]
    counts: Ints
    current: Owners
    subscriptions: Bools | None = None
    weights: Floats | None = None
    loads: Floats | None = None

    @cached_property
    def queue_of(self) -> Ints:
        """int64[partitions]: index of each one's queue."""
        return np.repeat(np.arange(len(self.queues)), self.counts)

    @cached_property
    def starts(self) -> Ints:
        """int64[queues]: index of each queue's first partition."""
        return np.cumsum(self.counts) - self.counts

    def partitions(self, indices: Ints | None = None) -> list[QueuePartition]:
        """The names of the partitions of these indices, or of all in order."""
        at = np.arange(self.current.size) if indices is None else indices
        queue = self.queue_of[at]
        names = np.array(self.queues, dtype=object)[queue].tolist()
        return list(zip(names, (at - self.starts[queue]).tolist(), strict=True))

    def indices(self, partitions: Collection[QueuePartition]) -> Ints:
        """int64: the index of each partition, or -1 for one that does not exist."""
        index = {queue: i for i, queue in enumerate(self.queues)}
        numbers = np.fromiter(map(itemgetter(1), partitions), np.int64, len(partitions))
        queue = np.fromiter(map(index.get, map(itemgetter(0), partitions), repeat(-1)), np.int64, len(partitions))
        if not self.queues:
            return queue
        exists = (queue >= 0) & (numbers >= 0) & (numbers < self.counts[queue])
        return np.where(exists, self.starts[queue] + numbers, -1)


def in_kafkas_order(members: Sequence[Member]) -> list[Member]:
    """Static members by instance id, then dynamic ones by id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.id, m.id))


def make_problem(
    members: Sequence[Member], partition_counts: Mapping[str, int], loads: Mapping[QueuePartition, float] | None = None
) -> Problem:
    """The problem of these members and queues, with nothing assigned yet.

    Raises
    ------
    InvalidArgumentError
        Two members of one id, queues given as one string, a negative number of partitions, a weight or a load out of range.
    """
    _check(members, partition_counts, loads)
    queues = sorted(queue for queue, count in partition_counts.items() if count > 0)
    subscriptions = _subscriptions(members, queues)
    if subscriptions is not None:
        subscribes, subscribed = np.atleast_1d(subscriptions.any(axis=1)), np.atleast_1d(subscriptions.any(axis=0))
        members = [member for member, does in zip(members, subscribes.tolist(), strict=True) if does]
        queues = [queue for queue, is_ in zip(queues, subscribed.tolist(), strict=True) if is_]
        subscriptions = subscriptions[np.ix_(subscribes, subscribed)]
        subscriptions = None if subscriptions.all() else subscriptions
    counts = np.array([partition_counts[queue] for queue in queues], dtype=np.int64)
    weights = np.array([member.weight for member in members], dtype=np.float64)
    weights = np.maximum(weights / weights.max(), LIGHTEST) if weights.size else weights
    problem = Problem(
        members,
        queues,
        counts,
        np.full(counts.sum(), NOBODY, dtype=np.int32),
        subscriptions,
        None if len(set(weights.tolist())) <= 1 else weights,
    )
    if loads:
        values = np.ones(counts.sum())
        index = problem.indices(loads)
        values[index[index >= 0]] = np.fromiter(loads.values(), np.float64)[index >= 0]
        return replace(problem, loads=values)
    return problem


def _check(
    members: Sequence[Member], partition_counts: Mapping[str, int], loads: Mapping[QueuePartition, float] | None
) -> None:
    seen: set[str] = set()
    for member in members:
        if member.id in seen:
            raise InvalidArgumentError(f"two members have the id {member.id!r}; give each its own", member=member.id)
        seen.add(member.id)
        if isinstance(member.queues, str):
            raise InvalidArgumentError(
                f"member {member.id!r} has the text {member.queues!r} for its queues; give a list of names",
                member=member.id,
                queues=member.queues,
            )
        if not (math.isfinite(member.weight) and member.weight > 0):
            raise InvalidArgumentError(
                f"member {member.id!r} has the weight {member.weight}; it must be a finite number above 0",
                member=member.id,
                weight=member.weight,
            )
    for queue, count in partition_counts.items():
        if count < 0:
            raise InvalidArgumentError(f"queue {queue!r} cannot have {count} partitions", queue=queue, partitions=count)
    for (queue, number), load in (loads or {}).items():
        if not (math.isfinite(load) and load >= 0):
            raise InvalidArgumentError(
                f"partition {number} of queue {queue!r} has the load {load}; it must be a finite number, at least 0",
                queue=queue,
                partition=number,
                load=load,
            )


def _subscriptions(members: Sequence[Member], queues: Sequence[str]) -> Bools | None:
    """bool[members, queues], or None if every member subscribes to every queue."""
    if not members:
        return np.zeros((0, len(queues)), dtype=np.bool_)
    everything = set(queues)
    last: Sequence[str] | None = None
    rows: list[Bools] = []
    for member in members:
        if last is None or member.queues != last:  # often they are all alike
            last, names = member.queues, set(member.queues)
            row = np.array([queue in names for queue in queues], dtype=np.bool_)
        rows.append(row)
    if all(row is rows[0] for row in rows) and everything <= set(members[0].queues):
        return None
    return np.stack(rows)
