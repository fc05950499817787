"""A queue that is resized while producers and consumer groups use it, all in one thread, from a seed; only the core is the real one.

Each group is a whole `simulator.World` with its own processes, clock and trouble; all share one queue, to which producers
write and whose partition count changes at any time. Beside what a group promises, what a resize promises is checked at
once: at each commit of a partition's log and of the queue's control table, and at each delivery. At the end the faults stop, and in
bounded time the queue must be Ready and every group have acknowledged everything that was not lost by `delete`.

    python -m spark_partq.testing.resizing --seeds 500 --steps 800
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd

from spark_partq.core.delivery.member import same_lineage
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import ScalingInProgressError
from spark_partq.core.group.events import Event, QueuesChanged, RaiseFloors
from spark_partq.core.group.facts import GroupFact, Kind, QueueInGroup
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import MODES, QueueFact
from spark_partq.core.queue.partition_map import PARENT, Barrier, partition_numbers
from spark_partq.core.queue.state import QueueState
from spark_partq.testing.memory import Faults
from spark_partq.testing.process import Process, Step
from spark_partq.testing.producing import UNCERTAIN, Actor, Producer, Scaler, Source
from spark_partq.testing.queues import Message, PartitionLog, QueueLog
from spark_partq.testing.recorder import Recorder, SimulationError
from spark_partq.testing.simulator import Setup, World, command

QUEUE = "q0"


class Reader(Process):
    """A process of a consumer group that keeps to the barrier."""

    world: Group

    def look(self) -> Step:
        """After the group at the partitions' logs, and after those at the queue: its cuts are then known."""
        yield from super().look()
        yield from self.look_at_logs()
        yield from self.look_at_queue()
        state = self.queue
        self.barrier = Barrier(state.generations, self.settled, state.removed_ends)

    def look_at_logs(self) -> Step:
        self.ends = {n: len(log.messages) for n, log in self.world.town.logs.items()}
        yield from self.dawdle()

    def look_at_queue(self) -> Step:
        self.queue = self.world.town.queue.state
        if not hasattr(self, "before") or self.world.rng.random() < 0.1:
            self.before = self.queue
        yield from self.dawdle()

    def dawdle(self) -> Step:
        """Some looks take long."""
        slow = not self.world.calm and self.world.rng.random() < 0.05
        for _ in range(self.world.rng.randint(2, 30) if slow else 1):
            yield

    def settled(self, number: int) -> int:
        return self.control.state.committed_floor((QUEUE, number))

    def limit(self, where: PartitionId, first: int) -> int:
        if where[1] not in self.queue.partition_numbers:
            return first  # removed, and the group does not know yet
        return self.barrier.limit(where[1], first, max(first, self.ends.get(where[1], 0)))

    def found(self) -> tuple[dict[str, QueueInGroup], dict[PartitionId, int]]:
        stale = not self.world.calm and self.world.rng.random() < 0.3  # somebody remembers an older look
        return self.world.found(self.before if stale else self.queue)

    def queues_changed(self) -> list[Event]:
        """What the queue has become; and floors, where others wait for what this group has acknowledged (S5)."""
        events = super().queues_changed()
        reached = [
            a
            for a, cut in self.barrier.missing.items()
            if (QUEUE, a) in self.control.state.partitions and self.position((QUEUE, a)) >= cut
        ]
        return [*events, RaiseFloors(QUEUE, tuple(reached))] if reached else events


class Witness(Recorder):
    """Of one group: beside what every group promises, the order of each key over all generations of the map."""

    world: Group

    def committed(self, before: GroupState, facts: Sequence[GroupFact], after: GroupState) -> None:
        super().committed(before, facts, after)
        world, town = self.world, self.world.town
        if not before.queues:
            world.since = town.time
        for fact in facts:
            if fact.kind == Kind.PARTITION_REMOVED and fact.partition != PARENT:  # in which it is stuck, and not lost
                assert fact.partition is not None and fact.offset is not None
                if world.began_after_removal(fact.partition):
                    began = any(n == fact.partition for n, _ in world.delivered)
                    self._must(
                        not began, f"{fact.partition_id} was removed before {world.name} began, yet it was given some"
                    )
                    continue
                stored = len(town.logs[fact.partition].messages)
                gone = town.queue.state.removed_ends.get(fact.partition, stored)
                end = max(world.forgiven(fact.partition), fact.offset)
                self._must(end >= gone, f"{fact.partition_id} is removed at {fact.offset}, before its end {gone}")

    def plan(self, process: Process, ranges: dict[PartitionId, Range]) -> None:
        """S2: what was removed does not come back with its partition; nobody waits for it any more."""
        super().plan(process, ranges)
        assert isinstance(process, Reader)
        for where, r in ranges.items():
            gone = process.queue.removed_ends.get(where[1], 0)
            own = self.world.control.state.partitions.get(where)
            forgiven = where[1] == PARENT or self.world.began_after_removal(where[1])
            past = not same_lineage(own, process.incarnation, r.epoch)  # it will not count
            self._must(
                forgiven or past or r.start >= gone, f"S2: {where} is planned from {r.start}, but removed up to {gone}"
            )

    def deliver(self, process: Process, incarnation: str, where: PartitionId, r: Range, mark: int) -> None:
        super().deliver(process, incarnation, where, r, mark)
        own = self.world.control.state.partitions.get(where)
        if not same_lineage(own, incarnation, r.epoch):
            return  # somebody else has it by now, and gets it marked
        log, town = self.world.town.logs[where[1]], self.world.town
        for x in range(r.start, r.end):
            self._check_barrier(where[1], x, log.generations[x])
            message = log.messages[x]
            if message.key is not None:
                self._check_order(where[1], x, town.keys[message.sink, message.key])
            self.world.delivered.add((where[1], x))

    def _check_barrier(self, b: int, x: int, j: int) -> None:
        """I16, by what the logs say."""
        town = self.world.town
        after = town.queue.state.generations[j].partition_count
        for g in range(j):
            before = town.queue.state.generations[g].partition_count
            for a in range(before):
                if after and (a - b) % gcd(before, after):
                    continue
                cut = town.logs[a].cuts[g]
                self._must(
                    self.world.finished(a, cut - 1) or not cut,
                    f"I16: {b}[{x}] of generation {j} is delivered before {a} is settled up to {cut}",
                )

    def _check_order(self, b: int, x: int, places: Sequence[tuple[int, int]]) -> None:
        """S5: what came before it is finished, what comes after it was not delivered."""
        mine = places.index((b, x))
        forgiven = x < self.world.forgiven(b)
        for i, (a, y) in enumerate(places):
            if a == b:
                continue
            if i < mine:
                self._must(
                    y < self.world.forgiven(a) or self.world.finished(a, y),
                    f"ORDER: {b}[{x}] is delivered before {a}[{y}] of the same key is finished",
                )
            else:
                self._must(
                    forgiven or (a, y) not in self.world.delivered,
                    f"ORDER: {b}[{x}] is delivered after {a}[{y}] of the same key",
                )


class Group(World):
    """A consumer group that reads the queue of a town."""

    def __init__(self, town: Town, number: int, setup: Setup) -> None:
        self.town, self.name = town, f"g{number}"
        self.since = town.time  # when it first knew the queue
        self.delivered: set[tuple[int, int]] = set()  # partition, offset: by who owned it then
        self.excused: dict[int, int] = {}  # of partitions that were removed while this group began, their end
        super().__init__(town.rng.getrandbits(32), setup, town.reader)
        self.recorder = Witness(self)
        self.control.on_commit = self.recorder.committed
        self.trace = town.trace
        self.counts = {QUEUE: ("queue-0", 1)}

    # ---- what a world has, here from the town
    def found(self, state: QueueState) -> tuple[dict[str, QueueInGroup], dict[PartitionId, int]]:
        s = self.setup
        queue = QueueInGroup(
            "queue-0",
            state.operating_partitions,
            s.rebalance_delay_ms,
            s.max_handoff_time_ms,
            state.first,
            state.revision,
        )
        return {QUEUE: queue}, {(QUEUE, n): state.removed_ends.get(n, 0) for n in state.partition_numbers}

    def queues(self) -> dict[str, QueueInGroup]:
        return self.found(self.town.queue.state)[0]

    def starts(self) -> dict[PartitionId, int]:
        return self.found(self.town.queue.state)[1]

    def produce(self) -> None:
        """Producers do."""

    def change_queues(self) -> None:
        """Scalers do."""

    def log(self, who: Process | None, what: object) -> None:
        self.town.trace.append((self.town.time, self.now_ms, f"{self.name} {who.name if who else ''}", what))

    def tick(self) -> None:
        self.ends = {(QUEUE, n): len(log.messages) for n, log in self.town.logs.items()}
        super().tick()

    # ---- asking
    def settled(self, number: int) -> int:
        return self.control.state.committed_floor((QUEUE, number))

    def position(self, number: int) -> int:
        state = self.control.state
        if (QUEUE, number) in state.removed:
            return state.removed[QUEUE, number][1]
        return state.position((QUEUE, number), self.acks.acks) or 0

    def finished(self, number: int, offset: int) -> bool:
        """Whether the group has settled a message, or its partition was removed before the group began."""
        where, state, town = (QUEUE, number), self.control.state, self.town
        done = state.committed_floor(where) if where in state.partitions else state.removed.get(where, (0, 0))[1]
        if self.began_after_removal(number):
            done = max(done, town.queue.state.removed_ends[number])
        return offset < max(done, town.lost.get(number, 0), self.excused.get(number, 0))

    def forgiven(self, number: int) -> int:
        """Below this nothing is promised: lost by `delete`, stuck in the parent, or removed while this group began."""
        stuck = self.town.queue.state.removed_ends[number] if self.began_after_removal(number) else 0
        if number == PARENT:
            generations = self.town.logs[PARENT].generations
            stuck = sum(1 for g in generations if g < self.town.queue.state.generation)
        return max(stuck, self.town.lost.get(number, 0), self.excused.get(number, 0))

    def began_after_removal(self, number: int) -> bool:
        """Whether the group first knew the queue when the partition had been removed; its look may have been from before."""
        return self.since > self.town.removed.get(number, self.town.time)

    @property
    def revision(self) -> int:
        """Of the queue, as the group knows it."""
        return self.control.state.queues[QUEUE].revision

    def update(self, state: QueueState) -> None:
        """Somebody tells the group which partitions there are."""
        self.aside(self.processes[0], [QueuesChanged(*self.found(state))])

    def raise_floors(self, partitions: Iterable[int]) -> None:
        process = self.processes[0]
        self.aside(process, [RaiseFloors(QUEUE, tuple(partitions))])


@dataclass(frozen=True)
class TownSetup:
    """What a run is made of."""

    partitions: int = 4
    sinks: int = 1
    keys: int = 5
    groups: tuple[Setup, ...] = (Setup(),)
    late: bool = False  # the last group begins some time later
    modes: tuple[str, ...] = MODES
    counts: tuple[int, ...] = (1, 2, 3, 4, 6)
    trouble: float = 0.02
    conflict: float = 0.0
    unknown: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> TownSetup:
        groups = tuple(small(Setup.draw(rng)) for _ in range(rng.choice((1, 1, 2))))
        counts = rng.choice(((1, 2, 4), (2, 3, 4, 6), (2, 3, 5), (0, 2, 3), (0, 1, 4), (3, 4, 6, 8)))
        faulty = rng.random() < 0.6
        return cls(
            partitions=rng.choice(counts),
            sinks=rng.choice((1, 1, 2)),
            keys=rng.choice((2, 4, 7)),
            groups=groups,
            late=rng.random() < 0.2,
            modes=rng.choice((("live",), ("live",), ("live", "drain"), MODES)),
            counts=counts,
            trouble=rng.choice((0.01, 0.03, 0.05, 0.15)),
            conflict=0.03 if faulty else 0.0,
            unknown=0.02 if faulty else 0.0,
        )


def small(setup: Setup) -> Setup:
    """A group of few processes, with one queue."""
    return replace(
        setup, partitions=(1,), churn=False, reads=None, flaky=0.0, flows=setup.flows[:2], manual=setup.manual[:2],
        trouble=min(setup.trouble, 0.02),
    )  # fmt: skip


class Town:
    """A queue and all who use it."""

    def __init__(self, seed: int, setup: TownSetup | None = None, reader: type[Reader] = Reader) -> None:
        self.seed, self.rng, self.reader = seed, random.Random(seed), reader
        self.setup = setup or TownSetup.draw(self.rng)
        s = self.setup
        self.faults = Faults(self.rng, s.conflict, s.unknown, s.unknown)
        self.queue = QueueLog(s.partitions, self.faults)
        self.queue.on_commit = self.changed
        self.trace: list[tuple[int, int, str, object]] = []
        self.time = 0
        self.calm = False
        self.acting: Actor | None = None
        self.logs: dict[int, PartitionLog] = {}
        for number in partition_numbers(s.partitions):
            self.make(number)
        self.placed: dict[tuple[str, int], tuple[int, int]] = {}  # each message: where it is
        self.keys: dict[tuple[str, int], list[tuple[int, int]]] = {}  # sink and key: where its messages are, in order
        self.lost: dict[int, int] = {}  # partition: `delete` has lost what lies below
        self.removed: dict[int, int] = {}  # when each partition was
        self.started: dict[int, int] = {}  # where each partition ended when the last change of the count began
        self.drawn: dict[str, int] = {}
        self.names = 0
        self.sources = [Source(f"s{i}", self.draw) for i in range(s.sinks)]
        self.actors: list[Actor] = []
        self.waiting = [*s.groups]
        self.groups: list[Group] = []
        for _ in range(len(s.groups) - s.late):
            self.begin_group()
        for source in self.sources:
            self.produce(source)

    # ---- things
    def make(self, number: int) -> None:
        """A partition's table, unless it is there."""
        self.logs.setdefault(number, PartitionLog(self.faults))

    def begin_group(self) -> None:
        self.groups.append(Group(self, len(self.groups), self.waiting.pop(0)))

    def produce(self, source: Source) -> Producer:
        self.names += 1
        producer = Producer(self, f"{source.sink}#{self.names}", source)
        self.actors.append(producer)
        self.note(producer.name, f"starts with batch {source.done}")
        return producer

    def scale(self, partitions: int | None, mode: str = "live") -> Scaler:
        self.names += 1
        scaler = Scaler(self, f"scaler#{self.names}", partitions, mode)  # type: ignore[arg-type]
        self.actors.append(scaler)
        self.note(scaler.name, f"scales to {partitions} ({mode})")
        return scaler

    def draw(self, sink: str, batch: int) -> list[Message]:
        """The rows of a batch."""
        rng, first = self.rng, self.drawn.get(sink, 0)
        keys = [rng.randrange(self.setup.keys) if rng.random() < 0.85 else None for _ in range(rng.randint(1, 5))]
        self.drawn[sink] = first + len(keys)
        return [
            Message(sink, batch, first + i, key, first + i + 7 * batch if key is None else key)
            for i, key in enumerate(keys)
        ]

    def shuffled(self, partitions: Iterable[int]) -> list[int]:
        """Commits to several partitions come in any order."""
        found = sorted(partitions)
        self.rng.shuffle(found)
        return found

    def note(self, who: str, what: object) -> None:
        self.trace.append((self.time, 0, who, what))

    def readers(self) -> list[Group]:
        """The groups that ever read the queue."""
        return [group for group in self.groups if QUEUE in group.control.state.queues]

    def unread(self, number: int, since: int | None = None) -> int:
        """Messages of a partition that some group (of those that had begun before `since`) has not acknowledged; with no group all."""
        end = len(self.logs[number].messages)
        readers = [group for group in self.readers() if since is None or group.since < since]
        return max((end - min(end, group.position(number)) for group in readers), default=end)

    # ---- promises
    def appended(self, who: Producer, number: int, messages: Sequence[Message], generation: int) -> None:
        """Messages have come to stand at the end of a partition."""
        log = self.logs[number]
        first = len(log.messages) - len(messages)
        told = " ".join(f"{m.key}:{m.number}" for m in messages)
        self.note(who.name, f"appends {told} to {number}[{first},{len(log.messages)}) under generation {generation}")
        counts = self.queue.state.generations
        self._must(all(g < generation for g in log.cuts), f"I15: {number} is sealed under {dict(log.cuts)}")
        self._must(generation == len(counts) - 1, f"I15: {number} takes generation {generation}, which has ended")
        self._must(
            generation == 0 or generation - 1 in log.cuts, f"I15: {number} takes generation {generation} too early"
        )
        for x, message in enumerate(messages, first):
            count = counts[generation].partition_count
            self._must(number == (message.hash % count if count else PARENT), f"I15: {number} takes {message}")
            self._must((message.sink, message.number) not in self.placed, f"DUPLICATE: {message}")
            self.placed[message.sink, message.number] = number, x
            if message.key is not None:
                places = self.keys.setdefault((message.sink, message.key), [])
                if places:
                    a, y = places[-1]
                    self._must(self.logs[a].messages[y].number < message.number, f"ORDER: {message} is written late")
                places.append((number, x))

    def check_in(self, who: Producer, messages: Sequence[Message]) -> None:
        """A producer believes that these are in."""
        for message in messages:
            self._must((message.sink, message.number) in self.placed, f"LOSS: {who.name} believes that {message} is in")

    def changed(self, before: QueueState, facts: Sequence[QueueFact], after: QueueState) -> None:
        """A commit to the queue's control table."""
        self.note(self.acting.name if self.acting else "", f"commits {facts}")
        for fact in facts:
            if fact.kind == "GenerationOpened":
                g = before.generation
                for number, cut in fact.body["cuts"].items():
                    placed = self.logs[number].generations
                    self._must(
                        cut == sum(h <= g for h in placed), f"I15: {cut} is not where generation {g} of {number} ends"
                    )
                    self._must(
                        cut == len(placed), f"I15: {number} has messages of generation {g + 1} before it is in force"
                    )
            if fact.kind == "ScalingStarted":
                self.started = {n: len(self.logs[n].messages) for n in before.partition_numbers}
            if fact.kind == "QueueDrained":
                assert self.acting is not None
                for n, end in self.started.items():
                    if n not in after.partition_numbers:
                        continue  # removed meanwhile
                    left = [g.name for g in self.readers() if g.since < self.acting.looked_at and g.settled(n) < end]
                    self._must(not left, f"S4: {left} have not settled all that was in {n} when the drain began")
            if fact.kind == "PartitionsRemoved":
                self._check_removed(before, fact)
        drains = after.scaling is not None and after.scaling.mode == "drain"
        self._must(not (drains and after.ingress), "S4: ingress is on while the queue is drained")

    def _check_removed(self, before: QueueState, fact: QueueFact) -> None:
        """I17: only what is settled is removed; what `delete` has lost is told."""
        deleted = before.scaling is not None and before.scaling.mode == "delete" and not before.scaling.opened
        assert self.acting is not None
        lost, looked_at = 0, self.acting.looked_at
        for number, end in fact.body["ends"].items():
            stored = len(self.logs[number].messages)
            self._must(end == stored, f"I17: {number} ends at {stored}, not at {end}")
            lost += self.unread(number, looked_at)
            self.removed[number] = self.time
            if deleted:
                self.lost[number] = end
                continue
            readers = self.readers()
            self._must(bool(readers) or not end, f"I17: {number} is removed though nobody has read it")
            for group in readers:
                if group.since >= looked_at:
                    group.excused[number] = end  # it began after the look; to it the partition was never there
                    continue
                self._must(group.settled(number) >= end, f"I17: {number} is removed before {group.name} has settled it")
        self._must(fact.body["lost"] >= lost if deleted else not fact.body["lost"], f"S2: {lost} messages are lost")

    def _must(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise SimulationError(otherwise)

    # ---- time
    def tick(self) -> None:
        """One step: perhaps trouble, and somebody does his next thing."""
        self.time += 1
        if not self.calm and self.rng.random() < self.setup.trouble:
            self.trouble()
        everybody: list[Actor | Group] = [*self.groups, *self.groups, *(a for a in self.actors if a.alive)]
        who = self.rng.choice(everybody)
        if isinstance(who, Group):
            who.tick()
        else:
            who.step()
        if self.time % 64 == 0:
            self.actors = [actor for actor in self.actors if actor.alive]

    def trouble(self) -> None:
        rng = self.rng
        kind = rng.choices(list(TROUBLES), list(TROUBLES.values()))[0]
        producers = [a for a in self.actors if a.alive and isinstance(a, Producer)]
        scalers = [a for a in self.actors if a.alive and isinstance(a, Scaler)]
        if kind == "scale" and len(scalers) < 3:
            self.scale(rng.choice(self.setup.counts), rng.choice(self.setup.modes))
        elif kind == "stop scaling" and scalers:
            rng.choice(scalers).stop("crashes")
        elif kind == "go on scaling" and not scalers:
            self.scale(None)
        elif kind == "restart" and producers:
            producer = rng.choice(producers)
            producer.stop("crashes")
            self.produce(producer.source)
        elif kind == "twin" and len(producers) < len(self.sources) + 2:
            self.produce(rng.choice(self.sources))
        elif kind == "ingress":
            self.toggle(not self.queue.state.ingress)
        elif kind == "group" and self.waiting:
            self.begin_group()

    def toggle(self, on: bool) -> None:
        """Whether the queue takes messages; who scales it may not like that."""
        self.acting = None
        try:
            self.queue.commit(self.queue.state, decide.set_ingress(self.queue.state, on))
        except (*UNCERTAIN, ScalingInProgressError) as error:
            self.note("", f"{error}")

    # ---- runs
    def run(self, steps: int) -> None:
        """Run for so many steps, then calm down and converge."""
        for _ in range(steps):
            self.tick()
        self.converge()

    def converge(self, bound: int = 12_000) -> None:
        """No more faults: within bounded time the queue is Ready and everybody has everything."""
        self.calm = True
        self.faults.conflict = self.faults.lost = self.faults.landed = 0.0
        while self.waiting:
            self.begin_group()
        for group in self.groups:
            group.quieten()
        for source in self.sources:
            source.end = source.done + 1 if source.end is None else source.end
        for _ in range(bound):
            if self.time % 16 == 0:
                self.help()
                if self.converged():
                    return
            self.tick()
        state = self.queue.state
        left = {
            g.name: {n: (g.position(n), len(self.logs[n].messages)) for n in state.partition_numbers}
            for g in self.groups
        }
        raise SimulationError(f"did not converge: {state.status}, {state.scaling}, going {state.removing}, {left}")

    def help(self) -> None:
        """Whoever died is replaced."""
        state = self.queue.state
        for source in self.sources:
            if not source.exhausted and not any(isinstance(a, Producer) and a.source is source for a in self.alive()):
                self.produce(source)
        if (state.scaling or state.removing) and not any(isinstance(a, Scaler) for a in self.alive()):
            self.scale(None)
        if not state.ingress and state.scaling is None:
            self.toggle(True)
        for group in self.groups:
            if not any(p.flows and not p.leaving for p in group.living):
                group.start_instance(0)

    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.alive]

    def converged(self) -> bool:
        state = self.queue.state
        if state.status != "Ready" or state.scaling is not None or not state.ingress:
            return False
        if not all(source.exhausted for source in self.sources):
            return False
        for group in self.groups:
            group.ends = {(QUEUE, n): len(log.messages) for n, log in self.logs.items()}
        if not all(group.converged() and self.settled(group) for group in self.groups):
            return False
        for source in self.sources:
            for batch in source.batches[: source.done]:
                for message in batch:
                    self._must((message.sink, message.number) in self.placed, f"LOSS: {message} is nowhere")
        return True

    def settled(self, group: Group) -> bool:
        """The barrier has ended: nobody waits for anybody any more."""
        state = self.queue.state
        return not Barrier(state.generations, group.settled, state.removed_ends).missing

    def counted(self) -> dict[str, int]:
        return {
            "resizes": self.queue.state.generation,
            "messages": len(self.placed),
            "deliveries": sum(group.recorder.count for group in self.groups),
        }


# What may go wrong or change, and how often compared with the others.
TROUBLES = {"scale": 6, "stop scaling": 3, "go on scaling": 3, "restart": 4, "twin": 2, "ingress": 2, "group": 2}


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, "a queue that is resized", Town)


if __name__ == "__main__":
    sys.exit(main())
