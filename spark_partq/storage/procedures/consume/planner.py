"""Plans a query's micro-batches, in Spark's planner process (Q7).

Spark asks for the end of the next micro-batch only when every earlier one has been executed and committed. So the planner acknowledges when it
is asked. It refreshes the group, acknowledges what is finished, releases what has drained, refreshes the partitions, and plans, in this order.
`tasks(start, end)` takes everything from its arguments, so a replayed batch is the same batch.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import NamedTuple

import numpy as np

from spark_partq.core.delivery.admission import Backlog, Limits, admit, share
from spark_partq.core.delivery.barrier import replayable
from spark_partq.core.delivery.member import may_be_dead, plannable, replayed, start
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import DataLossError, NewerStoreError, PartqError
from spark_partq.core.group.facts import Member, Ownership, Status
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import Barrier
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.consume.application import Connect, no_application
from spark_partq.storage.procedures.consume.between_calls import Coordinator, Heartbeats, remove_drained_partitions
from spark_partq.storage.procedures.consume.gate import Gate
from spark_partq.storage.procedures.consume.gone import Gone
from spark_partq.storage.procedures.consume.left_out import LeftOut
from spark_partq.storage.procedures.consume.loads import LoadMeter
from spark_partq.storage.procedures.consume.membership import Ack, Membership
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Piece, slices

# Spark asks an idle query again after about 10 ms. The wait grows from the first value to the second while no message comes, as requests to an
# object store cost money.
_WAIT_LOCAL_S, _WAIT_REMOTE_S = (0.01, 0.1), (0.1, 1.0)

Offsets = dict[PartitionId, int]


class Assigned(NamedTuple):
    """The flow of this member that gets a planned range, and the offset below which messages may have been delivered before."""

    flow: int
    delivered: int


class _Plan(NamedTuple):
    """A micro-batch. `end` is the offset at its end, in the form that Spark keeps."""

    end: str
    ranges: dict[PartitionId, Range]
    assigned: dict[PartitionId, Assigned]


class Planner:
    """Plans micro-batches as a member of the group. Used by one thread of the planner process.

    Parameters
    ----------
    group, instance : str
        The names of the group and of this member, if the user gives none.
    connect : function
        Connects to the user's driver.
    """

    def __init__(
        self, settings: ConsumerSettings, group: str, instance: str, connect: Connect = no_application
    ) -> None:
        self._settings, self._store = settings, settings.store
        self._subscription = Subscription(settings)
        self._instance = settings.instance_id or instance
        self._last_plan = _Plan("", {}, {})
        self._idle = 0
        self._stop_offsets: Offsets | None = None
        self._beats_before: dict[str, int] | None = None  # of all members, when this one had nothing left to read
        self._batches = itertools.count(1)
        self._barriers: dict[str, Barrier] = {}
        self._blocked_by_barrier = self._window_is_full = False  # of the last plan
        self._last_served: dict[PartitionId, int] = {}  # the number of the last batch that took messages of it
        self._loads = LoadMeter(self._store.runtime.monotonic_s)
        me = Member(
            self._instance, "", settings.flows, settings.session_timeout_ms, settings.assignors,
            tuple(sorted(settings.queues)), settings.queue_pattern, cooperative=settings.cooperative,
            static=settings.instance_id is not None, manual=settings.manual_acknowledgement, weight=settings.weight,
        )  # fmt: skip
        self.membership = Membership(settings, group, me, self._subscription, self._loads, connect)
        self._group = self.membership.group
        self._left_out = LeftOut(self._subscription, self.membership)
        self._gone = Gone(settings, self.membership)
        self._gate = Gate(self.membership, settings.max_barrier_wait_ms)
        self._subscription.refresh()
        if self._group.has_table():
            self._group.refresh()
        self._subscription.first_starts(self._group.state)  # wrong starting offsets are refused before anything changes

    def stop_at_current_ends(self) -> None:
        """Plan no message that is written after this call (Trigger.AvailableNow)."""
        self._stop_offsets = {p: table.next_offset for p, table in self._subscription.tables()}

    # ---- offsets
    def check_checkpoint(self, planned: StreamOffset) -> None:
        """Refuse a checkpoint of another group or queue: raises `CheckpointMismatchError`."""
        self._subscription.check_checkpoint(planned, self._group.name)

    def latest(self) -> StreamOffset:
        """The ends of the partitions, as of the last refresh."""
        return self._offset(
            {p: Range(0, table.next_offset, table.next_offset) for p, table in self._subscription.tables()}
        )

    def next(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        """Plan the next micro-batch, now that `done` is finished. Returns its end; None if there is nothing to do."""
        while True:
            if self._idle:
                least, most = _WAIT_LOCAL_S if self._store.is_local else _WAIT_REMOTE_S
                self._store.runtime.sleep(min(least * 2 ** (self._idle - 1), most))
            with self.membership.work.planning(), self.membership.lock:
                self.membership.join_unless_member(self._start_threads, anew=not done.queue_ids)
                end = self._plan_as_of_now(done, limits)
                if end is not None or self._stop_offsets is None or self._is_at_end():
                    self._beats_before = None
                    return end

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[tuple[Piece, ...]]:
        """What the task of each flow reads: the rows of ``(start, end]`` of its partitions, in order."""
        with self.membership.lock:
            if start.by_id == end.by_id:
                return []
            self.membership.join_unless_member(self._start_threads)
            if self._last_plan.end != str(end.to_json()):
                self._last_plan = self._replay(end)
            _, ranges, assigned = self._last_plan  # the same for each scan, as in a union with itself
            flows: list[list[Piece]] = [[] for _ in range(self._settings.flows)]
            tables, queues = dict(self._tables()), self._subscription.queues
            filled = [p for p, r in ranges.items() if r.end > r.start and p in tables]  # its queue may be gone since
            for partition_id in sorted(filled, key=lambda p: (tables[p].queue, p[1])):
                flow, delivered = assigned[partition_id]
                state = queues[partition_id[0]].state
                flows[flow % len(flows)] += self._pieces(state, tables[partition_id], ranges[partition_id], delivered)
        return [tuple(pieces) for pieces in flows]

    def flow_name(self, flow: int) -> str:
        return f"{self._instance}/{flow}"

    def leave(self) -> None:
        """Leave the group, as the query has ended. If only a newer program may write, the member's session expires instead."""
        with contextlib.suppress(NewerStoreError):
            if self._stop_offsets is not None:  # the query may end before the coordinator's first step
                remove_drained_partitions(self.membership)
            self.membership.leave()

    def _start_threads(self) -> None:
        heartbeats = Heartbeats(self.membership, self._settings.max_poll_interval_ms)
        self._store.runtime.start_thread("partq-heartbeats", heartbeats.run)
        self._store.runtime.start_thread("partq-coordinator", Coordinator(self.membership).run)

    def _offset(self, ranges: dict[PartitionId, Range]) -> StreamOffset:
        return self._subscription.offset(self._group.name, self._instance, ranges)

    def _tables(self) -> list[tuple[PartitionId, PartitionTable]]:
        """Every table that the queues ever had: a replayed batch may have a partition that is no longer in use."""
        queues = self._subscription.queues
        return [
            ((queue.state.queue_id, n), queue.table(n)) for queue in queues.values() for n in queue.state.all_partitions
        ]

    def _is_at_end(self) -> bool:
        """Whether a query that reads all and ends may end: it knows which partitions it gets, and the owners of the others are alive.

        So the query does not end while a killed process still owns partitions that no other process reads.
        """
        state, acks, ends = self._group.state, self._group.acks, self._stop_offsets or {}
        if self.membership.failure is not None:
            raise self.membership.failure  # partitions that this query may have to read cannot be assigned
        if not self.membership.is_member():  # its own call unbound it: the next one joins again, and may get partitions
            return False
        if state.status is not Status.READY or self._blocked_by_barrier or self._window_is_full:
            return False
        if self._beats_before is None:
            self._beats_before = dict(acks.beats)
        return not may_be_dead(state, acks, self.membership.incarnation, self._beats_before, ends)

    # ---- one plan
    def _plan_as_of_now(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        """Plan. Messages count as lost only if the next try finds the group's facts unchanged. While this process was slow, another owner may
        have read on, and maintenance removed what it had read."""
        seq = -1
        while True:
            try:
                return self._plan(done, limits)
            except DataLossError:
                if seq == self._group.state.seq:
                    raise
                seq = self._group.state.seq

    def _plan(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        finished = {} if done.by_hand else done.by_id  # also if this query no longer acknowledges by hand
        acks = self.membership.acknowledge_finished(finished)
        self._refresh(acks)
        self._commit_floors(acks)
        while True:
            mine = plannable(self._group.state, self.membership.incarnation)
            tables = {p: table for p, table in self._subscription.tables() if p in mine}
            starts = {p: self._start(p, table, finished.get(p)) for p, table in tables.items()}
            acks += self._gone.acks(self._subscription.queues, tables, starts, acks)
            ends = self._deliverable_ends(tables, starts)
            due = self._left_out.due(tables, starts, ends)
            if not due:
                deliverable = ends
                ends = self._left_out.limited(starts, self._given(tables, starts, ends, limits))
                if not acks or ends != starts or deliverable == starts:
                    break
            self.membership.commit(acks)  # so each position is at the messages that are left out
            self._left_out.leave_out(due, tables)
        self._last_served.update(dict.fromkeys((p for p in starts if ends[p] > starts[p]), next(self._batches)))
        self.membership.report_changes()  # the changes that this call's own decisions made
        ranges = {p: Range(mine[p].epoch, starts[p], ends[p]) for p in starts}
        if all(ends[p] == starts[p] for p in starts):
            self.membership.commit_plan(acks, {})
            self._idle = min(self._idle + 1, 8)
            return None
        assigned: dict[PartitionId, Assigned] = {}

        def mark() -> None:
            """Messages that others planned first count as delivered, even if planned after a decision that this process has not seen (H4)."""
            assigned.update({p: Assigned(_flow_number(mine[p]), self._group.delivered(p)) for p in ranges})

        self.membership.commit_plan(acks, ranges, self._left_out.attempts(ranges), mark)
        self._idle = 0
        end = self._offset(ranges)
        # This process delivers the whole range, whatever becomes of the partition: if it comes back, the range counts as delivered.
        self._last_plan = _Plan(str(end.to_json()), ranges, assigned)
        return end

    def _given(
        self, tables: dict[PartitionId, PartitionTable], starts: Offsets, ends: Offsets, limits: Limits
    ) -> Offsets:
        """Each partition's end, by the limits and by messages that are left out first. Partitions that can go on do not wait for the others."""
        while True:
            admitted = self._admitted(tables, starts, ends, limits)
            free = self._left_out.without_left_out(tables, starts, admitted)
            if free != starts or admitted == starts:
                return free
            ends = {p: starts[p] if admitted[p] > starts[p] else end for p, end in ends.items()}

    def _refresh(self, acks: list[Ack]) -> None:
        """Refresh the queues and their partitions. What is decided about them may take partitions away, so `acks` are committed before that."""
        subscription, member = self._subscription, self.membership
        if subscription.check_is_due():
            member.decide_queue_changes(acks)
        member.follow_group()
        try:
            subscription.refresh()
        except PartqError:  # perhaps because a queue was deleted a moment ago
            member.decide_queue_changes(acks)
            member.follow_group()
            subscription.refresh()
        partition_changes = subscription.partition_changes(self._group.state)
        if partition_changes is not None:
            member.commit(acks)
            member.decide(lambda: [partition_changes])
        self._loads.measure({p: table.next_offset for p, table in subscription.tables()})

    def _commit_floors(self, acks: list[Ack]) -> None:
        """Commit floors that other partitions wait for (S5), and before them `acks`."""
        self._barriers = self._subscription.barriers(self._group.state)
        if any(barrier.missing for barrier in self._barriers.values()):
            self.membership.commit(acks)
            for queue_id, barrier in self._barriers.items():
                self._group.commit_floors(queue_id, barrier.missing)
            self._barriers = self._subscription.barriers(self._group.state)
        self.membership.drained_queues = self._subscription.drained(self._group.state)

    def _replay(self, planned: StreamOffset) -> _Plan:
        """Plan again what is left of a micro-batch that was planned before a restart. All of its messages may have been delivered before."""
        tables = {p: table for p, table in self._tables() if (table.queue, table.partition) in planned.ranges}
        # Refreshed before the group. Otherwise another owner might have read on, and maintenance removed what that owner had read.
        self._store.map(lambda table: table.refresh(), list(tables.values()))
        self.membership.refresh()
        if self._settings.manual_acknowledgement and not planned.by_hand:
            self._left_out.give_up(planned.by_id)
        if not planned.by_hand:  # the end of such a micro-batch acknowledges nothing
            self._left_out.leave_to_others(planned.by_id)
        kept = self._left_of(planned)
        if self._left_out.isolate(kept):
            kept = self._left_of(planned)
        self.membership.commit_plan([], kept, self._left_out.attempts(kept))
        assigned = {p: Assigned(_flow_number(self._group.state.partitions[p]), r.end) for p, r in kept.items()}
        return _Plan(str(planned.to_json()), kept, assigned)

    def _left_of(self, planned: StreamOffset) -> dict[PartitionId, Range]:
        state, acks = self._group.state, self._group.acks
        manual = planned.by_hand or self._settings.manual_acknowledgement
        kept = replayed(state, acks, self.membership.incarnation, planned.by_id, manual)
        return replayable(self._subscription.barriers(state), kept) if manual else kept

    def _pieces(self, queue: QueueState, table: PartitionTable, planned: Range, delivered: int) -> list[Piece]:
        """The slices of a range. Messages below `delivered` may have been delivered before."""
        first = self._check_available(queue, table, planned.start, planned.end)
        cut = min(max(first, delivered), planned.end)
        return [
            Piece(part, planned.epoch, redelivered)
            for low, high, redelivered in ((first, cut, True), (cut, planned.end, False))
            if high > low
            for part in slices(queue, table.partition, table.index, low, high)
        ]

    # ---- where a partition's next range starts and ends
    def _start(self, partition_id: PartitionId, table: PartitionTable, planned: Range | None) -> int:
        """Where the next micro-batch of a partition starts; `planned` is its range in the last one."""
        if self._settings.manual_acknowledgement:
            # Messages that the application did not acknowledge before a restart are delivered again.
            planned = self.membership.last_planned(partition_id)
        first = start(self._group.state, self._group.acks, self.membership.incarnation, partition_id, planned)
        return self._check_available(self._subscription.queues[partition_id[0]].state, table, first, table.next_offset)

    def _check_available(self, queue: QueueState, table: PartitionTable, start: int, end: int) -> int:
        # What the queue gave up with the partition, or copied elsewhere, is not missing, also if the group joined on a map from before that.
        start = max(start, min(end, queue.removed_ends.get(table.partition, 0)))
        first, last = table.first_offset, table.next_offset
        context = {"queue": table.queue, "partition": table.partition, "group": self._group.name}
        if max(start, end) > last:
            raise DataLossError(
                f"partition {table.partition} of queue {table.queue!r} ends at offset {last}, but group {self._group.name!r} has "
                f"already been given messages up to {max(start, end) - 1}: the partition was put back to an older state. Restore it, "
                "or go on with another group and a new checkpointLocation",
                **context,
            )
        if start < min(first, end) and self._settings.fail_on_data_loss:
            raise DataLossError(
                f"messages {start} to {min(first, end) - 1} of partition {table.partition} of queue {table.queue!r} were removed before "
                f"group {self._group.name!r} read them (retention_ms or max_bytes of the queue); set failOnDataLoss=false to go on behind them",
                **context,
            )
        return max(start, min(first, end))

    def _deliverable_ends(self, tables: dict[PartitionId, PartitionTable], starts: Offsets) -> Offsets:
        """How far each partition may be delivered: to its end, or to a message that waits for older messages of other partitions (S5)."""
        ends = {p: table.next_offset for p, table in tables.items()}
        if self._stop_offsets is not None:
            ends = {p: max(starts[p], min(end, self._stop_offsets.get(p, 0))) for p, end in ends.items()}
        limits = self._gate.limits(self._barriers, starts, ends)
        self._blocked_by_barrier = any(limits[p] < ends[p] for p in limits)
        return {**ends, **limits}

    def _admitted(
        self, tables: dict[PartitionId, PartitionTable], starts: Offsets, ends: Offsets, limits: Limits
    ) -> Offsets:
        if self._settings.max_unacked_per_flow is not None:
            ends = self._within_unacked(starts, ends, self._settings.max_unacked_per_flow)
        waiting = self._longest_waiting([p for p in starts if ends[p] > starts[p]])
        if not limits or not waiting:
            return ends
        rows = admit([Backlog(*tables[p].index.shares(starts[p], ends[p])) for p in waiting], limits)
        admitted = dict(zip(waiting, rows, strict=True))
        return {p: starts[p] + admitted.get(p, 0) for p in starts}

    def _within_unacked(self, starts: Offsets, ends: Offsets, most: int) -> Offsets:
        """Ends such that no flow has more than `most` messages that are delivered and not acknowledged (H5)."""
        flows: dict[str, list[PartitionId]] = {}
        for partition_id in self._longest_waiting(list(starts)):
            flows.setdefault(self._group.state.partitions[partition_id].flow or "", []).append(partition_id)
        within = {}
        for flow, mine in flows.items():
            room = max(0, most - self._unacked(flow))
            rows = share(np.array([ends[p] - starts[p] for p in mine], dtype=np.int64), room)
            within.update({p: starts[p] + int(n) for p, n in zip(mine, rows, strict=True)})
        self._window_is_full = within != ends
        return within

    def _longest_waiting(self, partitions: list[PartitionId]) -> list[PartitionId]:
        """Partitions that have waited longest come first; then by the queue's name and the number."""
        names = {queue_id: name for name, queue_id in self._subscription.queue_ids.items()}
        return sorted(partitions, key=lambda p: (self._last_served.get(p, 0), names[p[0]], p[1]))

    def _unacked(self, flow: str) -> int:
        """How many messages a flow was given and has not acknowledged, draining partitions included. 0 without manual acknowledgement."""
        if not self._settings.manual_acknowledgement:
            return 0
        total = 0
        for partition_id in self._group.state.owned(flow):
            last = self.membership.last_planned(partition_id)
            if last is not None:
                total += max(0, last.end - (self._group.position(partition_id) or 0))
        return total


def _flow_number(own: Ownership) -> int:
    """The number of the owning flow in its instance."""
    return int((own.flow or "").rpartition("/")[2])
