"""A query's membership in its group: joining, acknowledging, releasing and leaving.

Three threads of the planner process share it. Spark's own thread plans micro-batches. Of the two threads of `between_calls` one sends
heartbeats; the other decides and releases during a long micro-batch. A thread that plans or releases holds `lock` from its refresh to
its commit. So it never plans on a state that is older than a release.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_partq.core.delivery.member import DeliveryTracker, finished, membership_status, owned
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import AssignorError, FencedError, GroupNotFoundError, ListenerError, UnknownAssignorError
from spark_partq.core.group.advice import begun_anew
from spark_partq.core.group.events import Drained, Event, Join, Leave, Stateful
from spark_partq.core.group.facts import Member, PartitionState
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group import assignors
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume.application import Connect, NullApplication
from spark_partq.storage.procedures.consume.loads import LoadMeter
from spark_partq.storage.procedures.consume.reports import Reports
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.consume.work import WorkMeter

Ranges = Mapping[PartitionId, Range]
Ack = tuple[PartitionId, int, int]  # partition, epoch, offset

# How long a query that is stopped waits for the driver to report its last micro-batch.
_LAST_BATCH_TIMEOUT_S = 2.0

Attempts = Mapping[PartitionId, int]
Before = Callable[[], None]
_UNCOUNTED: Attempts = {}

_log = logging.getLogger("spark_partq")


@dataclass(frozen=True)
class FinishedBatch:
    """A micro-batch that has finished, as the driver reported it, and when the report came."""

    received_s: float
    ranges: Ranges


class Membership:
    """One process's membership.

    Parameters
    ----------
    me : Member
        The member that joins; each join gets its own incarnation. A static member, which the user named, keeps its partitions through a
        restart: it never leaves the group; only its session expires (K6).
    subscription : Subscription
        The queues that it reads. Used under `lock`.
    loads : LoadMeter
        The loads that its planner measures.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        group: str,
        me: Member,
        subscription: Subscription,
        loads: LoadMeter,
        connect: Connect,
    ) -> None:
        self.store, self.name = settings.store, group
        self.runtime = settings.store.runtime
        self.me = replace(me, host=socket.gethostname())
        self._subscription, self._loads, self._connect = subscription, loads, connect
        self._manual = settings.manual_acknowledgement
        self._uses_loads = any(assignors.find(name).loads for name in me.assignors)  # else the group's does not, either
        self.work = WorkMeter(self.store, group)
        self.group = self.work.view()
        self.lock = self.runtime.lock()
        self.incarnation = ""
        self._deletions = 0  # of the group, when this process joined
        self._tracker = DeliveryTracker()
        self.beaten_s = self.called_s = self.runtime.monotonic_s()
        self._finished_batch: FinishedBatch | None = None
        self.stopping = self.runtime.event()
        self._terminated = self.runtime.event()
        self.failure: AssignorError | UnknownAssignorError | None = None  # of a decision between planner calls
        self._listener_error: ListenerError | None = None  # of a call between planner calls
        # Queues whose partitions that shall be removed are drained by this group; the planner sets it.
        self.drained_queues: list[str] = []
        self._reports = Reports(group, me)

    # ---- for the planner, under `lock`
    def join_unless_member(self, then: Callable[[], None], anew: bool = False) -> None:
        """Record that a planner call begins: so the query counts as alive. At the first call, join the group and call `then`.

        `anew`: the query has a fresh checkpoint.
        """
        self.called_s = self.runtime.monotonic_s()
        if not self.incarnation:
            if isinstance(self._reports.application, NullApplication):
                registration = {"group": self.name, "instance": self.me.instance, "store": self.store.uri}
                self._reports.application = self._connect(registration, self)
            self.me = replace(self.me, anew=anew)
            self._join()
            joined = self.group.state.members.get(self.me.instance)
            self.me = replace(self.me, anew=joined is not None and joined.anew)
            if self.me.anew:
                _log.warning("group %s: %s", self.name, begun_anew([self.me.instance]))
            then()

    def acknowledge_finished(self, done: Ranges) -> list[Ack]:
        """Refresh the group, and release what has drained now that `done` is finished. Returns the acknowledgements left to `commit_plan`.

        Raises
        ------
        FencedError
            If a newer process has this instance id.
        """
        self.refresh()
        acks = self._unacknowledged(done)
        if any(own.state is PartitionState.DRAINING for own in owned(self.group.state, self.incarnation).values()):
            self._acknowledge(acks, {}, {})
            acks = []
            self._release()
            self._reports.gained(self.group.state, self.incarnation)
        return acks

    def commit_plan(
        self, acks: list[Ack], ranges: Ranges, attempts: Attempts = _UNCOUNTED, before: Before = lambda: None
    ) -> None:
        """Commit what is finished, what is about to be delivered, and the deliveries' numbers. `before`: as in `Group.acknowledge`."""
        if acks or any(r.end > r.start for r in ranges.values()):
            self._acknowledge(acks, ranges, attempts, before)
        self._tracker.record(ranges)
        if ranges:
            self._terminated.clear()  # Spark may have reported late that an earlier run has ended
            self._reports.batch(self.group.state, self.incarnation)

    def last_planned(self, partition_id: PartitionId) -> Range | None:
        """The end of what this process has planned of a partition since it became the owner. None if it has planned nothing."""
        return self._tracker.last_planned(self.group.state, self.incarnation, partition_id)

    def given(self) -> dict[PartitionId, int]:
        """The offset up to which this process was given each partition that it owns, while no micro-batch runs."""
        return self._tracker.given(self.group.state, self.incarnation)

    def refresh(self) -> None:
        """Refresh the group, and report changes to the application; join again if the session has expired.

        Raises
        ------
        FencedError
            If a newer process has this instance id.
        CheckpointMismatchError, QueueNotFoundError, GroupNotFoundError
            If a queue was deleted, or the group.
        AssignorError, UnknownAssignorError
            If the group's assignor fails while this query owns nothing. A query that owns partitions goes on with them.
        """
        self._refresh_group()
        self._check_not_deleted()
        if self._listener_error is not None:
            raise self._listener_error
        if self.failure is not None and not owned(self.group.state, self.incarnation):
            raise self.failure
        if not set(self._subscription.queue_ids.values()) <= self.group.state.queues.keys():
            self._subscription.check()
        self._check_not_fenced()
        if not self.is_member():  # the session expired, or all were unbound: an ordinary event
            _log.warning("%s is no member of group %s any more; it joins again", self.me.instance, self.name)
            self._subscription.reopen()
            self._join()
        member = self.group.state.members.get(self.me.instance)
        if self._reports.stateful and member is not None and not member.stateful:
            self.decide(lambda: [Stateful(self.me.instance, self.incarnation)])
        self.report_changes()

    def _refresh_group(self) -> None:
        """Refresh the group, and take the names of its queues: another member may have found some, of which this one owns partitions now."""
        self.group.refresh()
        self._reports.know(self.group.state)

    def is_member(self) -> bool:
        """Whether this process is a member, as of the group's last refresh.

        Raises
        ------
        GroupNotFoundError
            If the group was deleted since this process joined it.
        """
        self._check_not_deleted()
        return membership_status(self.group.state, self.me.instance, self.incarnation).registered

    def _check_not_deleted(self) -> None:
        if self.group.state.deletions != self._deletions:
            raise self.group.deleted()

    def _check_not_fenced(self) -> None:
        if membership_status(self.group.state, self.me.instance, self.incarnation).fenced:
            newer = self.group.state.members[self.me.instance]
            self._reports.all_lost()
            raise FencedError(
                f"instance {self.me.instance!r} of group {self.name!r} was started again (on {newer.host}); this query stops, and "
                "what it has not acknowledged is delivered there. Give each running query its own instanceId and checkpoint",
                group=self.name,
                instance=self.me.instance,
            )

    def decide(self, events: Callable[[], Sequence[Event]], view: Group | None = None) -> None:
        """Commit what follows from the events; they are computed again after every refresh."""
        group = view or self.group
        loads = self._loads.loads(group.state, group.acks) if self._uses_loads else None
        group.decide(events, self.me.instance, loads)
        self._reports.know(group.state)

    def commit(self, acks: list[Ack]) -> None:
        """Commit what is finished, and empty the list."""
        self._acknowledge(acks, {}, _UNCOUNTED)
        acks.clear()

    def follow_group(self) -> None:
        """Go on with the queues that the group reads, as of its last refresh."""
        self._check_not_deleted()
        self._subscription.follow_group(self.group.state)

    def decide_queue_changes(self, acks: list[Ack]) -> None:
        """Let the group know queues that match the pattern and are new to it, and queues that were deleted. If there are any, first commit `acks`.

        They are listed again on the state on which this is decided: other members may have added or removed a queue meanwhile.
        """
        if any(self._subscription.listed(self.group.state)):
            self.commit(acks)
            self._decide_attached(lambda: self._subscription.queue_changes(self.group, self.is_member()))

    def _decide_attached(self, events: Callable[[], Sequence[Event]]) -> None:
        """As `decide`, where `events` attaches the group to queues. If the group was deleted meanwhile, no queue waits for it."""
        try:
            self.decide(events)
        except GroupNotFoundError:
            self._subscription.detach_deleted(self.group)
            raise

    def _join(self) -> None:
        incarnation = self.runtime.new_uuid().hex
        found = self._reports.application.request({"joins": True})
        application, executors = found.get("application", ""), tuple(found.get("executors", ()))
        me = replace(self.me, incarnation=incarnation, application=application, executors=executors)
        read, is_back = self._subscription, bool(self.incarnation)

        def join() -> Sequence[Event]:
            state = self.group.state
            if is_back:  # since the last refresh the group may have been deleted, or a newer process may have joined
                self._check_not_deleted()
                self._check_not_fenced()
            if not read.is_attached(self.group):  # no queue waits for a group that refuses this member
                self.group.check([Join(me, read.in_group, read.first_starts(state, is_back))])
            read.attach(self.group)
            return [Join(me, read.in_group, read.first_starts(state, is_back))]

        self._decide_attached(join)
        self.incarnation = incarnation
        self._deletions = self.group.state.deletions
        self.group.refresh()

    def _unacknowledged(self, done: Ranges) -> list[Ack]:
        if self._manual:
            return []
        state, acks = self.group.state, self.group.acks
        return [
            (partition_id, epoch, offset)
            for partition_id, epoch, offset in finished(state, self.incarnation, done)
            if offset > (state.position(partition_id, acks) or 0)
        ]

    def _acknowledge(self, acks: list[Ack], ranges: Ranges, attempts: Attempts, before: Before = lambda: None) -> None:
        if acks or ranges:
            self.beaten_s = self.runtime.monotonic_s()
            self.group.acknowledge(self.work.rows(self.incarnation, acks, ranges, attempts), before)

    def _release(self) -> None:
        """Release partitions that have drained, in one commit that also grants them to the new owners."""
        ready = self._tracker.drained(self.group.state, self.group.acks, self.incarnation)
        mine = owned(self.group.state, self.incarnation)
        if not ready or (len(ready) < len(mine) and any(own.target is None for own in mine.values())):
            return  # an eager rebalance revokes everything in one call, as applications expect (K4)
        told = {event.partition_id for event in ready}
        self._reports.revoked(sorted(told))

        def events() -> list[Drained]:
            """More may have drained meanwhile, of which the application was not told."""
            drained = self._tracker.drained(self.group.state, self.group.acks, self.incarnation)
            return [event for event in drained if event.partition_id in told]

        self.decide(events)

    def report_changes(self) -> None:
        """Report what the last decision took and gave, before a micro-batch that has the new partitions."""
        self._reports.changes(self.group.state, self.incarnation, self._tracker.planned_ends)

    # ---- between planner calls, in other threads
    def beat(self, view: Group) -> None:
        """Commit a heartbeat, if this process is a member as of the last refresh of `view`."""
        if membership_status(view.state, self.me.instance, self.incarnation).registered:
            self.beaten_s = self.runtime.monotonic_s()
            view.acknowledge(self.work.rows(self.incarnation))

    def release_drained(self) -> None:
        """Release partitions that have drained."""

        def release() -> None:
            self._refresh_group()
            self._release()

        self._unless_planning(release)

    def join_again(self) -> None:
        """Join again while a micro-batch runs: the group itself has unbound this process, and would take it for dead."""

        def join() -> None:
            if not self.stopping.is_set():  # else the query has ended, and nobody would leave for it
                self.refresh()

        self._unless_planning(join)

    def _unless_planning(self, act: Callable[[], None]) -> None:
        """Act, unless the planner is at work, which does the same."""
        if self._listener_error is None and self.lock.acquire(blocking=False):
            try:
                act()
            except ListenerError as error:
                self._listener_error = error  # for the next planner call: it stops the query
                raise
            finally:
                self.lock.release()

    def acknowledge_batch(self, received_before_s: float) -> None:
        """Acknowledge a micro-batch that was reported before that time, if no planner call has acknowledged it."""
        batch = self._finished_batch
        if batch is None or batch.received_s > received_before_s or not self.lock.acquire(blocking=False):
            return
        try:
            if self.called_s < batch.received_s:
                self.group.refresh()
                self._acknowledge(self._unacknowledged(batch.ranges), {}, {})
            if self._finished_batch is batch:  # else the driver has reported another one meanwhile
                self._finished_batch = None
        finally:
            self.lock.release()

    # ---- events of the driver
    def batch_finished(self, offset: StreamOffset, stateful: bool = False) -> None:
        # Else its queues are of another store. Some may have left the group before this process joined it.
        if not self._reports.names.keys().isdisjoint(offset.queue_ids.values()):
            self._reports.stateful |= stateful
            ranges = {} if offset.by_hand else offset.by_id
            self._finished_batch = FinishedBatch(self.runtime.monotonic_s(), ranges)

    def query_terminated(self) -> None:
        self._terminated.set()

    # ---- leaving
    def leave(self) -> None:
        """Acknowledge what has finished, and leave the group, as the query has ended."""
        if not self.incarnation or self.stopping.is_set():
            return
        self.stopping.set()
        deadline = self.runtime.monotonic_s() + _LAST_BATCH_TIMEOUT_S
        while self._in_flight() and not self._terminated.wait(0.02) and self.runtime.monotonic_s() < deadline:
            pass
        with self.lock:
            self._refresh_group()
            if self._finished_batch is not None:
                self._acknowledge(self._unacknowledged(self._finished_batch.ranges), {}, {})
            with contextlib.suppress(ListenerError):
                self._reports.lost(self.group.state, self.incarnation, self._tracker.planned_ends)
                self._reports.all_revoked(_LAST_BATCH_TIMEOUT_S)
            if not self.me.static:
                self.decide(lambda: [Leave(self.me.instance, self.incarnation)])

    def _in_flight(self) -> bool:
        """Whether a planned range may not have finished yet."""
        if self._manual or not self._reports.application.connected:
            return False
        done = {} if self._finished_batch is None else self._finished_batch.ranges
        with self.lock:
            self.group.refresh()
            state, acks = self.group.state, self.group.acks
            mine = owned(state, self.incarnation)
            ends = {p: max(state.position(p, acks) or 0, done[p].end if p in done else 0) for p in mine}
            planned = {p: self.last_planned(p) for p in mine}
            return any(last is not None and ends[p] < last.end for p, last in planned.items())
