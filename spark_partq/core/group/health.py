"""A group's condition for people and probes: the status that its facts give it, and whether any member is alive."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from spark_partq.core.group.state import GroupState


class GroupCondition(StrEnum):
    """A group's status while a member is alive; otherwise, why no query consumes."""

    READY = "Ready"
    HOLDDOWN = "Holddown"
    REBALANCING = "Rebalancing"
    EXPIRED = "Expired"  # it has members, and all sessions have expired
    EMPTY = "Empty"  # it has no members
    DEAD = "Dead"  # it was deleted


# In these conditions no query reads for the group, and none has reported why: an operator has to act.
BROKEN = frozenset({GroupCondition.EXPIRED, GroupCondition.DEAD})


def condition(state: GroupState, expired: Collection[str]) -> GroupCondition:
    """The condition of a group.

    Parameters
    ----------
    expired : collection of str
        The instances whose sessions have expired and that are still in the group.
    """
    if not state.exists:
        return GroupCondition.DEAD
    if not state.members:
        return GroupCondition.EMPTY
    if state.members.keys() <= set(expired):
        return GroupCondition.EXPIRED
    return GroupCondition(state.status)
