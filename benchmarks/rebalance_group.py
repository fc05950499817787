"""Consumers of one group, each a process that says what it gets, and what an event costs them."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

DEADLINE_S = 60.0
LAST_MS = 1000.0  # so long an event is watched after every partition is delivered again


class System(NamedTuple):
    """Commands for one queue or topic.

    Attributes
    ----------
    consumer : function
        The command of a consumer of this name.
    producer : function
        That of a producer whose ticks are so many milliseconds apart.
    remove : function
        Removes the queue or topic.
    """

    consumer: Callable[[str], Sequence[str]]
    producer: Callable[[int], Sequence[str]]
    remove: Callable[[], None]


class Heard(NamedTuple):
    """A line of a consumer."""

    name: str
    what: str
    at_ms: int
    partitions: frozenset[int]


class Process:
    """A process that is ready, and waits for a line to go, and for another one to end."""

    def __init__(self, name: str, command: Sequence[str], heard: list[Heard]) -> None:
        self._name, self._heard = name, heard
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # it is there as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word = line.rstrip("\n").split("\t")
            if word[0] == "ready":
                self._ready.set()
            elif line.endswith("\n"):  # else it was killed while it wrote
                self._heard.append(Heard(self._name, word[0], int(word[1]), frozenset(map(int, word[2].split()))))

    def tell(self) -> None:
        if not self._ready.wait(DEADLINE_S):
            raise TimeoutError(f"{self._name} does not start: {self._process.args!r}")
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self.await_end()

    def await_end(self) -> None:
        self._process.wait(DEADLINE_S)
        self._listener.join()

    def check(self) -> None:
        if self._process.poll() is not None:
            self._errors.seek(0)
            raise RuntimeError(f"{self._name} ended: {self._errors.read()}")


@dataclass(frozen=True)
class Cost:
    """What an event cost.

    Attributes
    ----------
    moved, revoked : int
        Partitions that got another owner though they need not, and those that were revoked from a consumer that stays though they need not be.
    pause_ms, usual_ms : float
        The longest time between two deliveries of a partition that stays, in the event and before it.
    gaps_ms : list of float
        Of each partition that moves: between its last delivery at the old owner and the first at the new one.
    owned_ms, last_ms : float
        Between the event and when the last of these is told to its new owner, and the last of those first deliveries.
    """

    moved: int
    revoked: int
    pause_ms: float
    usual_ms: float
    gaps_ms: list[float]
    owned_ms: float
    last_ms: float


class Members:
    """The consumers of one queue or topic, and its producer."""

    def __init__(self, system: System, partitions: int, tick_ms: int, calm_s: float) -> None:
        self._system, self._all, self._calm_s = system, frozenset(range(partitions)), calm_s
        self._heard: list[Heard] = []
        self._consumers: dict[str, Process] = {}
        self._left: list[Process] = []
        self._producer = Process("producer", system.producer(tick_ms), [])

    def begin(self, names: Sequence[str]) -> None:
        for name in names:
            self.start(name)
        for name in names:
            self._consumers[name].tell()
        self._producer.tell()
        self._await(self._is_settled)

    def start(self, name: str) -> None:
        """A process that has not joined."""
        self._consumers[name] = Process(name, self._system.consumer(name), self._heard)

    def join(self, name: str) -> None:
        self._consumers[name].tell()

    def joined(self, name: str) -> None:
        """Start one and wait until it has its share."""
        self.start(name)
        self.join(name)
        self._await(self._is_settled)

    def leave(self, name: str) -> None:
        self._left.append(self._consumers.pop(name))
        self._left[-1].tell()

    def crash(self, name: str) -> None:
        self._consumers.pop(name).kill()

    def close(self) -> None:
        for process in (*self._consumers.values(), self._producer):
            process.kill()
        for process in self._left:
            process.await_end()
        self._system.remove()

    def cost(self, event: Callable[[str], None], name: str) -> Cost:
        """Let the group work for a while, and then let this happen to a consumer of this name."""
        self._await_ms(self._calm_s * 1000)
        before, at_ms = self._owned(), now_ms()
        event(name)
        self._await(self._is_settled)
        self._await_ms(LAST_MS)
        return self._cost(list(self._heard), before, at_ms)

    def _owned(self) -> dict[str, frozenset[int]]:
        """What each consumer that is there has been given, by what it was told."""
        found: dict[str, frozenset[int]] = dict.fromkeys(self._consumers, frozenset())
        for heard in list(self._heard):
            if heard.name in found and heard.what == "assigned":
                found[heard.name] |= heard.partitions
            elif heard.name in found and heard.what == "revoked":
                found[heard.name] -= heard.partitions
        return found

    def _is_settled(self) -> bool:
        """Whether all is shared out evenly, and each partition was delivered by its owner."""
        owned = self._owned()
        sizes = [len(mine) for mine in owned.values()]
        if (
            max(sizes) - min(sizes) > 1
            or sum(sizes) != len(self._all)
            or frozenset().union(*owned.values()) != self._all
        ):
            return False
        last: dict[int, str] = {}
        for heard in list(self._heard):
            if heard.what == "delivered":
                last.update(dict.fromkeys(heard.partitions, heard.name))
            elif heard.what == "revoked":
                for partition in heard.partitions:
                    last.pop(partition, None)
        return all(last.get(partition) == name for name, mine in owned.items() for partition in mine)

    def _await_ms(self, wanted_ms: float) -> None:
        began_ms = now_ms()
        self._await(lambda: now_ms() - began_ms >= wanted_ms)

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for process in (*self._consumers.values(), self._producer):
                process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group does not settle: {self._owned()}")
            time.sleep(0.02)

    def _cost(self, heard: Sequence[Heard], before: Mapping[str, frozenset[int]], at_ms: int) -> Cost:
        after = self._owned()
        stay = {p: name for name, mine in after.items() for p in mine & before.get(name, frozenset())}
        move = {p: name for name, mine in after.items() for p in mine if p not in stay}
        kept = _could_stay([len(before.get(name, ())) for name in after], len(self._all))
        here = sum(len(before.get(name, ())) for name in after)
        taken = {
            (h.name, p)
            for h in heard
            if h.what == "revoked" and h.at_ms >= at_ms and h.name in after
            for p in h.partitions
        }
        taken &= {(name, p) for name, mine in before.items() for p in mine}
        times: dict[tuple[str, int], list[int]] = {}
        for delivered in heard:
            if delivered.what == "delivered":
                for p in delivered.partitions:
                    times.setdefault((delivered.name, p), []).append(delivered.at_ms)
        owner = {p: name for name, mine in before.items() for p in mine}
        first = {p: next(t for t in times[name, p] if t >= at_ms) for p, name in move.items()}
        assigned = {p: h.at_ms for h in heard if h.what == "assigned" for p in h.partitions if move.get(p) == h.name}
        calm_ms, end_ms = at_ms - self._calm_s * 1000, now_ms()
        own = [times[name, p] for p, name in stay.items()]
        return Cost(
            moved=len(move) - (len(self._all) - kept),
            revoked=len(taken) - (here - kept),
            pause_ms=max(_longest(mine, at_ms, end_ms) for mine in own),
            usual_ms=max(_longest(mine, calm_ms, at_ms) for mine in own),
            gaps_ms=[first[p] - max(t for t in times[owner[p], p] if t < first[p]) for p in move],
            owned_ms=max(assigned[p] for p in move) - at_ms,
            last_ms=max(first.values()) - at_ms,
        )


def now_ms() -> int:
    return int(time.time() * 1000)


def _could_stay(sizes: Sequence[int], partitions: int) -> int:
    """How many partitions can stay where they are, if consumers that have so many are to have as even shares as can be."""
    base, more = divmod(partitions, len(sizes))
    return sum(min(size, base + (i < more)) for i, size in enumerate(sorted(sizes, reverse=True)))


def _longest(times: Sequence[int], from_ms: float, to_ms: float) -> int:
    """The longest time between two deliveries, the later one of which is in this interval."""
    return max((later - earlier for earlier, later in pairwise(times) if from_ms <= later < to_ms), default=0)
