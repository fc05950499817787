"""What a member does while its micro-batches run: it sends heartbeats, makes decisions that are due, acknowledges, and releases.

The heartbeat has its own thread and its own view of the group. So a living member does not expire because of a listener of the application, a
lock, or a slow read of other tables. The other thread decides on its own view, too, without the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_partq.core.delivery.member import membership_status, owned
from spark_partq.core.errors import AssignorError, CommitFailedError, StoreUnavailableError, UnknownAssignorError
from spark_partq.core.group.choice import choose
from spark_partq.core.group.events import Event, LoadsMeasured
from spark_partq.core.group.facts import PartitionState, Status
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group import assignors
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.drain import remove_drained
from spark_partq.storage.queue.handle import open_queue

# How often the group is refreshed. On a local disk a refresh that finds nothing new is two checks of a file for each table.
_TICK_LOCAL_S, _TICK_REMOTE_S = 0.1, 1.0
# For this time the next planner call may still acknowledge a finished micro-batch itself, in the commit of its next plan.
_PLANNER_PRECEDENCE_S = 0.2
# How often the loads are compared, for an assignor that uses them.
_LOADS_EVERY_S = 10.0
# How often the member checks if partitions that this group has drained can be removed.
_REMOVE_EVERY_S = 1.0

_log = logging.getLogger("spark_partq")


class Heartbeats:
    """Commits heartbeats of a member, as long as Spark calls its planner."""

    def __init__(self, member: Membership, max_poll_interval_ms: int) -> None:
        self._member, self._runtime = member, member.runtime
        self._view = member.work.view()
        self._max_poll_s = max_poll_interval_ms / 1000
        self._every_s = member.me.session_timeout_ms / 1000 / 3

    def run(self) -> None:
        """Commit heartbeats until the member stops."""
        while not self._member.stopping.wait(self._wait_s()):
            _logged(self._member, self.step)

    def _wait_s(self) -> float:
        """Time until the next heartbeat is due. The planner's commits are heartbeats, too."""
        return max(self._every_s / 10, self._every_s - (self._runtime.monotonic_s() - self._member.beaten_s))

    def step(self) -> None:
        now_s = self._runtime.monotonic_s()
        alive = now_s - self._member.called_s < self._max_poll_s
        if alive and now_s - self._member.beaten_s >= self._every_s:
            self._view.refresh()
            self._member.beat(self._view)


class Coordinator:
    """Decides, acknowledges and releases while micro-batches run."""

    def __init__(self, member: Membership) -> None:
        self._member, self._runtime = member, member.runtime
        self._view = member.work.view()
        self._observer = Observer()
        self._was_member = True  # as of the last step; its threads begin when it has joined
        self._loads_s = self._removed_s = self._runtime.monotonic_s()

    def run(self) -> None:
        """Take a step at every tick until the member stops."""
        tick_s = _TICK_LOCAL_S if self._member.store.is_local else _TICK_REMOTE_S
        while not self._member.stopping.wait(tick_s):
            _logged(self._member, self.step)

    def step(self) -> None:
        member, view = self._member, self._view
        view.refresh()
        self._observer.incarnation = member.incarnation
        self._join_again_if_unbound()
        if self._due() or self._loads_are_due(view.state):
            self._decide()
        elif not view.state.assignment_due:  # another member has computed it
            member.failure = None
        member.acknowledge_batch(self._runtime.monotonic_s() - _PLANNER_PRECEDENCE_S)
        if any(own.state is PartitionState.DRAINING for own in owned(view.state, member.incarnation).values()):
            member.release_drained()
        self._remove_drained()

    def _join_again_if_unbound(self) -> None:
        """The group itself may have unbound this process. If it was no member before, a newer process of its instance was unbound."""
        state, member, was_member = self._view.state, self._member, self._was_member
        self._was_member = membership_status(state, member.me.instance, member.incarnation).registered
        if was_member and not self._was_member and member.me.instance in state.unbound:
            try:
                member.join_again()  # if the group refuses it, the planner meets the error, too
            except (StoreUnavailableError, CommitFailedError):
                self._was_member = True  # the next step tries it again
                raise
            self._was_member = True

    def _due(self) -> list[Event]:
        return self._observer.due(self._view.state, self._view.acks, int(self._runtime.monotonic_s() * 1000))

    def _decide(self) -> None:
        member = self._member
        loads: list[Event] = [LoadsMeasured()] if self._loads_are_due(self._view.state) else []
        try:
            member.decide(lambda: [*self._due(), *loads], self._view)
            member.failure = None
        except (AssignorError, UnknownAssignorError) as error:
            if str(error) != str(member.failure):
                _log.warning("group %s cannot be assigned: %s", member.name, error)
            # For the next planner call. If no assignment is due, the loads were only to be evened out.
            member.failure = error if self._view.state.assignment_due else None
        if loads:
            self._loads_s = self._runtime.monotonic_s()

    def _loads_are_due(self, state: GroupState) -> bool:
        """Only the member that joined first proposes the loads, as two members never measure exactly the same loads."""
        since_s = self._runtime.monotonic_s() - self._loads_s
        if since_s < _LOADS_EVERY_S or state.status is not Status.READY or not state.members:
            return False
        first = min(state.members.values(), key=lambda m: (m.order, m.instance))
        is_first = first.incarnation == self._member.incarnation
        return is_first and assignors.find(choose(state.members.values())[0]).loads

    def _remove_drained(self) -> None:
        """Not at every step, as it reads the tables of all groups."""
        now_s = self._runtime.monotonic_s()
        if self._member.drained_queues and now_s - self._removed_s >= _REMOVE_EVERY_S:
            self._removed_s = now_s
            remove_drained_partitions(self._member)


def remove_drained_partitions(member: Membership) -> None:
    """Remove partitions that a change of the count left to be drained, in queues where this group has drained them, once every group has (S2)."""

    def remove() -> None:
        for name in member.drained_queues:
            remove_drained(open_queue(member.store, name))

    _logged(member, remove)


def _logged(member: Membership, step: Callable[[], None]) -> None:
    """Log an error instead of ending the thread, as otherwise the session would expire. The planner meets the error, too."""
    try:
        step()
    except Exception as error:
        _log.warning("group %s: %s: %s", member.name, type(error).__name__, error)
