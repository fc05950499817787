"""When a group last heard of its members, for people and for probes.

Who decides about a member watches its heartbeats himself (`core.group.observer`). Who only looks cannot wait for that: the age of a
heartbeat is measured by this machine's clock from the moment at which the member's machine wrote it. Nothing is decided by it.
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

# So many of the last facts are searched for what is recent.
RECENT_FACTS = 1_000


@dataclass(frozen=True)
class Heartbeat:
    """What is known of a member's last sign of life.

    Attributes
    ----------
    age_s : float or None
        Seconds since its last heartbeat; None if it has not sent one yet.
    silent_s : float
        The same, or since it joined.
    expired : bool
        So long that its session is over: the next who decides about the group takes it out.
    """

    age_s: float | None
    silent_s: float
    expired: bool


def heartbeats(group: Group, facts: Sequence[Row] | None = None) -> dict[str, Heartbeat]:
    """The last sign of life of each member, by instance, as of the group's last refresh.

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
    if expired(found) and is_copy(group):  # its heartbeats come when the replicator copies them
        return {instance: replace(beat, expired=False) for instance, beat in found.items()}
    return found


def expired(beats: Mapping[str, Heartbeat]) -> frozenset[str]:
    """The instances whose sessions have expired."""
    return frozenset(instance for instance, beat in beats.items() if beat.expired)


def _heartbeat(member: Member, beaten: bool, silent_s: float) -> Heartbeat:
    silent_s = round(silent_s, 3)
    return Heartbeat(silent_s if beaten else None, silent_s, session_over(member, int(silent_s * 1000)))


def _joined(members_of: Sequence[str], facts: Sequence[Row]) -> dict[str, dt.datetime]:
    """When processes joined; one of which the facts do not tell that did so before the first of them."""
    if not facts:
        return {}
    first: dt.datetime = facts[0]["at"]
    told: dict[str, dt.datetime] = {row["incarnation"]: row["at"] for row in facts if row["kind"] == Kind.MEMBER_JOINED}
    return {incarnation: told.get(incarnation, first) for incarnation in members_of}
