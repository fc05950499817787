"""A simulated queue that is resized only as a test tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_partq.testing.process import Checkpoint, Step
from spark_partq.testing.producing import Actor, Scaler, Source
from spark_partq.testing.queues import Message
from spark_partq.testing.resizing import QUEUE, Group, Reader, Town, TownSetup
from spark_partq.testing.simulator import Setup, told

CALM = Setup((1,), flows=(), manual=(), conflict=0.0, lost=0.0, landed=0.0, skew=False)


class Slow(Reader):
    """Something may happen between its looks at the logs and at the queue."""

    meanwhile: Callable[[], None] | None = None

    def dawdle(self) -> Step:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        yield


class Stage(Town):
    """No randomness: each process is stepped by hand until something has happened. There is one group."""

    def __init__(self, partitions: int, groups: int = 1) -> None:
        super().__init__(0, TownSetup(partitions, sinks=0, groups=(CALM,) * groups), Slow)
        self.calm = True
        for group in self.groups:
            group.calm = True

    def shuffled(self, partitions: Iterable[int]) -> list[int]:
        return sorted(partitions, reverse=self.backwards)

    backwards = False

    # ---- producers and scalers
    def source(self, *batches: str, sink: str = "s") -> Source:
        """Batches of keys, as ``"1 3 1"``; the hash of a key is the key."""
        made = Source(sink, self.draw, end=len(batches))
        number = 0
        for b, keys in enumerate(batches):
            made.batches.append([Message(sink, b, number + i, int(k), int(k)) for i, k in enumerate(keys.split())])
            number += len(made.batches[b])
        self.sources.append(made)
        return made

    def write(self, *batches: str, sink: str = "s") -> None:
        """A producer that meets no trouble."""
        self.finish(self.produce(self.source(*batches, sink=sink)))

    def until(self, actor: Actor, event: str, most: int = 300) -> None:
        """Step it until this has happened."""
        for _ in range(most):
            seen = len(self.trace)
            self.time += 1
            actor.step()
            if any(event in told(what) for _, _, _, what in self.trace[seen:]):
                return
        raise AssertionError(f"{actor.name} does not get so far: {event}")

    def finish(self, actor: Actor) -> None:
        for _ in range(300):
            if not actor.alive:
                return
            self.time += 1
            actor.step()
        raise AssertionError(f"{actor.name} does not end")

    def open(self, partitions: int, mode: str = "live") -> Scaler:
        """Change the count up to where the new map is in force."""
        scaler = self.scale(partitions, mode)
        self.until(scaler, "GenerationOpened")
        return scaler

    # ---- the group
    @property
    def group(self) -> Group:
        return self.groups[0]

    def consumer(self, name: str = "a", group: Group | None = None) -> Slow:
        """Start a process and let it join."""
        group = group or self.group
        process = group.start(name, 1, False, Checkpoint())
        assert isinstance(process, Slow)
        for _ in range(50):
            self.turn(process, "main")
            if process.joined:
                return process
        raise AssertionError(f"{name} does not join")

    def turn(self, process: Slow, *threads: str) -> None:
        """One step of each of these threads."""
        for thread in threads:
            group = process.world
            group.ends = {(QUEUE, n): len(log.messages) for n, log in self.logs.items()}
            group.time += 1
            group.now_ms += 10
            self.time += 1
            if thread in process.threads:
                process.step(thread)

    def live(self, *processes: Slow, turns: int = 150, floors: bool = True) -> None:
        """They consume, look and decide; without `floors` only what Spark's own thread does."""
        for _ in range(turns):
            for process in processes:
                self.turn(process, *(("main", "background") if floors else ("main",)))

    def got(self, group: Group | None = None) -> list[str]:
        """Keys and numbers of the messages that were delivered, by the trace; in order."""
        name, found = (group or self.group).name, []
        for _, _, who, what in self.trace:
            if isinstance(what, str) and what.startswith("delivers") and who.startswith(f"{name} "):
                place, _, rest = what.removeprefix("delivers q0.").partition("[")
                start, end = map(int, rest.partition(")")[0].split(","))
                found += [self.said(self.logs[int(place)].messages[x]) for x in range(start, end)]
        return found

    def said(self, message: Message) -> str:
        return f"{message.key}:{message.number}"

    def held(self) -> dict[int, list[str]]:
        """What each partition holds."""
        return {n: [self.said(m) for m in log.messages] for n, log in sorted(self.logs.items())}
