"""Waiting until no query consumes in a group, for operations that cannot run beside consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_partq.core.errors import PartqError
from spark_partq.core.group.events import Leave
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.steps.leaving import check_inactive
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.replica.group_copies import check_not_copied
from spark_partq.storage.store import Store

_CHECK_EVERY_S = 0.2


@dataclass(frozen=True)
class SessionWait:
    """What an operation waits for that cannot run beside consumers.

    Attributes
    ----------
    group : str
        Its name.
    instances : tuple of str
        The members whose sessions must end, by name. It is not known yet whether they have died.
    most_s : float
        How long the wait takes at most, in seconds.
    """

    group: str
    instances: tuple[str, ...]
    most_s: float


Report = Callable[[SessionWait], None]


def await_inactive(store: Store, group: Group, *, decides: bool = True, report: Report = lambda _: None) -> None:
    """Wait until the sessions of members that send no more heartbeats have ended. A member that still sends heartbeats is an error.

    Parameters
    ----------
    decides : bool
        Take the members whose sessions have ended out of the group. Otherwise nothing is changed, and they may still be its
        members.
    report : function
        Called once before this waits, if it has to wait.

    Raises
    ------
    GroupActiveError
        If a member is alive.
    ReplicaError
        If the group is a copy and has members: they cannot be taken out in this store.
    """
    if not group.exists():
        return
    group.refresh()
    beats, observer = dict(group.acks.beats), Observer()
    rebalancer = Rebalancer(store, group.name) if decides else None
    members = group.state.members
    if members:
        check_not_copied(group)
        most_ms = max(member.session_timeout_ms for member in members.values())
        report(SessionWait(group.name, tuple(sorted(members)), most_ms / 1000))
    while group.state.members:
        if rebalancer is not None:
            _take_out(rebalancer)
        group.refresh()
        alive = [
            m for m in group.state.members.values() if group.acks.beats.get(m.incarnation) != beats.get(m.incarnation)
        ]
        if alive:
            check_inactive(group.state)
        due = observer.due(group.state, group.acks, int(store.runtime.monotonic_s() * 1000))
        if not decides and len([event for event in due if isinstance(event, Leave)]) == len(group.state.members):
            return
        store.runtime.sleep(_CHECK_EVERY_S)


def _take_out(rebalancer: Rebalancer) -> None:
    """Decide what is due. If the assignor fails, that waits as long as sessions may still end, as a group without members needs no assignor."""
    try:
        for _ in rebalancer.step():
            pass
    except PartqError as error:
        if not rebalancer.passes(error):
            raise
