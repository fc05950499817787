"""A simulated group that does only what a test tells it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_partq.core.assignors import Assignor
from spark_partq.core.errors import AssignorError
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.ids import PartitionId
from spark_partq.testing.process import Checkpoint, Process
from spark_partq.testing.simulator import Setup, World, told

P0, P1 = ("q0", 0), ("q0", 1)


class Stage(World):
    """No randomness: each thread of each process is stepped by hand until something has happened."""

    def __init__(self, partitions: int = 1, process: type[Process] = Process, **setup: Any) -> None:
        calm = {"flows": (), "manual": (), "conflict": 0.0, "lost": 0.0, "landed": 0.0, "skew": False}
        super().__init__(0, Setup((partitions,), **calm, **setup), process)
        self.calm = True
        self.fails = False

    def assignor(self, name: str) -> Assignor:
        if self.fails:
            raise AssignorError(f"{name} fails", assignor=name)
        return super().assignor(name)

    def consumer(
        self, name: str, flows: int = 1, manual: bool = False, checkpoint: Checkpoint | None = None
    ) -> Process:
        """Start a process and let it join."""
        process = self.start(name, flows, manual, checkpoint or self.checkpoints.setdefault(name, Checkpoint()))
        return self.until(process, lambda: process.joined)

    def rebalancer(self) -> Process:
        return self.start("rebalancer", 0, False, Checkpoint())

    def until(
        self, process: Process, event: str | Callable[[], bool], thread: str = "main", most: int = 200
    ) -> Process:
        """Step a thread until it has logged `event`, or until that is true."""
        for _ in range(most):
            seen = len(self.trace)
            self.time += 1
            self.unlock(process, thread)
            process.step(thread)
            if callable(event):
                if event():
                    return process
            elif any(who == process.name and event in told(what) for _, _, who, what in self.trace[seen:]):
                return process
            if not process.alive:
                break
        raise AssertionError(f"{process.name} does not get so far: {event}")

    def steps(self, process: Process, n: int = 12, thread: str = "background") -> None:
        for _ in range(n):
            self.time += 1
            if thread in process.threads:
                process.step(thread)
        self.unlock(process, thread)

    def unlock(self, process: Process, thread: str) -> None:
        """Let go on whoever holds the process's lock and is not this thread."""
        while process.alive and process.lock and (process.lock != thread or thread != "main"):
            process.step(process.lock)

    def live(self, ms: int, *processes: Process, tick_ms: int = 100, main: bool = False) -> None:
        """Let time pass; meanwhile these processes beat, look and decide (and, with `main`, also consume)."""
        for _ in range(0, ms, tick_ms):
            self.now_ms += tick_ms
            for process in processes or self.living:
                self.steps(process)
                if main:
                    self.steps(process, thread="main")
                    self.steps(process, 3, thread="application")

    def produce(self, end: int, *where: PartitionId) -> None:
        for place in where or list(self.ends):
            self.ends[place] = end

    def delivered(self, where: PartitionId = P0) -> list[tuple[int, int, int]]:
        """Start, end and epoch of all deliveries of a partition."""
        return [(d.start, d.end, d.epoch) for d in self.recorder.deliveries.get(where, [])]

    def facts(self, kind: Kind | None = None, where: PartitionId | None = None) -> list[GroupFact]:
        every = [fact for _, fact in self.control.facts]
        return [f for f in every if kind in (None, f.kind) and where in (None, (f.queue_id, f.partition))]

    def owner(self, where: PartitionId = P0) -> str | None:
        return self.control.state.partitions[where].flow
