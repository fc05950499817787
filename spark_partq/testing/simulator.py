"""A whole consumer group in one thread, from a seed: processes, clocks, stores, faults; only the core is the real one.

Each process is a few generators that stop after every look, commit, append and delivery, so that anything can happen in
between. All that is committed and delivered is checked at once (`spark_partq.testing.recorder`); at the end the faults stop
and the group must become Ready, balanced and fully acknowledged in bounded time.

    python -m spark_partq.testing.simulator --seeds 500 --steps 1000
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import Progress

from spark_partq.core.assignors import BUILTIN, Assignor
from spark_partq.core.errors import AssignorError, UnknownAssignorError
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import Event, Leave, RaiseFloors
from spark_partq.core.group.facts import GroupFact, PartitionState, QueueInGroup, Status
from spark_partq.core.group.invariants import check_balance
from spark_partq.core.ids import PartitionId
from spark_partq.testing.memory import AckLog, ControlLog, Faults
from spark_partq.testing.process import Checkpoint, Process
from spark_partq.testing.recorder import Recorder, SimulationError


@dataclass(frozen=True)
class Setup:
    """What a run is made of. Times in milliseconds."""

    partitions: tuple[int, ...] = (4,)  # of each queue
    rebalance_delay_ms: int = 0
    max_handoff_time_ms: int = 3_000
    session_timeout_ms: int = 4_000
    flows: tuple[int, ...] = (1, 1)  # of each instance
    manual: tuple[bool, ...] = (False, False)
    assignors: tuple[tuple[str, ...], ...] = (("balanced",),) * 8  # of each instance
    reads: tuple[tuple[int, ...], ...] | None = None  # queues of each instance; None is a pattern that all match
    weights: tuple[float, ...] = (1.0,) * 8
    static: bool = False
    flaky: float = 0.0  # chance that an assignor fails
    churn: bool = False  # queues are created, deleted and made anew, not only grown
    rebalancer: bool = False
    step_ms: int = 25
    conflict: float = 0.02
    lost: float = 0.01
    landed: float = 0.01
    trouble: float = 0.02  # chance of a fault at a step
    skew: bool = True  # clocks drift and jump

    @classmethod
    def draw(cls, rng: random.Random) -> Setup:
        """Any group of modest size."""
        partitions = rng.randint(1, 8)
        two = partitions > 3 and rng.random() < 0.35
        instances = rng.randint(1, 4)
        kafka = rng.random() < 0.5
        common = rng.choice(ASSIGNORS)
        unequal = two and rng.random() < 0.6
        return cls(
            partitions=(partitions - 2, 2) if two else (partitions,),
            assignors=tuple(some_assignors(rng, common) if kafka else ("balanced",) for _ in range(8)),
            reads=tuple(rng.choice(SUBSCRIPTIONS) for _ in range(8)) if unequal else None,
            weights=tuple(rng.choice((1.0, 1.0, 2.0)) for _ in range(8)) if rng.random() < 0.15 else (1.0,) * 8,
            static=rng.random() < 0.3,
            churn=not unequal and rng.random() < 0.3,
            flaky=0.3 if kafka and rng.random() < 0.1 else 0.0,
            rebalance_delay_ms=rng.choice((0, 0, 1_000, 3_000)),
            max_handoff_time_ms=rng.choice((0, 300, 2_000, 2_000, 20_000)),
            session_timeout_ms=rng.choice((3_000, 5_000)),
            flows=tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(instances)),
            manual=tuple(rng.random() < 0.25 for _ in range(instances)),
            rebalancer=rng.random() < 0.3,
            trouble=rng.choice((0.005, 0.02, 0.04)),
            conflict=rng.choice((0.0, 0.03)),
        )


ASSIGNORS = sorted(BUILTIN)
SUBSCRIPTIONS = ((0,), (1,), (0, 1), (0, 1))


def some_assignors(rng: random.Random, common: str) -> tuple[str, ...]:
    """What a member may list in a group whose members have `common` in common."""
    others = [name for name in ASSIGNORS if name != common]
    listed = [common, *rng.sample(others, rng.choice((0, 0, 1, 2)))]
    rng.shuffle(listed)
    return tuple(listed)


class World:
    """Stores, processes, time and trouble, all from one seed."""

    def __init__(self, seed: int, setup: Setup | None = None, process: type[Process] = Process) -> None:
        self.seed, self.rng, self.process_class = seed, random.Random(seed), process
        self.setup = setup or Setup.draw(self.rng)
        faults = Faults(self.rng, self.setup.conflict, self.setup.lost, self.setup.landed)
        self.control = ControlLog(faults, clock=lambda: self.now_ms)
        self.acks = AckLog(faults)
        self.now_ms = 0
        self.time = 0  # number of the step
        self.calm = False
        self.trace: list[tuple[int, int, str, object]] = []
        self.actor: Process | None = None
        self.recorder = Recorder(self)
        self.control.on_commit = self.recorder.committed
        self.assignors = dict(zip("abcdefgh", self.setup.assignors, strict=False))
        self.reads = dict(zip("abcdefgh", self.setup.reads or (), strict=False))
        self.weights = dict(zip("abcdefgh", self.setup.weights, strict=False))
        self.counts: dict[str, tuple[str, int]] = {
            f"q{i}": (f"queue-{i}", n) for i, n in enumerate(self.setup.partitions)
        }  # of each queue that is there: its name and partitions
        self.ends: dict[PartitionId, int] = {}
        self.queues()
        self.processes: list[Process] = []
        self.checkpoints: dict[str, Checkpoint] = {}
        self.names = 0
        if self.setup.rebalancer:
            self.start("rebalancer", 0, False, Checkpoint())
        for i in range(len(self.setup.flows)):
            self.start_instance(i)

    # ---- things
    def uuid(self) -> str:
        return f"{self.rng.getrandbits(32):08x}"

    def queues(self) -> dict[str, QueueInGroup]:
        s = self.setup
        for queue_id, (_, n) in self.counts.items():
            for p in range(n):
                self.ends.setdefault((queue_id, p), 0)
        return {
            queue_id: QueueInGroup(name, n, s.rebalance_delay_ms, s.max_handoff_time_ms)
            for queue_id, (name, n) in self.counts.items()
        }

    def starts(self) -> dict[PartitionId, int]:
        """A group starts at the beginning of what it meets."""
        return {(queue_id, p): 0 for queue_id, (_, n) in self.counts.items() for p in range(n)}

    def loads(self) -> dict[PartitionId, float]:
        return {where: 1.0 + end for where, end in self.ends.items()}

    def assignor(self, name: str) -> Assignor:
        if not self.calm and self.rng.random() < self.setup.flaky:
            raise AssignorError(f"{name} fails", assignor=name)
        if self.setup.flaky and self.actor is not None and not self.actor.flows:
            raise UnknownAssignorError(f"{name} is installed only where it is used", assignor=name)
        return BUILTIN[name]

    def start(self, instance: str, flows: int, manual: bool, checkpoint: Checkpoint) -> Process:
        """Start a process of an instance."""
        self.names += 1
        process = self.process_class(self, f"{instance}#{self.names}", instance, flows, manual, checkpoint)
        self.processes.append(process)
        self.log(process, f"starts with {flows} flows after batch {checkpoint.batch}")
        return process

    def start_instance(self, i: int, fresh: bool = False, flows: int | None = None) -> Process:
        """Start it on its checkpoint or (`fresh`) without."""
        name = "abcdefgh"[i]
        if fresh or name not in self.checkpoints:
            self.checkpoints[name] = Checkpoint()
        return self.start(name, flows or self.setup.flows[i], self.setup.manual[i], self.checkpoints[name])

    def log(self, who: Process | None, what: object) -> None:
        self.trace.append((self.time, self.now_ms, who.name if who else "", what))

    @property
    def living(self) -> list[Process]:
        return [p for p in self.processes if p.alive]

    def running(self, instance: str) -> bool:
        return any(p.alive and p.instance == instance for p in self.processes)

    def appended(self, process: Process, rows: Sequence[AckRow]) -> None:
        for row in rows:
            if row.partition_id is not None:
                self.log(process, row)
        self.recorder.acknowledged(process, rows)

    # ---- time
    def tick(self) -> None:
        """One step: time passes, perhaps trouble, and some process does its next thing."""
        self.time += 1
        if not self.calm:
            self.now_ms += self.rng.randint(1, 2 * self.setup.step_ms)
            if self.rng.random() < self.setup.trouble:
                self.trouble()
            self.produce()
        else:
            self.now_ms += max(2, 100 // max(1, sum(len(p.threads) for p in self.processes)))
        ready = [p for p in self.processes if p.threads and p.paused_until <= self.now_ms]
        if ready:
            process = self.rng.choice(ready)
            threads = list(process.threads)
            process.step(threads[0] if len(threads) == 1 else self.rng.choice(threads))
        if len(self.processes) > 12:
            self.processes = [p for p in self.processes if p.alive]

    def produce(self) -> None:
        if self.rng.random() < 0.15:
            there = list(self.starts())
            if there:
                self.ends[self.rng.choice(there)] += self.rng.randint(1, 3)

    def trouble(self) -> None:
        rng, living = self.rng, self.living
        consumers = [p for p in living if p.flows]
        kind = rng.choices(list(TROUBLES), list(TROUBLES.values()))[0]
        if kind == "start" or not consumers or (len(consumers) < len(self.setup.flows) and rng.random() < 0.3):
            i = rng.randrange(len(self.setup.flows))
            if not self.running("abcdefgh"[i]) or rng.random() < 0.05:
                flows = self.setup.flows[i] if rng.random() < 0.8 else rng.randint(1, 3)
                self.start_instance(i, rng.random() < 0.15, flows)
            return
        process = rng.choice(consumers)
        if kind == "crash":
            process.stop("crashes")
        elif kind == "restart":
            process.stop("crashes")
            i = "abcdefgh".index(process.instance)
            if self.setup.assignors[0] != ("balanced",) and rng.random() < 0.5:
                common = set.intersection(*map(set, self.setup.assignors))  # a restart that is an upgrade
                self.assignors[process.instance] = some_assignors(rng, rng.choice(sorted(common)))
            if self.setup.reads is not None and rng.random() < 0.6:
                self.reads[process.instance] = rng.choice(SUBSCRIPTIONS)
            self.start_instance(i, flows=process.flows if rng.random() < 0.9 else rng.randint(1, 3))
        elif kind == "leave":
            process.leaving = True
            self.log(process, "wants to leave")
        elif kind == "pause":
            process.paused_until = self.now_ms + rng.choice((500, 2_000, 10_000))
            self.log(process, f"pauses until {process.paused_until}")
        elif kind == "jump":
            process.clock_ms += rng.choice((-5_000, 5_000, 10**7)) if self.setup.skew else 0
            self.log(process, "has a clock that jumps")
        elif kind == "expel":
            self.expel(process)
        elif kind == "twin":
            # Two processes of one instance, each with a checkpoint of its own: a query that was started twice.
            copy = process.durable.copy() if rng.random() < 0.5 else Checkpoint()
            self.start(process.instance, process.flows, process.manual, copy)
        elif kind == "floor":
            self.floor(rng.choice(living))
        elif kind == "queues":
            self.change_queues()

    def change_queues(self) -> None:
        """A queue grows; or one is created, deleted or made anew."""
        rng = self.rng
        kind = rng.choice(("grow", "create", "drop", "anew") if self.setup.churn else ("grow",))
        if len(self.starts()) >= 10 and kind in ("grow", "create"):
            return
        if kind == "create" or not self.counts:
            self.new_queue(f"queue-new-{self.names}")
        else:
            queue_id = rng.choice(list(self.counts))
            name, n = self.counts[queue_id]
            if kind == "grow":
                self.counts[queue_id] = (name, n + 1)
            else:
                del self.counts[queue_id]
            if kind == "anew":
                self.new_queue(name)
        self.log(None, f"queues: {self.counts}")
        self.queues()

    def new_queue(self, name: str) -> None:
        self.names += 1
        self.counts[f"q-{self.names}"] = (name, self.rng.randint(1, 3))

    def expel(self, process: Process) -> None:
        """Somebody declares a process gone that is alive."""
        self.aside(process, [Leave(process.instance, process.incarnation, expired=True)])

    def floor(self, process: Process) -> None:
        """Maintenance: raise the floors, then remove what lies below them."""
        self.aside(process, [RaiseFloors(queue_id) for queue_id in self.counts])
        for where, floor in self.control.state.floors.items():
            self.recorder.kept[where] = max(floor, self.recorder.kept.get(where, 0))

    def aside(self, process: Process, events: Sequence[Event]) -> None:
        """Decide at once, as a process that is none of the group's would."""
        other = Process(self, "aside", "aside", 0, False, Checkpoint())
        self.actor = other
        for _ in (*other.look(), *other.commit(events)):
            pass

    # ---- runs
    def run(self, steps: int) -> None:
        """Run for so many steps, then calm down and converge.

        Raises
        ------
        SimulationError, InvariantError
            If a promise is broken.
        """
        for _ in range(steps):
            self.tick()
        self.converge()

    def converge(self, bound: int = 6_000) -> None:
        """No more faults: within bounded time the group is Ready, balanced, and has acknowledged everything."""
        self.quieten()
        since_ms = self.now_ms
        for _ in range(bound):
            if self.time % 16 == 0:
                self.check_handoffs(since_ms)
                if self.converged():
                    check_balance(self.control.state)
                    return
                if not any(p.flows and not p.leaving for p in self.living):
                    self.start_instance(0)
            self.tick()
        state, acks = self.control.state, self.acks.acks
        left = {
            w: (state.position(w, acks), self.ends[w])
            for w in state.subscribed_partitions
            if state.position(w, acks) != self.ends[w]
        }
        raise SimulationError(f"did not converge: status {state.status}, still to acknowledge {left}")

    def check_handoffs(self, since_ms: int) -> None:
        """H4: a handoff ends by its deadline, as far as it was watched without trouble since `since_ms`."""
        slowest = 1.2 * self.setup.max_handoff_time_ms + 10_000
        for where, own in self.control.state.partitions.items():
            if own.state is PartitionState.DRAINING:
                began_ms = max(since_ms, self.control.facts[own.handoff][0])
                if self.now_ms - began_ms > slowest:
                    raise SimulationError(f"H4: {where} has been draining since {began_ms} ms")

    def quieten(self) -> None:
        self.calm = True
        faults = self.control.faults
        faults.conflict = faults.lost = faults.landed = 0.0
        for process in self.living:
            process.paused_until = 0

    def converged(self) -> bool:
        state, acks = self.control.state, self.acks.acks
        if state.status is not Status.READY or set(state.queues) - set(self.counts):
            return False
        named = {
            queue_id
            for queue_id, (name, _) in self.counts.items()
            if any(m.subscribes(name) for m in state.members.values())
        }
        if {w for w in self.starts() if w[0] in named} != set(state.subscribed_partitions):
            return False
        present = {p.incarnation for p in self.living if p.flows and not p.leaving}
        if {m.incarnation for m in state.members.values()} != present:
            return False
        return all(
            state.partition_state(where) is PartitionState.OWNED and state.position(where, acks) == self.ends[where]
            for where in state.subscribed_partitions
        )

    def counted(self) -> dict[str, int]:
        return {"commits": self.control.version, "deliveries": self.recorder.count}


# What may go wrong, and how often compared with the others.
TROUBLES = {
    "start": 6, "crash": 2, "restart": 3, "leave": 2, "pause": 2, "jump": 1, "expel": 2, "twin": 1, "floor": 2, "queues": 1,
}  # fmt: skip


def told(what: object) -> str:
    """One entry of a trace, for people."""
    if isinstance(what, AckRow):
        place = f"{what.queue_id}.{what.partition}"
        return f"acks {place} epoch {what.epoch} offset {what.offset} delivered {what.delivered}"
    if not isinstance(what, GroupFact):
        return str(what)
    names = ("offset", "delivered", "epoch", "lineage_epoch", "flow", "to_flow", "instance", "incarnation", "status")
    values = " ".join(f"{name}={getattr(what, name)}" for name in names if getattr(what, name) is not None)
    where = f" {what.queue_id}.{what.partition}" if what.partition is not None else ""
    return f"commits {what.kind}{where} {values} ({what.cause})"


class Run(Protocol):
    """What `command` simulates."""

    trace: list[tuple[int, int, str, object]]

    @property
    def setup(self) -> object: ...

    def run(self, steps: int) -> None: ...

    def counted(self) -> dict[str, int]: ...


def describe(world: Run, last: int = 80) -> str:
    """The end of a run, for people."""
    lines = [f"{step:6} {ms:8} ms  {who:14} {told(what)}" for step, ms, who, what in world.trace[-last:]]
    return "\n".join([str(world.setup), *lines])


R = TypeVar("R", bound=Run)


def run(seed: int, steps: int, world: Callable[[int], R] = World) -> R:  # type: ignore[assignment]
    """One run.

    Raises
    ------
    SimulationError
        If anything at all is wrong; with the trace.
    """
    built = world(seed)
    try:
        built.run(steps)
    except Exception as error:
        cause = "".join(traceback.format_exception(error)[-4:])
        raise SimulationError(f"seed {seed}: {type(error).__name__}: {error}\n{describe(built)}\n{cause}") from error
    return built


def command(arguments: Sequence[str] | None, what: str, world: Callable[[int], Run]) -> int:
    """Run so many seeds as the arguments say; tell of the first that fails."""
    parser = argparse.ArgumentParser(description=f"Simulate {what}.")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    started, console = time.monotonic(), Console()
    total: Counter[str] = Counter()
    with Progress(console=console, disable=not sys.stdout.isatty(), transient=True) as progress:
        task = progress.add_task("seeds", total=options.seeds)
        for seed in range(options.seed, options.seed + options.seeds):
            try:
                total.update(run(seed, options.steps, world).counted())
            except SimulationError as error:
                console.print(str(error), markup=False, highlight=False, soft_wrap=True)
                return 1
            progress.advance(task)
    took = time.monotonic() - started
    counted = ", ".join(f"{n} {name}" for name, n in total.items())
    print(f"{options.seeds} seeds, {options.steps} steps each: {counted}, {took:.0f} s")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, "consumer groups", World)


if __name__ == "__main__":
    sys.exit(main())
