"""A simulated process of a query, as generators that stop after every look, commit, append and delivery.

What it decides, plans, acknowledges and releases are the core's own functions; the world around it is `simulator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.delivery import member as protocol
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import AssignorError, CommitFailedError, UnknownAssignorError
from spark_partq.core.group import decide as rebalance
from spark_partq.core.group.events import Drained, Event, Join, Leave, LoadsMeasured, QueuesChanged
from spark_partq.core.group.facts import Member, QueueInGroup
from spark_partq.core.group.observer import Observer
from spark_partq.core.ids import PartitionId
from spark_partq.storage.log import Conflict
from spark_partq.testing.memory import MemoryAcks, MemoryControl

if TYPE_CHECKING:
    from spark_partq.testing.simulator import World

Step = Iterator[None]
HEARTBEAT_MS = 700


@dataclass
class Checkpoint:
    """What a query finds again after a crash: the last planned batch, and whether it is in the commit log.

    As Spark's, it lets only one query write each batch.
    """

    batch: int = 0
    ranges: dict[PartitionId, Range] = field(default_factory=dict)
    committed: bool = True

    def copy(self) -> Checkpoint:
        return Checkpoint(self.batch, dict(self.ranges), self.committed)

    def plan(self, mine: Checkpoint) -> bool:
        """Write the batch that follows `mine`, of a process; False if another has."""
        if not self.committed or self.batch != mine.batch - 1:
            return False
        self.batch, self.ranges, self.committed = mine.batch, dict(mine.ranges), False
        return True

    def commit(self, batch: int) -> bool:
        if self.committed or self.batch != batch:
            return False
        self.committed = True
        return True


class Process:
    """One process of a query, or a mere rebalancer (no flows). A crash forgets it; its checkpoint lives on."""

    def __init__(
        self, world: World, name: str, instance: str, flows: int, manual: bool, checkpoint: Checkpoint
    ) -> None:
        self.world, self.name, self.instance, self.flows, self.manual = world, name, instance, flows, manual
        self.durable, self.checkpoint = checkpoint, checkpoint.copy()
        self.incarnation = world.uuid() if flows else ""
        self.control, self.acks = MemoryControl(world.control), MemoryAcks(world.acks)
        self.observer = Observer(self.incarnation)
        self.handed = protocol.DeliveryTracker()
        self.beat = 0
        self.beaten_at = -HEARTBEAT_MS
        self.looked_at = 0  # step of the last look at the acknowledgements
        self.forgets = world.rng.random() < 0.5  # a partition that drains drops out of its offsets
        self.pending: list[tuple[PartitionId, Range]] = []  # delivered, not yet acknowledged by the application
        self.lock = ""
        self.joined = False
        self.assignors = world.assignors.get(instance, ("balanced",))
        self.reads, self.weight = world.reads.get(instance), world.weights.get(instance, 1.0)
        self.leaving = False
        self.paused_until = 0
        self.clock_at, self.clock_ms = world.now_ms, world.rng.randint(0, 10**6)
        self.drift = world.rng.choice((0.9, 1.0, 1.0, 1.1)) if world.setup.skew else 1.0
        self.stopped = ""  # why
        self.threads: dict[str, Step] = {"background": self.background()}
        if flows:
            self.threads["main"] = self.main()
            if manual:
                self.threads["application"] = self.application()

    # ---- running
    @property
    def alive(self) -> bool:
        return not self.stopped

    def clock(self) -> int:
        """A monotonic clock of its own, with its own speed."""
        self.clock_ms += int((self.world.now_ms - self.clock_at) * self.drift)
        self.clock_at = self.world.now_ms
        return self.clock_ms

    def stop(self, why: str) -> None:
        self.stopped = why
        self.threads = {}
        self.world.log(self, why)

    def step(self, thread: str) -> None:
        """Let one of its threads do its next small thing."""
        self.world.actor = self
        try:
            next(self.threads[thread])
        except StopIteration:
            self.threads.pop(thread, None)

    def locked(self, thread: str) -> Step:
        while self.lock:
            yield
        self.lock = thread

    # ---- stores
    def look(self) -> Step:
        """At the control table first: acknowledgements may be newer than it, never older."""
        self.control.refresh()
        yield
        self.acks.refresh()
        self.looked_at = self.world.time
        yield

    def commit(self, events: Sequence[Event]) -> Iterator[None]:
        """Decide on the last look, and try once to commit."""
        try:
            facts = rebalance.decide(
                self.control.state,
                self.acks.acks,
                events,
                self.instance,
                assignor=self.world.assignor,
                loads=self.world.loads(),
            )
        except (AssignorError, UnknownAssignorError) as error:  # whoever decides is told; here it tries again
            self.world.log(self, f"{type(error).__name__}")
            facts = []
        if facts:
            yield
            try:
                self.control.commit(facts)
            except (Conflict, CommitFailedError) as error:
                self.world.log(self, f"{type(error).__name__}: {', '.join(f.kind for f in facts)}")

    def append(self, finished: Sequence[tuple[PartitionId, int, int]], planned: dict[PartitionId, Range]) -> None:
        self.beat += 1
        self.beaten_at = self.clock()
        rows = protocol.ack_rows(self.incarnation, self.beat, finished, planned)
        live = [m.incarnation for m in self.control.state.members.values()]
        self.acks.append(rows, [*live, self.incarnation])
        self.world.appended(self, rows)

    # ---- membership
    def join(self, again: bool = False) -> Step:
        """Register; a process that starts takes its instance over, one that was expelled does not."""
        while self.alive:
            yield from self.look()
            status = protocol.membership_status(self.control.state, self.instance, self.incarnation)
            if status.registered:
                self.joined = True
                return
            if again and status.fenced:
                self.stop("is fenced")
                return
            yield from self.commit([Join(self.as_member(), *self.found())])

    def as_member(self) -> Member:
        setup = self.world.setup
        return Member(
            self.instance, self.incarnation, self.flows, setup.session_timeout_ms, self.assignors,
            () if self.reads is None else tuple(f"queue-{q}" for q in self.reads),
            "queue-.*" if self.reads is None else None,
            cooperative=all(BUILTIN[name].cooperative for name in self.assignors),
            static=setup.static, weight=self.weight, host=self.name,
        )  # fmt: skip

    def found(self) -> tuple[dict[str, QueueInGroup], dict[PartitionId, int]]:
        """The queues that it reads, and where their partitions start."""
        me = self.as_member()
        queues = {queue_id: queue for queue_id, queue in self.world.queues().items() if me.subscribes(queue.name)}
        return queues, {where: start for where, start in self.world.starts().items() if where[0] in queues}

    def stand(self) -> Step:
        """After a look: stop if fenced; join again, as a new incarnation, if expelled."""
        status = protocol.membership_status(self.control.state, self.instance, self.incarnation)
        if status.fenced:
            self.stop("is fenced")
        elif not status.registered:
            self.incarnation = self.world.uuid()
            self.observer.incarnation = self.incarnation
            if self.manual:  # what the application has not acknowledged is delivered to it again
                self.pending, self.handed = [], protocol.DeliveryTracker()
            self.world.log(self, f"was expelled, joins again as {self.incarnation}")
            yield from self.join(again=True)

    # ---- the query
    def main(self) -> Step:
        yield from self.locked("main")
        yield from self.join()
        if self.checkpoint.ranges and not self.checkpoint.committed:
            yield from self.look()
            yield from self.stand()
            if not self.alive:
                return
            ranges = self.replayed()
            self.handed.record(ranges)
            yield
            self.append([], ranges)
            ranges = {where: r for where, r in ranges.items() if r.end > r.start}
            self.world.log(self, f"replays {_text(ranges)}")
            self.lock = ""
            yield from self.run(ranges, {where: r.end for where, r in ranges.items()})
        else:
            if not self.manual:
                self.handed.record(self.checkpoint.ranges)
            self.lock = ""
        while self.alive:
            yield
            yield from self.locked("main")
            planned: dict[PartitionId, Range] = {}
            marks: dict[PartitionId, int] = {}
            yield from self.plan(planned, marks)
            self.lock = ""
            if planned and self.alive:
                yield from self.run(planned, marks)
            elif self.leaving and self.joined and not self.pending:
                yield from self.leave()

    def replayed(self) -> dict[PartitionId, Range]:
        return protocol.replayed(
            self.control.state, self.acks.acks, self.incarnation, self.checkpoint.ranges, self.manual
        )

    def plan(self, planned: dict[PartitionId, Range], marks: dict[PartitionId, int]) -> Step:
        """Look, acknowledge the last batch, release what is drained, plan the next; under one lock."""
        yield from self.look()
        yield from self.stand()
        if not self.alive:
            return
        finished = []
        if not self.manual:
            finished = protocol.finished(self.control.state, self.incarnation, self.checkpoint.ranges)
            finished = [(where, epoch, end) for where, epoch, end in finished if end > self.position(where)]
        every = {} if self.leaving else self.wanted()
        planned.update({where: r for where, r in every.items() if r.end > r.start})
        self.world.recorder.plan(self, planned)
        if planned or finished:
            self.handed.record(every if planned else {})
            marks.update(self.marks(planned))
            yield
            self.append(finished, planned)
            self.acks.refresh()
            self.looked_at = self.world.time
            yield
        released = self.drained()
        if released:
            yield from self.commit(released)
        if planned:
            yield
            old = {where: Range(r.epoch, r.end, r.end) for where, r in self.checkpoint.ranges.items()}
            ranges = every if self.forgets else {**old, **planned}
            self.checkpoint = Checkpoint(self.checkpoint.batch + 1, ranges, False)
            if not self.durable.plan(self.checkpoint):
                self.stop("finds its checkpoint in use")
                return
            self.world.log(self, f"plans {_text(planned)}")

    def wanted(self) -> dict[PartitionId, Range]:
        """What to plan next; ranges may be empty."""
        state, acks, rng = self.control.state, self.acks.acks, self.world.rng
        ranges = {}
        for where, own in protocol.plannable(state, self.incarnation).items():
            done = self.done(where)
            first = protocol.start(state, acks, self.incarnation, where, done)
            end = self.limit(where, first)
            if not self.world.calm:
                end = min(end, first + rng.randint(1, 5))
                end = first if rng.random() < 0.1 else end  # rate limits
            ranges[where] = Range(own.epoch, first, max(first, end))
        return ranges

    def limit(self, where: PartitionId, first: int) -> int:
        """Up to where a partition may be planned."""
        return self.world.ends[where]

    def done(self, where: PartitionId) -> Range | None:
        """What this query has handed out last; with manual acknowledgement only what this process has."""
        return self.handed.last_planned(where) if self.manual else self.checkpoint.ranges.get(where)

    def marks(self, ranges: dict[PartitionId, Range]) -> dict[PartitionId, int]:
        """Below what each partition's messages are marked redelivered."""
        return {where: self.control.state.partitions[where].delivered for where in ranges}

    def run(self, ranges: dict[PartitionId, Range], marks: dict[PartitionId, int]) -> Step:
        """Deliver a batch, then write the commit log."""
        incarnation = self.incarnation
        for where, r in ranges.items():
            yield
            self.world.recorder.deliver(self, incarnation, where, r, marks[where])
            if self.manual:
                self.pending.append((where, r))
                self.world.recorder.finish(self, where, r)
        yield
        if not self.manual:
            for where, r in ranges.items():
                self.world.recorder.finish(self, where, r)
        self.checkpoint.committed = True
        if not self.durable.commit(self.checkpoint.batch):
            self.stop("finds its checkpoint in use")

    def application(self) -> Step:
        """Manual acknowledgement: in order, some time after delivery."""
        while True:
            yield
            if not self.pending or (self.world.rng.random() < 0.7 and not self.world.calm):
                continue
            yield from self.locked("application")
            yield from self.look()
            kept: list[tuple[PartitionId, Range]] = []
            finished: dict[PartitionId, tuple[PartitionId, int, int]] = {}
            for where, r in self.pending:
                end = r.end if self.world.calm else self.world.rng.randint(r.start + 1, r.end)
                done = protocol.finished(self.control.state, self.incarnation, {where: Range(r.epoch, r.start, end)})
                if done and self.position(where) < r.end:  # else it is refused, or seen to count
                    kept.append((where, r))
                    finished.setdefault(where, done[0])  # in order: the first that is not yet finished
            self.pending = kept
            if finished:
                self.append(list(finished.values()), {})
            self.lock = ""

    def position(self, where: PartitionId) -> int:
        return self.control.state.position(where, self.acks.acks) or 0

    def leave(self) -> Step:
        yield from self.locked("main")
        while self.alive:
            yield from self.look()
            if not protocol.membership_status(self.control.state, self.instance, self.incarnation).registered:
                self.stop("has left")
                return
            yield from self.commit([Leave(self.instance, self.incarnation)])

    # ---- the background thread
    def background(self) -> Step:
        """Heartbeat, release, and the rebalancer's loop."""
        while self.alive:
            yield
            if self.lock or (self.flows and not self.joined):
                continue
            self.lock = "background"
            yield from self.look()
            if self.flows:
                yield from self.stand()
                if not self.alive:
                    return
                if self.clock() - self.beaten_at >= HEARTBEAT_MS:
                    self.append([], {})
            events = [*self.drained(), *self.observer.due(self.control.state, self.acks.acks, self.clock())]
            events += self.queues_changed()
            if self.flows and self.world.rng.random() < 0.02:
                events.append(LoadsMeasured())
            if events:
                yield from self.commit(events)
            self.lock = ""

    def queues_changed(self) -> list[Event]:
        """Members look now and then what queues there are, after the look at the group."""
        if not self.flows or self.world.rng.random() < 0.8:
            return []
        known = self.control.state.queues
        gone = tuple(queue_id for queue_id in known if queue_id not in self.world.counts)
        queues, starts = self.found()
        if not gone and all(known.get(queue_id) == queue for queue_id, queue in queues.items()):
            return []
        return [QueuesChanged(queues, starts, gone)]

    def drained(self) -> list[Drained]:
        if not self.flows:
            return []
        return self.handed.drained(self.control.state, self.acks.acks, self.incarnation)


def _text(ranges: dict[PartitionId, Range]) -> str:
    return " ".join(f"{q}.{p}[{r.start},{r.end})@{r.epoch}" for (q, p), r in ranges.items()) or "nothing"
