"""Who says that it has what, and whose word counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Ints, Member, Owners, Problem


@dataclass(frozen=True)
class Claims:
    """What members say that they have.

    Attributes
    ----------
    has : int32[partitions]
        Index of the one whose claim counts and who subscribes to the queue, or `NOBODY`.
    by_anyone : bool[partitions]
        Whether somebody claims it at all: whoever gets it now must wait for that one.
    """

    has: Owners
    by_anyone: Bools


def claims(asked: Problem, members: Sequence[Member]) -> Claims:
    """Of two claims on one partition that of the higher generation counts, of a tie neither.

    Parameters
    ----------
    members : list of Member
        All of them, also those that `asked` leaves out.
    """
    claiming = [member for member in members if member.owned]
    rank = {member.id: i for i, member in enumerate(asked.members)}
    who = np.array([rank.get(member.id, NOBODY) for member in claiming], dtype=np.int32)
    at = asked.positions(list(chain.from_iterable(member.owned for member in claiming)))
    claim = np.repeat(np.arange(who.size), [len(member.owned) for member in claiming])[at >= 0]
    at = at[at >= 0]
    by_anyone = np.bincount(at, minlength=asked.has.size) > 0
    if np.count_nonzero(by_anyone) < at.size:
        at, claim = _undisputed(at, claim, np.array([member.generation for member in claiming]))
    has = np.full(asked.has.size, NOBODY, dtype=np.int32)
    has[at] = who[claim]
    return Claims(subscribed(asked, has), by_anyone)


def _undisputed(at: Ints, claim: Ints, generations: Ints) -> tuple[Ints, Ints]:
    """The claims that count, of several on one partition."""
    at, claim = np.unique(np.stack([at, claim]), axis=1)  # one that says it twice does not contradict itself
    order = np.lexsort((generations[claim], at))
    at, claim = at[order], claim[order]
    generation = generations[claim]
    last = np.append(at[1:] != at[:-1], True)
    tied = np.insert((at[1:] == at[:-1]) & (generation[1:] == generation[:-1]), 0, False)
    counts = last & ~tied
    return at[counts], claim[counts]


def subscribed(asked: Problem, has: Owners) -> Owners:
    """Without those that do not subscribe to the queue."""
    if asked.wants is None:
        return has
    return np.where((has != NOBODY) & asked.wants[has, asked.queue_of], has, np.int32(NOBODY))
