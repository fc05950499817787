"""Queues as a stream (Q7): the planner beside the driver, and what it hands to the tasks.

Spark asks the planner for `latestOffset` only when every earlier micro-batch has been executed and committed; so that is where
the group acknowledges. In this order: look at the control table, acknowledge what is finished, release what has drained, look
at the partitions, plan. `partitions(start, end)` reads everything from its arguments, so a replayed batch is the same batch.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_partq.core.delivery.admission import Backlog, Limits, admit, share
from spark_partq.core.delivery.member import plannable, replayed, start
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import DataLossError, PartqError
from spark_partq.core.group.state import Member, Ownership, Status
from spark_partq.core.queue.partition_map import Barrier
from spark_partq.spark.loads import LoadMeter
from spark_partq.spark.membership import Ack, Membership
from spark_partq.spark.options import Options
from spark_partq.spark.reading import FlowPartition, Piece, read, slices
from spark_partq.spark.subscription import Subscription, Where, by_id

# Spark asks an idle query again after about 10 ms. The wait grows from the first to the second while nothing comes.
_IDLE_WAIT_S = (0.01, 0.1)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's side of a consumer group."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._planner: Planner | None = None
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}  # open tables stay in the planner process

    def initialOffset(self) -> dict[str, Any]:
        # Asked for at every start until a first micro-batch has been committed, also when that is about to be replayed: names
        # that this start chose would not be those under which it was planned.
        return StreamOffset(self._options.group or "", self._options.instanceId or "", {}, {}).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planned = StreamOffset.from_json(start)
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        end = self._bound(planned).next(planned, limits)
        return start if end is None else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = StreamOffset.from_json(end)
        return self._bound(planned).tasks(StreamOffset.from_json(start), planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FlowPartition)
        return read(partition, self._schema)

    def getDefaultReadLimit(self) -> ReadLimit:
        # One limit can be told to Spark; `latestOffset` applies all that are set.
        o = self._options
        if o.maxRowsPerTrigger is not None:
            return ReadMaxRows(o.maxRowsPerTrigger)
        if o.maxBytesPerTrigger is not None:
            return ReadMaxBytes(o.maxBytesPerTrigger)
        if o.maxFilesPerTrigger is not None:
            return ReadMaxFiles(o.maxFilesPerTrigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        if self._planner is not None:
            self._planner.stop_at_present()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._planner is None:
            return None
        return self._planner.latest()

    def stop(self) -> None:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the JVM may send it while this leaves
        if self._planner is not None:
            self._planner.membership.leave()

    def _bound(self, planned: StreamOffset) -> Planner:
        """The planner, which joins the group at its first use, under the names of `planned` or new ones."""
        if self._planner is None:
            group = planned.group or f"query-{uuid.uuid4()}"
            planner = Planner(self._options, group, planned.instance or f"{group[:40]}-{uuid.uuid4().hex[:12]}")
            planner.check_checkpoint(planned)
            if self._available_now:
                planner.stop_at_present()
            # The JVM ends this process with SIGTERM; `stop` is called when its main thread leaves its loop.
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, _end)
            self._planner = planner
        return self._planner


class Planner:
    """Plans micro-batches and keeps the group's books. Lives in the planner process, used by one thread."""

    def __init__(self, options: Options, group: str, instance: str) -> None:
        self._options = options
        self._subscription = Subscription(options)
        self._instance = options.instanceId or instance
        self._planned: dict[str, dict[Where, Ownership]] = {}  # the last plan, and under what it was made
        self._idle = 0
        self._wait = threading.Event()
        self._until: dict[Where, int] | None = None
        self._batches = itertools.count(1)
        self._barriers: dict[str, Barrier] = {}
        self._waits = False  # something is held back by a barrier
        self._served: dict[Where, int] = {}  # the last batch that took something of a partition
        self._loads = LoadMeter()
        me = Member(
            self._instance, "", options.flows, options.sessionTimeoutMs, options.assignors, tuple(sorted(options.queues)), options.queuePattern,
            cooperative=options.cooperative, static=options.instanceId is not None, weight=options.weight,
        )  # fmt: skip
        self.membership = Membership(
            options.store,
            options.group or group,
            me,
            self._subscription,
            self._loads,
            manual=options.ack == "manual",
            max_poll_interval_ms=options.maxPollIntervalMs,
        )
        self._group = self.membership.group
        self._subscription.refresh()
        if self._group.exists():
            self._group.refresh()
        self._subscription.first_starts(
            self._group.state
        )  # a wrong startingOffsets is refused before anything is changed

    def stop_at_present(self) -> None:
        """Plan nothing that is written later than now (Trigger.AvailableNow)."""
        self._until = {w: t.next_offset for w, t in self._subscription.tables()}

    # ---- offsets
    def check_checkpoint(self, planned: StreamOffset) -> None:
        """Refuse a checkpoint of another group or queue.

        Raises
        ------
        CheckpointMismatchError
        """
        self._subscription.check_checkpoint(planned, self._group.name)

    def latest(self) -> dict[str, Any]:
        return self._offset(
            {w: Range(0, t.next_offset, t.next_offset) for w, t in self._subscription.tables()}
        ).to_json()

    def _offset(self, ranges: dict[Where, Range]) -> StreamOffset:
        return StreamOffset(self._group.name, self._instance, self._subscription.ids, ranges)

    def next(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        """The end of the next micro-batch, `done` being finished; None if there is nothing to do."""
        while True:
            if self._idle:
                self._wait.wait(min(_IDLE_WAIT_S[0] * 2 ** (self._idle - 1), _IDLE_WAIT_S[1]))
            with self.membership.lock:
                self.membership.begin()
                end = self._plan(done, limits)
                settled = self._group.state.status is Status.READY
            if end is not None or self._until is None or (settled and not self._waits):
                return end
            # A query that is to end when it has read all there is must not end before it knows what it is given.

    def _plan(self, done: StreamOffset, limits: Limits) -> StreamOffset | None:
        finished = by_id(done)
        acks = self.membership.settle(finished)
        self._refresh()
        acks = self._settle(acks)
        mine = plannable(self._group.state, self.membership.incarnation)
        ids = {w: self._subscription.id(w) for w, _ in self._subscription.tables()}
        starts = {w: self._start(w, finished.get(where)) for w, where in ids.items() if where in mine}
        ends = self._admitted(starts, self._held_back(starts), limits)
        ranges = {w: Range(mine[ids[w]].epoch, starts[w], ends[w]) for w in starts}
        if all(ends[w] == starts[w] for w in starts):
            self.membership.hand_out(acks, {})
            self._idle = min(self._idle + 1, 8)
            return None
        self.membership.hand_out(acks, {ids[w]: r for w, r in ranges.items()})
        self._idle = 0
        end = self._offset(ranges)
        self._planned = {_text(end): {w: mine[ids[w]] for w in ranges}}
        return end

    def _refresh(self) -> None:
        """Look at the queues and their partitions."""
        subscription = self._subscription
        if subscription.due():
            self._tell_changes()
        subscription.follow(self._group.state)
        try:
            subscription.refresh()
        except PartqError:  # perhaps of a queue that was deleted a moment ago
            self._tell_changes()
            subscription.follow(self._group.state)
            subscription.refresh()
        scaled = subscription.scaled(self._group.state)
        if scaled is not None:
            self.membership.decide(lambda: [scaled])
        self._loads.measure({subscription.id(w): t.next_offset for w, t in subscription.tables()})

    def _settle(self, acks: list[Ack]) -> list[Ack]:
        """Let those who wait for older messages know that they are finished (S5); acknowledgements that are still to be made."""
        self._barriers = self._subscription.barriers(self._group.state)
        if any(barrier.missing for barrier in self._barriers.values()):
            self.membership.hand_out(acks, {})
            acks = []
            for name, barrier in self._barriers.items():
                self._group.settle(self._subscription.ids[name], barrier.missing)
            self._barriers = self._subscription.barriers(self._group.state)
        self.membership.drained = [queue.name for queue in self._subscription.drained(self._group.state)]
        return acks

    def _tell_changes(self) -> None:
        changes = self._subscription.changes(self._group.state)
        if changes is not None:
            self.membership.decide(lambda: [changes])

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[FlowPartition]:
        """One task per flow, with the rows of ``(start, end]`` of its partitions."""
        with self.membership.lock:
            self.membership.begin()
            if start.ranges == end.ranges:
                return []
            owners = self._planned.get(_text(end))
            again = owners is None
            ranges = self._again(end) if again else end.ranges
            flows: list[list[Piece]] = [[] for _ in range(self._options.flows)]
            for where, planned in sorted(ranges.items()):
                if planned.end > planned.start:
                    # What this process has planned it delivers whole, whatever became of the partition since: should it come
                    # back, all of the range counts as delivered.
                    own = (
                        self._group.state.partitions[self._subscription.id(where)] if owners is None else owners[where]
                    )
                    seen = planned.end if again else own.delivered
                    flow = int((own.flow or "").rpartition("/")[2]) % len(flows)
                    flows[flow] += self._pieces(where, planned, seen)
        store = self._options.store
        return [FlowPartition(store, tuple(mine), f"{self._instance}/{k}") for k, mine in enumerate(flows)]

    def _again(self, planned: StreamOffset) -> dict[Where, Range]:
        """What is left of a micro-batch that was planned before a restart."""
        membership = self.membership
        membership.look()
        state, acks = self._group.state, self._group.acks
        manual = self._options.ack == "manual"
        kept = replayed(state, acks, membership.incarnation, by_id(planned), manual)
        membership.hand_out([], kept)
        found = self._subscription.by_name(kept)
        self._options.store.map(lambda where: self._subscription.table(where).refresh(), list(found))
        return found

    def _pieces(self, where: Where, planned: Range, seen: int) -> list[Piece]:
        """The slices of a range; what lies below `seen` may have been delivered before."""
        first = self._check_still_there(where, planned.start, planned.end)
        cut = min(max(first, seen), planned.end)
        index = self._subscription.table(where).index
        return [
            Piece(part, planned.epoch, redelivered)
            for low, high, redelivered in ((first, cut, True), (cut, planned.end, False))
            if high > low
            for part in slices(*where, index, low, high)
        ]

    # ---- partitions
    def _start(self, where: Where, planned: Range | None) -> int:
        """Where the next micro-batch of a partition starts; `planned` is what the last one took of it."""
        if self._options.ack == "manual":
            # What the application has not acknowledged before a restart is delivered again.
            planned = self.membership.handed_out(self._subscription.id(where))
        first = start(
            self._group.state, self._group.acks, self.membership.incarnation, self._subscription.id(where), planned
        )
        return self._check_still_there(where, first, self._subscription.table(where).next_offset)

    def _check_still_there(self, where: Where, start: int, end: int) -> int:
        first, last = self._subscription.table(where).first_offset, self._subscription.table(where).next_offset
        if max(start, end) > last:
            raise DataLossError(
                f"partition {where[1]} of queue {where[0]!r} ends at offset {last}, but group {self._group.name!r} has already been "
                f"given messages up to {max(start, end) - 1}: the partition was put back to an older state. Restore it, or go on "
                "with another group and a new checkpointLocation",
                queue=where[0],
                partition=where[1],
                group=self._group.name,
            )
        if start < min(first, end) and self._options.failOnDataLoss:
            raise DataLossError(
                f"messages {start} to {min(first, end) - 1} of partition {where[1]} of queue {where[0]!r} were removed before group "
                f"{self._group.name!r} read them (retention time); set failOnDataLoss=false to go on behind them",
                queue=where[0],
                partition=where[1],
                group=self._group.name,
            )
        return max(start, min(first, end))

    def _held_back(self, starts: dict[Where, int]) -> dict[Where, int]:
        """How far each partition may be delivered: to its end, or to where it waits for older messages of other partitions (S5)."""
        ends = {w: self._subscription.table(w).next_offset for w in starts}
        if self._until is not None:
            ends = {w: max(starts[w], min(end, self._until.get(w, 0))) for w, end in ends.items()}
        limits = {
            w: self._barriers[w[0]].limit(w[1], starts[w], end) for w, end in ends.items() if w[0] in self._barriers
        }
        self._waits = any(limits[w] < ends[w] for w in limits)
        return {**ends, **limits}

    def _admitted(self, starts: dict[Where, int], ends: dict[Where, int], limits: Limits) -> dict[Where, int]:
        if self._options.maxUnackedPerFlow is not None:
            ends = self._within_unacked(starts, ends, self._options.maxUnackedPerFlow)
        waiting = sorted((w for w in starts if ends[w] > starts[w]), key=lambda w: (self._served.get(w, 0), w))
        if not limits or not waiting:
            return ends
        rows = admit([self._backlog(w, starts[w], ends[w]) for w in waiting], limits)
        admitted = dict(zip(waiting, rows, strict=True))
        self._served.update(dict.fromkeys((w for w in waiting if admitted[w]), next(self._batches)))
        return {w: starts[w] + admitted.get(w, 0) for w in starts}

    def _within_unacked(self, starts: dict[Where, int], ends: dict[Where, int], most: int) -> dict[Where, int]:
        """Ends such that no flow has more than `most` messages that are delivered and not acknowledged (H5)."""
        flows: dict[str, list[Where]] = {}
        for where in sorted(starts, key=lambda w: (self._served.get(w, 0), w)):
            flows.setdefault(self._group.state.partitions[self._subscription.id(where)].flow or "", []).append(where)
        within = {}
        for flow, mine in flows.items():
            room = max(0, most - self._unacked(flow))
            rows = share(np.array([ends[w] - starts[w] for w in mine], dtype=np.int64), room)
            within.update({w: starts[w] + int(n) for w, n in zip(mine, rows, strict=True)})
            self._served.update(dict.fromkeys((w for w, n in zip(mine, rows, strict=True) if n), next(self._batches)))
        return within

    def _unacked(self, flow: str) -> int:
        """Messages that a flow was given and has not acknowledged, also of what is draining; a finished batch counts as done."""
        if self._options.ack == "batch":
            return 0
        total = 0
        for where in self._group.state.owned(flow):
            last = self.membership.handed_out(where)
            if last is not None:
                total += max(0, last.end - (self._group.position(where) or 0))
        return total

    def _backlog(self, where: Where, start: int, end: int) -> Backlog:
        index = self._subscription.table(where).index
        files = index.overlapping(start, end)
        part = slice(files.start, files.stop)
        whole = index.rows[part]
        rows = np.minimum(index.end[part], end) - np.maximum(index.base[part], start)
        return Backlog(rows, index.size[part] * rows // np.maximum(whole, 1))


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the JVM sends it twice, and leaving takes a moment
    sys.exit(0)


def _text(offset: StreamOffset) -> str:
    return str(offset.to_json())
