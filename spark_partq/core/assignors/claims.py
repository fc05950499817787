"""The partitions that members claim to own, and which claims count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Ints, Member, Owners, Problem


@dataclass(frozen=True)
class Claims:
    """What the members' claims come to.

    Attributes
    ----------
    owners : int32[partitions]
        Index of the member whose claim counts and that subscribes to the queue, or `NOBODY`.
    by_anyone : bool[partitions]
        Whether any member claims it: whoever gets it must wait until that one has given it up.
    """

    owners: Owners
    by_anyone: Bools


def resolve_claims(problem: Problem, members: Sequence[Member]) -> Claims:
    """Of two claims on one partition that of the higher generation counts, of a tie neither.

    Parameters
    ----------
    members : list of Member
        All of them, also those that are not in `problem`.
    """
    claiming = [member for member in members if member.owned]
    rank = {member.id: i for i, member in enumerate(problem.members)}
    claimer = np.array([rank.get(member.id, NOBODY) for member in claiming], dtype=np.int32)
    at = problem.indices(list(chain.from_iterable(member.owned for member in claiming)))
    claim = np.repeat(np.arange(claimer.size), [len(member.owned) for member in claiming])[at >= 0]
    at = at[at >= 0]
    by_anyone = np.bincount(at, minlength=problem.current.size) > 0
    if np.count_nonzero(by_anyone) < at.size:
        at, claim = _undisputed(at, claim, np.array([member.generation for member in claiming]))
    owners = np.full(problem.current.size, NOBODY, dtype=np.int32)
    owners[at] = claimer[claim]
    return Claims(only_subscribers(problem, owners), by_anyone)


def _undisputed(at: Ints, claim: Ints, generations: Ints) -> tuple[Ints, Ints]:
    """Of several claims on one partition, the one that counts, if any."""
    at, claim = np.unique(
        np.stack([at, claim]), axis=1
    )  # a member that claims a partition twice does not contradict itself
    order = np.lexsort((generations[claim], at))
    at, claim = at[order], claim[order]
    generation = generations[claim]
    last = np.append(at[1:] != at[:-1], True)
    tied = np.insert((at[1:] == at[:-1]) & (generation[1:] == generation[:-1]), 0, False)
    counts = last & ~tied
    return at[counts], claim[counts]


def only_subscribers(problem: Problem, owners: Owners) -> Owners:
    """The owners, without those that do not subscribe to the queue."""
    if problem.subscriptions is None:
        return owners
    return np.where((owners != NOBODY) & problem.subscriptions[owners, problem.queue_of], owners, np.int32(NOBODY))
