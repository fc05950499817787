"""Which thread of a simulated world runs next, and what time it is there.

Each actor is a thread of that world with a stack of its own (a greenlet), and one of them runs at a time. At every operation on the store, and wherever a thread waits, the scheduler may let
another go on: always the one with the highest priority of those that can. Priorities are drawn, and at a few drawn steps the actor that
runs drops to the lowest (PCT: Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).

What an actor does takes no time. When none can go on, the clock moves to the moment at which the first one wakes. So a poller never
keeps others from their work, and minutes of that world take milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

try:
    from greenlet import getcurrent, greenlet
except ModuleNotFoundError:
    told = "the package greenlet is not installed; run: pip install 'spark_partq[simulation]'"
    raise ModuleNotFoundError(told, name="greenlet") from None


class Killed(BaseException):
    """The process of this thread has been killed; nothing may catch this."""


@dataclass(eq=False)
class Actor:
    """A thread of a process.

    Attributes
    ----------
    wakes_s : float or None
        When it goes on at the latest, while it waits.
    condition : function or None
        It goes on earlier if this holds.
    """

    name: str
    is_dead: Callable[[], bool]
    priority: float
    stack: greenlet
    wakes_s: float | None = None
    condition: Callable[[], bool] | None = None
    done: bool = False
    error: BaseException | None = None

    def can_go_on(self, now_s: float) -> bool:
        if self.wakes_s is not None and now_s >= self.wakes_s:
            return True
        return self.is_dead() or (self.condition is not None and self.condition())


class Scheduler:
    """Runs actors in turn, as the random numbers say.

    Parameters
    ----------
    drops : set of int
        The steps at which the actor that runs gets the lowest priority.
    """

    def __init__(self, rng: random.Random, drops: set[int]) -> None:
        self._rng, self._drops = rng, drops
        self.now_s = 0.0
        self.steps = 0
        self._running: list[Actor] = []  # those that can go on
        self._waiting: list[Actor] = []
        self._changed = False  # something happened on which one of these may wait
        self._main = getcurrent()
        self._ended = False  # `run` is to return
        self.current: Actor | None = None  # who runs
        self._lowest = 0.0
        self._until: Callable[[], bool] = lambda: False
        self._limit_s, self._limit_steps = 0.0, 0
        self.stopped = ""  # why the last `run` ended before its condition held

    # ---- for whoever sets the world up
    def spawn(self, name: str, run: Callable[[], object], is_dead: Callable[[], bool], *, first: bool = False) -> Actor:
        """A new actor, which can run from now on; `first`: before all that are not, until it drops."""
        parent, priority = self.current, self._rng.random() + first
        if (
            parent is not None and parent.priority < 0
        ):  # what a thread starts that has dropped does not overtake others for it
            priority = parent.priority

        def body() -> None:
            try:
                if not actor.is_dead():
                    run()
            except Killed as killed:
                actor.error = killed
            except Exception as error:
                actor.error = error
            actor.done = True
            # One that waits ends if the condition of `run`, which is asked then, fails.
            (self._running if actor in self._running else self._waiting).remove(actor)
            self.notify()

        actor = Actor(name, is_dead, priority, greenlet(body, self._main))
        self._running.append(actor)
        return actor

    def run(self, until: Callable[[], bool], limit_s: float, limit_steps: int) -> bool:
        """Let the actors run until nobody can go on at this moment and the condition holds; whether it does.

        Parameters
        ----------
        limit_s : float
            How long that may take by the clock of the world.
        """
        self._until, self.stopped = until, ""
        self._limit_s, self._limit_steps = self.now_s + limit_s, self.steps + limit_steps
        self._ended = False
        while not self._ended and (following := self._next()) is not None:  # again when an actor has ended
            self.current = following
            following.stack.switch()
        self.current = None
        return not self.stopped

    def notify(self) -> None:
        """Something has happened on which an actor may wait."""
        self._changed = True

    # ---- for actors
    def point(self) -> None:
        """Another actor may go on here."""
        actor = self.current
        if actor is None:
            return
        self.steps += 1
        if self.steps in self._drops:
            self.drop()
        self._switch(actor)

    def drop(self) -> None:
        """The actor that runs gets the lowest priority."""
        actor = self.current
        if actor is not None:
            self._lowest -= 1.0
            actor.priority = self._lowest

    def wait(self, seconds: float | None, condition: Callable[[], bool] | None = None) -> bool:
        """Wait so long (None is for ever), or until the condition holds; whether it does."""
        actor = self.current
        if actor is None:
            raise RuntimeError("only an actor can wait")
        self.steps += 1
        actor.wakes_s = None if seconds is None else self.now_s + max(0.0, seconds)
        actor.condition = condition
        if not actor.can_go_on(self.now_s):
            self._running.remove(actor)
            self._waiting.append(actor)
        try:
            self._switch(actor)
        finally:
            actor.condition, actor.wakes_s = None, None
        return condition is not None and condition()

    # ---- how
    def _switch(self, actor: Actor) -> None:
        following = self._next()
        if following is not actor:
            self.current, self._ended = following, following is None
            (self._main if following is None else following.stack).switch()
        if actor.is_dead():
            raise Killed

    def _next(self) -> Actor | None:
        """Who goes on; None for whoever called `run`."""
        while True:
            if self.steps > self._limit_steps:
                self.stopped = f"{self._limit_steps} steps were not enough"
                return None
            if self._changed or not self._running:
                self._changed = False
                self._wake()
            if self._running:
                return max(self._running, key=_priority)
            if self._until():
                return None
            wakes = [actor.wakes_s for actor in self._waiting if actor.wakes_s is not None]
            if not wakes:
                self.stopped = "everybody waits for somebody else"
                return None
            if min(wakes) > self._limit_s:
                self.stopped = "the time was not enough"
                return None
            self.now_s = min(wakes)

    def _wake(self) -> None:
        awake = [actor for actor in self._waiting if actor.can_go_on(self.now_s)]
        if awake:
            self._waiting = [actor for actor in self._waiting if actor not in awake]
            self._running += awake


_priority, _done = attrgetter("priority"), attrgetter("done")


class SimulatedLock:
    """`storage.runtime.Lock` between actors."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Actor | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True) -> bool:
        me = self._scheduler.current
        if self._owner is not me and self._owner is not None:
            if not blocking:
                return False
            while self._owner is not None:
                self._scheduler.wait(None, lambda: self._owner is None)
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._scheduler.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedEvent:
    """`storage.runtime.Event` between actors."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._scheduler.notify()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.wait(timeout, lambda: self._set)


def in_parallel(scheduler: Scheduler, is_dead: Callable[[], bool], jobs: list[Callable[[], Any]]) -> list[Any]:
    """Do all of them as actors of their own; their results in order, or the first error."""
    results: dict[int, Any] = {}

    def job(i: int) -> None:
        results[i] = jobs[i]()

    parent = scheduler.current
    name = "" if parent is None else parent.name
    actors = [scheduler.spawn(f"{name}.{i}", lambda i=i: job(i), is_dead) for i in range(len(jobs))]  # type: ignore[misc]
    scheduler.wait(None, lambda: all(map(_done, actors)))
    for actor in actors:
        if actor.error is not None:
            raise actor.error
    return [results[i] for i in range(len(jobs))]
