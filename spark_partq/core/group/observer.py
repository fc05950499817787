"""One process's timers for a group.

An observer trusts no time that another process wrote. A member's session is over when its heartbeat, a counter, has not changed
for its session timeout while this observer was watching. An observer times a holddown and a handoff from the moment at which it
first saw them. The first observer whose timer runs out proposes the step, and a compare-and-set decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_partq.core.group.acks import Acks
from spark_partq.core.group.events import AssignmentDue, DeadlinePassed, Event, HolddownOver, Leave
from spark_partq.core.group.facts import Member, PartitionState, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

# Between two calls of `due` at most this much time counts as watched. So neither a clock that jumps nor an observer that was
# stopped makes a session expire.
MAX_STEP_MS = 2_000


def session_over(member: Member, silent_ms: int) -> bool:
    """Whether the session of a member that has sent no heartbeat for this time is over."""
    return silent_ms >= member.session_timeout_ms


@dataclass
class Observer:
    """Timers of one process. Not shared and not stored.

    Parameters
    ----------
    incarnation : str
        The observer's own incarnation, which it never declares expired.
    """

    incarnation: str = ""
    _watched_ms: int = 0
    _last_ms: int | None = None
    _beats: dict[str, tuple[int, int]] = field(default_factory=dict)  # incarnation -> beat, since when
    _holddown: tuple[int, int] = (-1, 0)
    _handoffs: dict[tuple[PartitionId, int], int] = field(default_factory=dict)

    def due(self, state: GroupState, acks: Acks, now_ms: int) -> list[Event]:
        """The events of timers that have run out, for a group that was refreshed just now.

        Parameters
        ----------
        now_ms : int
            A clock of this process that does not go back. A step back counts as no time.
        """
        if self._last_ms is not None:
            self._watched_ms += min(max(now_ms - self._last_ms, 0), MAX_STEP_MS)
        self._last_ms = now_ms
        events = [*self._holddown_over(state), *self._deadlines(state), *self._expired(state, acks)]
        if state.assignment_due and not state.revoking:
            events.append(AssignmentDue())
        return events

    def _expired(self, state: GroupState, acks: Acks) -> list[Event]:
        seen, self._beats = self._beats, {}
        events: list[Event] = []
        for member in sorted(state.members.values(), key=lambda m: m.instance):
            beat = acks.beats.get(member.incarnation, 0)
            last, since = seen.get(member.incarnation, (-1, 0))
            if beat != last:
                since = self._watched_ms
            self._beats[member.incarnation] = (beat, since)
            silent = self._watched_ms - since
            if session_over(member, silent) and member.incarnation != self.incarnation:
                events.append(Leave(member.instance, member.incarnation, expired=True))
        return events

    def _holddown_over(self, state: GroupState) -> list[Event]:
        if state.status is not Status.HOLDDOWN:
            return []
        if self._holddown[0] != state.status_seq:
            self._holddown = (state.status_seq, self._watched_ms)
        over = self._watched_ms - self._holddown[1] >= state.rebalance_delay_ms
        return [HolddownOver(state.status_seq)] if over else []

    def _deadlines(self, state: GroupState) -> list[Event]:
        seen, self._handoffs = self._handoffs, {}
        events: list[Event] = []
        for partition_id, own in state.partitions.items():
            if own.state is not PartitionState.DRAINING:
                continue
            since = seen.get((partition_id, own.handoff), self._watched_ms)
            self._handoffs[partition_id, own.handoff] = since
            if self._watched_ms - since >= state.queues[partition_id[0]].max_handoff_time_ms:
                events.append(DeadlinePassed(partition_id, own.handoff))
        return events
