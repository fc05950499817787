"""The public functions: names in, names out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spark_partq.core.assignors.claims import claims, subscribed
from spark_partq.core.assignors.model import (
    NOBODY,
    Member,
    Owners,
    Partition,
    Problem,
    in_kafkas_order,
    problem,
    replace_,
)
from spark_partq.core.assignors.registry import BUILTIN, Assignor
from spark_partq.core.errors import UnknownAssignorError


def assign(
    assignor: str,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    loads: Mapping[Partition, float] | None = None,
) -> dict[str, list[Partition]]:
    """Who gets which partitions, as a built-in assignor says (K1).

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
        Load of partitions in any unit, 1 if not said; heeded by `weighted`.

    Returns
    -------
    dict
        Every member's id to its partitions, by queue and number. What nobody subscribes to is not there. From
        `cooperative-sticky` what another member must give up first is not there either; a second call, with what they have
        then, has it.

    Raises
    ------
    UnknownAssignorError
    InvalidArgumentError
        Two members of one id, a negative number of partitions, a weight or a load that is none.

    Examples
    --------
    >>> assign("range", [Member("a", ["q"]), Member("b", ["q"])], {"q": 3})
    {'a': [('q', 0), ('q', 1)], 'b': [('q', 2)]}
    """
    if assignor not in BUILTIN:
        raise UnknownAssignorError(
            f"there is no assignor {assignor!r}; there are {', '.join(BUILTIN)}", assignor=assignor
        )
    rule = BUILTIN[assignor]
    result: dict[str, list[Partition]] = {member.id: [] for member in members}
    asked = _asked(rule, members, partition_counts, loads)
    if not asked.has.size:
        return result
    claimed = claims(asked, members)
    owners = rule.owners(replace_(asked, has=claimed.has))
    if assignor == "cooperative-sticky":
        owners = np.where(claimed.by_anyone & (owners != claimed.has), np.int32(NOBODY), owners)
    return result | _lists(asked, owners)


def target(
    assignor: Assignor,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    current: Mapping[Partition, str | None],
    loads: Mapping[Partition, float] | None = None,
) -> dict[Partition, str]:
    """Who shall own each partition in the end, whoever must give it up first.

    Parameters
    ----------
    assignor
        One of `BUILTIN`, or a `PlugIn`.
    members, partition_counts, loads
        As for `assign`; `Member.owned` does not count.
    current : dict
        Who has each partition. None, one that is no member, and one that does not subscribe to the queue mean nobody.

    Returns
    -------
    dict
        Partition to member id, by queue and number; without the queues that nobody subscribes to.

    Raises
    ------
    AssignorError
        A user's assignor raised, or gave a result that is none.
    InvalidArgumentError
        As from `assign`.
    """
    asked = _asked(assignor, members, partition_counts, loads)
    rank = {member.id: i for i, member in enumerate(asked.members)}
    has = np.full(asked.has.size, NOBODY, dtype=np.int32)
    if not has.size:
        return {}
    where = asked.positions(current)
    who = np.fromiter((rank.get(owner, NOBODY) for owner in current.values()), np.int32, len(current))  # type: ignore[arg-type]
    has[where[where >= 0]] = who[where >= 0]
    has = subscribed(asked, has)
    owners = assignor.owners(replace_(asked, has=has))
    ids = np.array([member.id for member in asked.members], dtype=object)
    return dict(zip(asked.partitions(), ids[owners].tolist(), strict=True))


def _asked(
    assignor: Assignor,
    members: Sequence[Member],
    partition_counts: Mapping[str, int],
    loads: Mapping[Partition, float] | None,
) -> Problem:
    ordered = list(members) if assignor.in_given_order else in_kafkas_order(members)
    return problem(ordered, partition_counts, loads)


def _lists(asked: Problem, owners: Owners) -> dict[str, list[Partition]]:
    """The public form: each member's partitions in order."""
    there = np.flatnonzero(owners != NOBODY)
    members = len(asked.members)
    keys = owners[there].astype(np.uint16 if members <= 1 << 16 else np.int32)  # 16 bits are sorted without comparing
    order = there[np.argsort(keys, kind="stable")]
    partitions = asked.partitions(order)
    ends = np.cumsum(np.bincount(owners[there], minlength=members)).tolist()
    begins = [0, *ends[:-1]]
    return {m.id: partitions[begin:end] for m, begin, end in zip(asked.members, begins, ends, strict=True)}
