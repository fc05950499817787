"""When a group last got a heartbeat of each member, for people and for probes.

A process that decides about a member watches its heartbeats itself (`core.group.observer`). A command that only looks cannot wait
for that. So the age of a heartbeat is measured by this machine's clock, from the moment at which the member's machine wrote it. No
decision uses it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_partq.core.group.facts import Kind, Member
from spark_partq.core.group.observer import session_over
from spark_partq.storage.group.handle import Group
from spark_partq.storage.replica.group_copies import is_copy
from spark_partq.storage.rows import Row

# How many of the last facts are searched for recent events.
RECENT_FACTS = 1_000


@dataclass(frozen=True)
class Heartbeat:
    """What is known of a member's last heartbeat.

    Attributes
    ----------
    age_s : float or None
        Seconds since the member's last heartbeat; None if the member has not sent a heartbeat yet.
    silent_s : float
        The same; if the member has not sent a heartbeat yet, seconds since it joined.
    expired : bool
        Whether the member was silent for so long that its session is over: the next process that decides about the group takes the member out.
    """

    age_s: float | None
    silent_s: float
    expired: bool


def heartbeats(group: Group, facts: Sequence[Row] | None = None) -> dict[str, Heartbeat]:
    """The last heartbeat of each member, by instance, as of the group's last refresh.

    Parameters
    ----------
    facts
        The group's last facts, if they are known; they are read only for a member that has not sent a heartbeat yet.
    """
    now, heard = group.store.now(), group.heard_at()
    members = group.state.members.values()
    joined: Mapping[str, dt.datetime] = {}
    if any(member.incarnation not in heard for member in members):
        known = group.recent_facts(RECENT_FACTS) if facts is None else facts
        joined = _joined(members_of=[member.incarnation for member in members], facts=known)
    found = {}
    for member in members:
        at = heard.get(member.incarnation)
        since = joined.get(member.incarnation, now) if at is None else at
        found[member.instance] = _heartbeat(member, at is not None, max(0.0, (now - since).total_seconds()))
    if expired(found) and is_copy(group):  # heartbeats of a copy come when the replicator copies them
        return {instance: replace(beat, expired=False) for instance, beat in found.items()}
    return found


def expired(beats: Mapping[str, Heartbeat]) -> frozenset[str]:
    """The instances whose sessions have expired."""
    return frozenset(instance for instance, beat in beats.items() if beat.expired)


def _heartbeat(member: Member, beaten: bool, silent_s: float) -> Heartbeat:
    silent_s = round(silent_s, 3)
    return Heartbeat(silent_s if beaten else None, silent_s, session_over(member, int(silent_s * 1000)))


def _joined(members_of: Sequence[str], facts: Sequence[Row]) -> dict[str, dt.datetime]:
    """When processes joined. A process whose joining is not among the facts counts as joined at the first of them."""
    if not facts:
        return {}
    first: dt.datetime = facts[0]["at"]
    told: dict[str, dt.datetime] = {row["incarnation"]: row["at"] for row in facts if row["kind"] == Kind.MEMBER_JOINED}
    return {incarnation: told.get(incarnation, first) for incarnation in members_of}
