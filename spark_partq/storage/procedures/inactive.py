"""Waiting until nobody consumes in a group, for what cannot be done beside consumers."""

from __future__ import annotations

from spark_partq.core.group.events import Leave
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.steps.leaving import check_inactive
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.store import Store

_CHECK_EVERY_S = 0.2


def await_inactive(store: Store, group: Group, *, decides: bool = True) -> None:
    """Let the sessions of members end that do not beat any more; not those of others.

    Parameters
    ----------
    decides : bool
        Take them out of the group. Else nothing is changed, and they may still be its members.

    Raises
    ------
    GroupActiveError
        If a member is alive.
    """
    if not group.exists():
        return
    group.refresh()
    beats, observer = dict(group.acks.beats), Observer()
    rebalancer = Rebalancer(store, group.name) if decides else None
    while group.state.members:
        for _ in rebalancer.step() if rebalancer is not None else ():
            pass
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
