"""A query's micro-batches: what Spark's planner process decides (Q7).

Spark asks for the end of the next micro-batch only when every earlier one has been executed and committed; so that is where the group
acknowledges. In this order: look at the control table, acknowledge what is finished, release what has drained, look at the
partitions, plan. `tasks(start, end)` reads everything from its arguments, so a replayed batch is the same batch.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from spark_partq.core.delivery.admission import Backlog, Limits, admit, share
from spark_partq.core.delivery.member import plannable, replayed, start
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import DataLossError, PartqError
from spark_partq.core.group.facts import Member, Ownership, Status
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import Barrier
from spark_partq.storage.procedures.consume.application import Connect, nobody
from spark_partq.storage.procedures.consume.between_calls import Coordinator, Heartbeats
from spark_partq.storage.procedures.consume.loads import LoadMeter
from spark_partq.storage.procedures.consume.membership import Ack, Membership
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription, by_id
from spark_partq.storage.queue.messages import Piece, slices
from spark_partq.storage.queue.partition_table import PartitionTable

# Spark asks an idle query again after about 10 ms. The wait grows from the first to the second while nothing comes.
_IDLE_WAIT_S = (0.01, 0.1)

Offsets = dict[PartitionId, int]


class Assigned(NamedTuple):
    """Which flow of this member a planned range goes to, and below what offset it may have been delivered before."""

    flow: int
    delivered: int


class Planner:
    """Plans micro-batches and keeps the group's books. Lives in the planner process, used by one thread.

    Parameters
    ----------
    group, instance : str
        The names of the group and of this member, if the user gives none.
    connect : function
        Connects to the user's driver.
    """

    def __init__(self, settings: ConsumerSettings, group: str, instance: str, connect: Connect = nobody) -> None:
        self._settings, self._store = settings, settings.store
        self._subscription = Subscription(settings)
        self._instance = settings.instance_id or instance
        self._last_plan: dict[str, dict[PartitionId, Assigned]] = {}  # by its end
        self._idle = 0
        self._until: Offsets | None = None
        self._batches = itertools.count(1)
        self._barriers: dict[str, Barrier] = {}
        self._waits = False  # something is held back by a barrier
        self._served: dict[PartitionId, int] = {}  # the last batch that took something of a partition
        self._loads = LoadMeter(self._store.runtime.monotonic_s)
        me = Member(
            self._instance, "", settings.flows, settings.session_timeout_ms, settings.assignors,
            tuple(sorted(settings.queues)), settings.queue_pattern, cooperative=settings.cooperative,
            static=settings.instance_id is not None, weight=settings.weight,
        )  # fmt: skip
        self.membership = Membership(settings, group, me, self._subscription, self._loads, connect)
        self._group = self.membership.group
        self._subscription.refresh()
        if self._group.exists():
            self._group.refresh()
        self._subscription.first_starts(self._group.state)  # wrong starting offsets are refused before anything changes

    def stop_at_present(self) -> None:
        """Plan nothing that is written later than now (Trigger.AvailableNow)."""
        self._until = {p: table.next_offset for p, table in self._subscription.tables()}

    # ---- offsets
    def check_checkpoint(self, planned: StreamOffset) -> None:
        """Refuse a checkpoint of another group or queue.

        Raises
        ------
        CheckpointMismatchError
        """
        self._subscription.check_checkpoint(planned, self._group.name)

    def latest(self) -> StreamOffset:
        """Where the partitions ended at the last look."""
        return self._offset(
            {p: Range(0, table.next_offset, table.next_offset) for p, table in self._subscription.tables()}
        )

    def next(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        """The end of the next micro-batch, `done` being finished; None if there is nothing to do."""
        while True:
            if self._idle:
                self._store.runtime.sleep(min(_IDLE_WAIT_S[0] * 2 ** (self._idle - 1), _IDLE_WAIT_S[1]))
            with self.membership.lock:
                self.membership.join_unless_member(self._start_threads)
                end = self._plan(done, limits)
                ready = self._group.state.status is Status.READY
            if end is not None or self._until is None or (ready and not self._waits):
                return end
            # A query that is to end when it has read all there is must not end before it knows what it is given.

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[tuple[Piece, ...]]:
        """Of each flow what its task reads: the rows of ``(start, end]`` of its partitions, in order."""
        with self.membership.lock:
            self.membership.join_unless_member(self._start_threads)
            if start.ranges == end.ranges:
                return []
            plan = self._last_plan.get(_text(end))
            ranges = self._again(end) if plan is None else by_id(end)
            assigned = self._assigned_again(ranges) if plan is None else plan
            flows: list[list[Piece]] = [[] for _ in range(self._settings.flows)]
            tables = dict(self._tables())
            filled = [p for p, r in ranges.items() if r.end > r.start]
            for partition_id in sorted(filled, key=lambda p: (tables[p].queue, p[1])):
                flow, delivered = assigned[partition_id]
                flows[flow % len(flows)] += self._pieces(tables[partition_id], ranges[partition_id], delivered)
        return [tuple(pieces) for pieces in flows]

    def flow_name(self, flow: int) -> str:
        return f"{self._instance}/{flow}"

    def leave(self) -> None:
        """The query has ended."""
        self.membership.leave()

    def _start_threads(self) -> None:
        heartbeats = Heartbeats(self.membership, self._settings.max_poll_interval_ms)
        self._store.runtime.start_thread("partq-heartbeats", heartbeats.run)
        self._store.runtime.start_thread("partq-coordinator", Coordinator(self.membership).run)

    def _offset(self, ranges: dict[PartitionId, Range]) -> StreamOffset:
        return self._subscription.offset(self._group.name, self._instance, ranges)

    def _tables(self) -> list[tuple[PartitionId, PartitionTable]]:
        """Every table that the queues ever had; of a replayed batch a partition may be operating no longer."""
        queues = self._subscription.queues
        return [((queue.state.queue_id, n), queue.table(n)) for queue in queues for n in queue.state.every]

    # ---- one plan
    def _plan(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        finished = by_id(done)
        acks = self.membership.acknowledge_finished(finished)
        self._refresh()
        acks = self._commit_floors(acks)
        mine = plannable(self._group.state, self.membership.incarnation)
        tables = {p: table for p, table in self._subscription.tables() if p in mine}
        starts = {p: self._start(p, table, finished.get(p)) for p, table in tables.items()}
        ends = self._admitted(tables, starts, self._held_back(tables, starts), limits)
        ranges = {p: Range(mine[p].epoch, starts[p], ends[p]) for p in starts}
        # What others have planned counts as delivered even if the decision that moved the partition did not see it (H4).
        assigned = {p: Assigned(_number(mine[p]), self._group.delivered(p)) for p in ranges}
        if all(ends[p] == starts[p] for p in starts):
            self.membership.commit_plan(acks, {})
            self._idle = min(self._idle + 1, 8)
            return None
        self.membership.commit_plan(acks, ranges)
        self._idle = 0
        end = self._offset(ranges)
        # What this process has planned it delivers whole, whatever becomes of the partition: should it come back, all of the range
        # counts as delivered.
        self._last_plan = {_text(end): assigned}
        return end

    def _refresh(self) -> None:
        """Look at the queues and their partitions."""
        subscription = self._subscription
        if subscription.changes_are_due():
            self._decide_changes()
        subscription.follow(self._group.state)
        try:
            subscription.refresh()
        except PartqError:  # perhaps of a queue that was deleted a moment ago
            self._decide_changes()
            subscription.follow(self._group.state)
            subscription.refresh()
        scaled = subscription.scaled(self._group.state)
        if scaled is not None:
            self.membership.decide(lambda: [scaled])
        self._loads.measure({p: table.next_offset for p, table in subscription.tables()})

    def _decide_changes(self) -> None:
        changes = self._subscription.changes(self._group.state)
        if changes is not None:
            self.membership.decide(lambda: [changes])

    def _commit_floors(self, acks: list[Ack]) -> list[Ack]:
        """Let those who wait for older messages know that they are finished (S5); acknowledgements that are still to be made."""
        self._barriers = self._subscription.barriers(self._group.state)
        if any(barrier.missing for barrier in self._barriers.values()):
            self.membership.commit_plan(acks, {})
            acks = []
            for queue_id, barrier in self._barriers.items():
                self._group.commit_floors(queue_id, barrier.missing)
            self._barriers = self._subscription.barriers(self._group.state)
        self.membership.drained = self._subscription.drained(self._group.state)
        return acks

    def _again(self, planned: StreamOffset) -> dict[PartitionId, Range]:
        """What is left of a micro-batch that was planned before a restart."""
        membership = self.membership
        membership.refresh()
        state, acks = self._group.state, self._group.acks
        manual = self._settings.manual_acknowledgement
        kept = replayed(state, acks, membership.incarnation, by_id(planned), manual)
        membership.commit_plan([], kept)
        tables = {p: table for p, table in self._tables() if p in kept}
        self._store.map(lambda table: table.refresh(), list(tables.values()))
        return {p: kept[p] for p in tables}

    def _assigned_again(self, ranges: dict[PartitionId, Range]) -> dict[PartitionId, Assigned]:
        """Of a micro-batch that is delivered again: all of it may have been delivered before."""
        held = self._group.state.partitions
        return {p: Assigned(_number(held[p]), r.end) for p, r in ranges.items()}

    def _pieces(self, table: PartitionTable, planned: Range, delivered: int) -> list[Piece]:
        """The slices of a range; what lies below `delivered` may have been delivered before."""
        first = self._check_still_there(table, planned.start, planned.end)
        cut = min(max(first, delivered), planned.end)
        return [
            Piece(part, planned.epoch, redelivered)
            for low, high, redelivered in ((first, cut, True), (cut, planned.end, False))
            if high > low
            for part in slices(table.queue, table.partition, table.index, low, high)
        ]

    # ---- where a partition's next range starts and ends
    def _start(self, partition_id: PartitionId, table: PartitionTable, planned: Range | None) -> int:
        """Where the next micro-batch of a partition starts; `planned` is what the last one took of it."""
        if self._settings.manual_acknowledgement:
            # What the application has not acknowledged before a restart is delivered again.
            planned = self.membership.last_planned(partition_id)
        first = start(self._group.state, self._group.acks, self.membership.incarnation, partition_id, planned)
        return self._check_still_there(table, first, table.next_offset)

    def _check_still_there(self, table: PartitionTable, start: int, end: int) -> int:
        first, last = table.first_offset, table.next_offset
        about = {"queue": table.queue, "partition": table.partition, "group": self._group.name}
        if max(start, end) > last:
            raise DataLossError(
                f"partition {table.partition} of queue {table.queue!r} ends at offset {last}, but group {self._group.name!r} has "
                f"already been given messages up to {max(start, end) - 1}: the partition was put back to an older state. Restore it, "
                "or go on with another group and a new checkpointLocation",
                **about,
            )
        if start < min(first, end) and self._settings.fail_on_data_loss:
            raise DataLossError(
                f"messages {start} to {min(first, end) - 1} of partition {table.partition} of queue {table.queue!r} were removed before "
                f"group {self._group.name!r} read them (retention time); set failOnDataLoss=false to go on behind them",
                **about,
            )
        return max(start, min(first, end))

    def _held_back(self, tables: dict[PartitionId, PartitionTable], starts: Offsets) -> Offsets:
        """How far each partition may be delivered: to its end, or to where it waits for older messages of other partitions (S5)."""
        ends = {p: table.next_offset for p, table in tables.items()}
        if self._until is not None:
            ends = {p: max(starts[p], min(end, self._until.get(p, 0))) for p, end in ends.items()}
        limits = {
            p: self._barriers[p[0]].limit(p[1], starts[p], end) for p, end in ends.items() if p[0] in self._barriers
        }
        self._waits = any(limits[p] < ends[p] for p in limits)
        return {**ends, **limits}

    def _admitted(
        self, tables: dict[PartitionId, PartitionTable], starts: Offsets, ends: Offsets, limits: Limits
    ) -> Offsets:
        if self._settings.max_unacked_per_flow is not None:
            ends = self._within_unacked(starts, ends, self._settings.max_unacked_per_flow)
        waiting = self._longest_waiting([p for p in starts if ends[p] > starts[p]])
        if not limits or not waiting:
            return ends
        rows = admit([_backlog(tables[p], starts[p], ends[p]) for p in waiting], limits)
        admitted = dict(zip(waiting, rows, strict=True))
        self._served.update(dict.fromkeys((p for p in waiting if admitted[p]), next(self._batches)))
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
            self._served.update(dict.fromkeys((p for p, n in zip(mine, rows, strict=True) if n), next(self._batches)))
        return within

    def _longest_waiting(self, partitions: list[PartitionId]) -> list[PartitionId]:
        """Who has waited longest comes first; then by the queue's name and the number."""
        names = {queue_id: name for name, queue_id in self._subscription.queue_ids.items()}
        return sorted(partitions, key=lambda p: (self._served.get(p, 0), names[p[0]], p[1]))

    def _unacked(self, flow: str) -> int:
        """Messages that a flow was given and has not acknowledged, also of what is draining; a finished batch counts as done."""
        if not self._settings.manual_acknowledgement:
            return 0
        total = 0
        for partition_id in self._group.state.owned(flow):
            last = self.membership.last_planned(partition_id)
            if last is not None:
                total += max(0, last.end - (self._group.position(partition_id) or 0))
        return total


def _backlog(table: PartitionTable, start: int, end: int) -> Backlog:
    index = table.index
    files = index.overlapping(start, end)
    part = slice(files.start, files.stop)
    rows = np.minimum(index.end[part], end) - np.maximum(index.base[part], start)
    return Backlog(rows, index.size[part] * rows // np.maximum(index.rows[part], 1))


def _number(own: Ownership) -> int:
    """The number of the flow that owns it."""
    return int((own.flow or "").rpartition("/")[2])


def _text(offset: StreamOffset) -> str:
    return str(offset.to_json())
