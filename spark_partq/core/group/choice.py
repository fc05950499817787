"""Which assignor and protocol a group uses (K7).

As in Kafka, an upgrade of a running group from an eager assignor to a cooperative one takes two rolling restarts. After the first,
each member lists the new assignor before the old one; after the second, only the new one. The group stays eager as long as any member
lists an assignor that supports only the eager protocol. So no two members ever follow different protocols.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from spark_partq.core.group.facts import Member, Protocol
from spark_partq.core.group.state import GroupState, View


def common_assignors(members: Collection[Member]) -> list[str]:
    """The assignors that all members list, in the order of the member that joined first."""
    oldest = min(members, key=lambda m: (m.order, m.instance))
    return [name for name in oldest.assignors if all(name in member.assignors for member in members)]


def choose(members: Collection[Member]) -> tuple[str, Protocol]:
    """The assignor and the protocol of a group.

    As in Kafka, each member votes for the first assignor of its list that all support. The most votes win; with equal votes, the one
    that is earlier in the list of the member that joined first.

    Parameters
    ----------
    members
        At least one, with an assignor in common.
    """
    common = common_assignors(members)
    votes = Counter(next(name for name in member.assignors if name in common) for member in members)
    assignor = max(common, key=lambda name: (votes[name], -common.index(name)))
    cooperative = all(member.cooperative for member in members)
    return assignor, Protocol.COOPERATIVE if cooperative else Protocol.EAGER


def count_decides(state: GroupState) -> bool:
    """Whether only the number of flows decides if partitions have to move: with `balanced`, if all flows are alike (R2, R3)."""
    members = state.members.values()
    return not members or (choose(members)[0] == "balanced" and alike(state.view()))


def alike(*views: View) -> bool:
    """Whether all flows read the same queues, with the same weight."""
    seen_by_all: list[list[Any]] = [seen[:2] for view in views for seen in view.values()]
    return all(seen == seen_by_all[0] for seen in seen_by_all)
