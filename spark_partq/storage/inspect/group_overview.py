"""A group in a line: its condition, and how many queries are in it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_partq.core.group.health import GroupCondition, condition
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.heartbeats import expired, heartbeats
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class GroupOverview:
    """A group as a list of groups shows it. `expired`: how many `members` sent no heartbeat for their session timeouts."""

    group: str
    state: GroupCondition
    members: int
    expired: int


def overview(store: Store, name: str) -> GroupOverview:
    """The group as it is now. Reads none of its queues.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError, NewerStoreError
    """
    group = open_group(store, name)
    gone = expired(heartbeats(group))
    return GroupOverview(name, condition(group.state, gone), len(group.state.members), len(gone))
