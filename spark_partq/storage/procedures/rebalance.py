"""The rebalancer's loop without a consumer: refresh groups, decide what is due (W1).

Every consumer does the same for its own group. This loop is for groups whose consumers are all gone or slow. It owns nothing
and may run in any number of processes, as a compare-and-set chooses between all processes that decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from spark_partq.core.errors import (
    AssignorError,
    CorruptTableError,
    GroupNotFoundError,
    NotAStoreError,
    PartqError,
    UnknownAssignorError,
)
from spark_partq.core.group.facts import GroupFact, Status
from spark_partq.core.group.observer import MAX_STEP_MS, Observer
from spark_partq.storage.group.handle import Group, list_groups, open_group
from spark_partq.storage.queue.control import user_and_host
from spark_partq.storage.replica.group_copies import is_copy
from spark_partq.storage.store import Store

# A longer wait between two refreshes would count as time in which no process watched.
MAX_EVERY_S = MAX_STEP_MS / 1000
# How often the loop searches for new groups.
_LIST_EVERY_MS = 5_000
# The errors of an assignment that is due; and for how much longer than its session a dead member may be in the group.
_OF_ASSIGNORS, _SPARE_MS = (AssignorError, UnknownAssignorError), 2_000


@dataclass
class _Watched:
    """A group, and what was seen of it since it has been watched."""

    group: Group
    observer: Observer = field(default_factory=Observer)
    first_beats: dict[str, int] = field(default_factory=dict)
    first_ms: dict[str, int] = field(default_factory=dict)  # when each incarnation was first seen

    def decide(self, now_ms: int) -> list[GroupFact]:
        group = self.group
        group.refresh()
        for member in group.state.members.values():
            self.first_beats.setdefault(member.incarnation, group.acks.beats.get(member.incarnation, 0))
            self.first_ms.setdefault(member.incarnation, now_ms)
        due = self.observer.due(group.state, group.acks, now_ms)
        if not due or is_copy(group):
            return []
        return group.decide(lambda: self.observer.due(group.state, group.acks, now_ms), f"rebalancer {user_and_host()}")

    def awaits_sessions(self, now_ms: int) -> bool:
        """Whether a member may have died, and its session is not over yet."""
        beats = self.group.acks.beats
        return any(
            beats.get(m.incarnation, 0) == self.first_beats.get(m.incarnation)
            and now_ms - self.first_ms.get(m.incarnation, now_ms) <= m.session_timeout_ms + _SPARE_MS
            for m in self.group.state.members.values()
        )

    @property
    def settled(self) -> bool:
        """The group is Ready, and every member was seen to be alive; or it is a copy, for which its primary's processes decide."""
        if is_copy(self.group):
            return True
        state, beats, first = self.group.state, self.group.acks.beats, self.first_beats
        incarnations = [member.incarnation for member in state.members.values()]
        alive = all(i in first and beats.get(i, 0) != first[i] for i in incarnations)
        return state.status is Status.READY and alive


class Rebalancer:
    """Watches one group, or all groups of a store, including groups that are made meanwhile. Used by one thread.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
        At once.
    """

    def __init__(self, store: Store, group: str | None = None) -> None:
        self._store, self._only = store, group
        self._watched: dict[str, _Watched] = {}
        self._listed_ms: int | None = None
        if group is not None:
            self._watched[group] = _Watched(open_group(store, group))
        else:
            store.check_exists()

    @property
    def groups(self) -> list[Group]:
        return [watched.group for watched in self._watched.values()]

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to wait for: each group is Ready, each member was seen to be alive or has expired."""
        return all(watched.settled for watched in self._watched.values())

    def passes(self, error: PartqError) -> bool:
        """Whether this is an error of an assignor that may become irrelevant, as sessions end and the group may then need no assignment."""
        now_ms = int(self._store.runtime.monotonic_s() * 1000)
        return isinstance(error, _OF_ASSIGNORS) and any(
            watched.awaits_sessions(now_ms) for watched in self._watched.values()
        )

    def step(self) -> Iterator[tuple[str, list[GroupFact]]]:
        """Decide what is due now; yields (group, facts) of each decision.

        Raises
        ------
        PartqError
            If a group cannot be read or written: the first such error, after all other groups were refreshed.
        """
        now_ms = int(self._store.runtime.monotonic_s() * 1000)
        self._list(now_ms)
        errors: list[PartqError] = []
        for name, watched in list(self._watched.items()):
            try:
                facts = watched.decide(now_ms)
            except CorruptTableError:
                errors += self._begin_again(name)
            except PartqError as error:
                errors.append(error)
            else:
                if not watched.group.state.exists:
                    self._forget(name)
                if facts:
                    yield name, facts
        if errors:
            raise errors[0]

    def _list(self, now_ms: int) -> None:
        if self._only is not None or (self._listed_ms is not None and now_ms - self._listed_ms < _LIST_EVERY_MS):
            return
        self._listed_ms = now_ms
        for name in list_groups(self._store):
            if name not in self._watched:
                self._watched[name] = _Watched(Group(self._store, name))

    def _begin_again(self, name: str) -> list[PartqError]:
        """Watch a group as if it were new, as it may have been created again. Returns the error if the group cannot be read even so."""
        group = Group(self._store, name)
        self._watched[name] = _Watched(group)
        try:
            if group.exists():
                group.refresh()
            else:
                self._forget(name)
        except CorruptTableError as error:
            return [error]
        return []

    def _forget(self, name: str) -> None:
        """Stop watching a group that was deleted; or watch it as if it were new, if it is the only one."""
        del self._watched[name]
        if self._only is not None:
            watched = self._watched[name] = _Watched(Group(self._store, name))
            watched.group = open_group(self._store, name)  # raises that it is gone


def run(
    rebalancer: Rebalancer,
    every_s: float,
    wait: Callable[[float], bool],
    report: Callable[[str, list[GroupFact]], None],
    complain: Callable[[PartqError], None] | None = None,
) -> None:
    """Decide what is due until there is nothing left to wait for; with `complain`, until `wait` returns True.

    Parameters
    ----------
    wait : function
        Waits this many seconds. Returns True, at once, if the loop shall stop.
    complain : function
        Called with an error, once for as long as the error stays the same; the loop goes on.
    """
    last_reported = ""
    while True:
        try:
            for name, facts in rebalancer.step():
                report(name, facts)
            last_reported = ""
        except (GroupNotFoundError, NotAStoreError):
            raise
        except PartqError as error:
            if complain is None:
                if not rebalancer.passes(error):
                    raise
            elif str(error) != last_reported:
                complain(error)
            last_reported = str(error)
        if (complain is None and rebalancer.settled) or wait(every_s):
            return
