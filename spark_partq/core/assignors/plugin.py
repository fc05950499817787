"""Users' assignors: they are called with names, and their results are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Protocol

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Member, Owners, Problem
from spark_partq.core.errors import AssignorError
from spark_partq.core.ids import QueuePartition


class UserAssignor(Protocol):
    """What a user's assignor has.

    Attributes
    ----------
    name : str
    cooperative : bool
        Whether partitions that stay are consumed on while others move (K5), or all are given up first (K4).
    """

    name: str
    cooperative: bool

    def assign(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], previous: Mapping[QueuePartition, str]
    ) -> Mapping[str, Sequence[QueuePartition]]:
        """Who shall own what.

        Parameters
        ----------
        members : list of Member
            Static ones by instance id, then dynamic ones by id; each with what it owns.
        partition_counts : dict
            Queue to number of partitions; only queues that somebody subscribes to.
        previous : dict
            Partition to the id of the member that owns it; partitions without an owner are left out.

        Returns
        -------
        dict
            Member id to its partitions. Each partition of `partition_counts` must occur once.
        """


class PlugIn:
    """A user's assignor with the interface of the built-in ones."""

    weights, loads = True, False  # it gets the weights, and may use them
    in_given_order = False

    def __init__(self, assignor: UserAssignor) -> None:
        self.assignor = assignor
        self.name, self.cooperative = assignor.name, bool(assignor.cooperative)

    def owners(self, problem: Problem) -> Owners:
        partitions = problem.partitions()
        owned: list[list[QueuePartition]] = [[] for _ in problem.members]
        previous: dict[QueuePartition, str] = {}
        for partition, owner in zip(partitions, problem.current.tolist(), strict=True):
            if owner != NOBODY:
                owned[owner].append(partition)
                previous[partition] = problem.members[owner].id
        members = [
            Member(m.id, tuple(m.queues), m.instance_id, tuple(mine), m.generation, m.weight)
            for m, mine in zip(problem.members, owned, strict=True)
        ]
        counts = dict(zip(problem.queues, problem.counts.tolist(), strict=True))
        try:
            result = self.assignor.assign(members, counts, previous)
            given = [(member, queue, index(number)) for member, mine in result.items() for queue, number in mine]
            indices = problem.indices([(queue, number) for _, queue, number in given]).tolist()
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # also what would end the thread that decides for the group
            raise AssignorError(
                f"assignor {self.name!r} failed with {type(e).__name__}: {e}; mend it or use another one",
                assignor=self.name,
            ) from e
        return self._checked(problem, given, indices)

    def _checked(self, problem: Problem, given: Sequence[tuple[str, str, int]], indices: Sequence[int]) -> Owners:
        """The owners, if each partition has exactly one, which subscribes to its queue."""
        rank = {member.id: i for i, member in enumerate(problem.members)}
        subscribed = [set(member.queues) for member in problem.members]
        owners = np.full(problem.current.size, NOBODY, dtype=np.int32)
        for (member, queue, number), at in zip(given, indices, strict=True):
            if member not in rank:
                raise self._refused(
                    f"gave it to {member!r}, which is no member that subscribes to a queue", queue, number, member
                )
            if at < 0:
                raise self._refused(f"gave it to {member!r}, but there is no such partition", queue, number, member)
            if queue not in subscribed[rank[member]]:
                raise self._refused(
                    f"gave it to {member!r}, which does not subscribe to that queue", queue, number, member
                )
            if owners[at] != NOBODY:
                first = problem.members[owners[at]].id
                raise self._refused(f"gave it to {first!r} and to {member!r}", queue, number, member)
            owners[at] = rank[member]
        left = np.flatnonzero(owners == NOBODY)
        if left.size:
            queue, number = problem.partitions()[int(left[0])]
            more = f" (and {left.size - 1} more)" if left.size > 1 else ""
            raise self._refused(f"gave it to nobody{more}", queue, number, None)
        return owners

    def _refused(self, what: str, queue: str, number: int, member: str | None) -> AssignorError:
        names = {} if member is None else {"member": member}
        return AssignorError(
            f"partition {number} of queue {queue!r}: assignor {self.name!r} {what}; mend it or use another one",
            assignor=self.name,
            queue=queue,
            partition=number,
            **names,
        )
