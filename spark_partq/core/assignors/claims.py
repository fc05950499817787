"""Who says that it has what, and whose word counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_partq.core.assignors.model import NOBODY, Bools, Member, Owners, Problem


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
    rank = {member.id: i for i, member in enumerate(asked.members)}
    has = np.full(asked.has.size, NOBODY, dtype=np.int32)
    by_anyone = np.zeros(has.size, dtype=np.bool_)
    highest = np.full(has.size, np.iinfo(np.int64).min)
    for member in members:
        if not member.owned:
            continue
        i = rank.get(member.id, NOBODY)
        at = np.unique(asked.positions(member.owned))
        at = at[at >= 0]
        higher, same = member.generation > highest[at], member.generation == highest[at]
        by_anyone[at] = True
        highest[at] = np.maximum(highest[at], member.generation)
        has[at] = np.where(higher, i, np.where(same, NOBODY, has[at]))
    if asked.wants is not None:
        has[(has != NOBODY) & ~asked.wants[has, asked.queue_of]] = NOBODY
    return Claims(has, by_anyone)
