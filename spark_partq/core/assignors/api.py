"""The functions that others call: names in, names out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from spark_partq.core.assignors.claims import only_subscribers, resolve_claims
from spark_partq.core.assignors.model import (
    NOBODY,
    Member,
    Owners,
    Problem,
    in_kafkas_order,
    make_problem,
)
from spark_partq.core.assignors.registry import BUILTIN, Assignor
from spark_partq.core.errors import UnknownAssignorError
from spark_partq.core.ids import QueuePartition


def assign(
    assignor: str,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    loads: Mapping[QueuePartition, float] | None = None,
) -> dict[str, list[QueuePartition]]:
    """Assign partitions to members by a built-in assignor (K1).

    Parameters
    ----------
    assignor : str
        `balanced`, `range`, `roundrobin`, `sticky`, `cooperative-sticky` or `weighted`.
    members : list of Member
        Their order decides ties of `balanced`; to the others it does not matter. Claims in `owned` on what does not exist or is
        not subscribed to are ignored; of two claims on one partition that of the higher generation counts, of a tie neither.
    partition_counts : dict
        Queue to number of partitions.
    loads : dict, optional
        Load of partitions in any unit; 1 for those that are left out. `weighted` uses it.

    Returns
    -------
    dict
        Every member's id to its partitions, by queue and number. Partitions that nobody subscribes to are left out. From
        `cooperative-sticky`, partitions that another member must give up first are left out, too; a second call, with what the
        members own then, assigns them.

    Raises
    ------
    UnknownAssignorError
    InvalidArgumentError
        Two members of one id, a negative number of partitions, a weight or a load out of range.

    Examples
    --------
    >>> assign("range", [Member("a", ["q"]), Member("b", ["q"])], {"q": 3})
    {'a': [('q', 0), ('q', 1)], 'b': [('q', 2)]}
    """
    if assignor not in BUILTIN:
        raise UnknownAssignorError(
            f"there is no assignor {assignor!r}; there are {', '.join(BUILTIN)}", assignor=assignor
        )
    builtin = BUILTIN[assignor]
    result: dict[str, list[QueuePartition]] = {member.id: [] for member in members}
    problem = _problem(builtin, members, partition_counts, loads)
    if not problem.current.size:
        return result
    claims = resolve_claims(problem, members)
    owners = builtin.owners(replace(problem, current=claims.owners))
    if assignor == "cooperative-sticky":
        owners = np.where(claims.by_anyone & (owners != claims.owners), np.int32(NOBODY), owners)
    return result | _partitions_of_members(problem, owners)


def target(
    assignor: Assignor,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    current: Mapping[QueuePartition, str | None],
    loads: Mapping[QueuePartition, float] | None = None,
) -> dict[QueuePartition, str]:
    """Who shall own each partition in the end, also those that somebody must give up first.

    Parameters
    ----------
    assignor
        One of `BUILTIN`, or a `PlugIn`.
    members, partition_counts, loads
        As for `assign`; `Member.owned` does not count.
    current : dict
        Who owns each partition. None, one that is no member, and one that does not subscribe to the queue mean nobody.

    Returns
    -------
    dict
        QueuePartition to member id, by queue and number; without queues that nobody subscribes to.

    Raises
    ------
    AssignorError
        A user's assignor raised, or its result is no assignment.
    InvalidArgumentError
        As from `assign`.
    """
    problem = _problem(assignor, members, partition_counts, loads)
    rank = {member.id: i for i, member in enumerate(problem.members)}
    owned_by = np.full(problem.current.size, NOBODY, dtype=np.int32)
    if not owned_by.size:
        return {}
    index = problem.indices(current)
    member = np.fromiter((rank.get(owner, NOBODY) for owner in current.values()), np.int32, len(current))  # type: ignore[arg-type]
    owned_by[index[index >= 0]] = member[index >= 0]
    owners = assignor.owners(replace(problem, current=only_subscribers(problem, owned_by)))
    ids = np.array([member.id for member in problem.members], dtype=object)
    return dict(zip(problem.partitions(), ids[owners].tolist(), strict=True))


def _problem(
    assignor: Assignor,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    loads: Mapping[QueuePartition, float] | None,
) -> Problem:
    ordered = list(members) if assignor.in_given_order else in_kafkas_order(members)
    return make_problem(ordered, partition_counts, loads)


def _partitions_of_members(problem: Problem, owners: Owners) -> dict[str, list[QueuePartition]]:
    """Each member's partitions in order."""
    assigned = np.flatnonzero(owners != NOBODY)
    members = len(problem.members)
    keys = owners[assigned].astype(
        np.uint16 if members <= 1 << 16 else np.int32
    )  # 16 bits are sorted without comparing
    order = assigned[np.argsort(keys, kind="stable")]
    partitions = problem.partitions(order)
    ends = np.cumsum(np.bincount(owners[assigned], minlength=members)).tolist()
    begins = [0, *ends[:-1]]
    return {m.id: partitions[begin:end] for m, begin, end in zip(problem.members, begins, ends, strict=True)}
