"""How a group looks to people and to probes: the status that its facts give it, and whether anybody is alive in it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from spark_partq.core.group.state import GroupState


class GroupCondition(StrEnum):
    """A group's status while a member of it is alive; otherwise why nobody consumes."""

    READY = "Ready"
    HOLDDOWN = "Holddown"
    REBALANCING = "Rebalancing"
    EXPIRED = "Expired"  # it has members, and the session of none is alive
    EMPTY = "Empty"  # it has no members
    DEAD = "Dead"  # it was deleted


# In these nobody reads for the group, and no query that has ended says why: somebody has to do something.
BROKEN = frozenset({GroupCondition.EXPIRED, GroupCondition.DEAD})


def condition(state: GroupState, expired: Collection[str]) -> GroupCondition:
    """The condition of a group.

    Parameters
    ----------
    expired : collection of str
        The instances whose sessions have expired, which nobody has taken out yet.
    """
    if not state.exists:
        return GroupCondition.DEAD
    if not state.members:
        return GroupCondition.EMPTY
    if state.members.keys() <= set(expired):
        return GroupCondition.EXPIRED
    return GroupCondition(state.status)
