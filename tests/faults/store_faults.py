"""What an object store and the network before it do to a history: each step a function of the history and of what it draws."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from random import Random

from tests.faults.history import History
from tests.faults.nemesis import kill_consumer, kill_producer, operate, operation, stop_consumer
from tests.faults.operators import maybe
from tests.faults.proxy import CUT, FAILED, IF_ABSENT, LOST, REFUSED, SLOW, UNANSWERED


def lost_answers(h: History, rng: Random) -> str:
    """Writes are done, and whoever wrote does not hear of it: of a put under a condition it does not know who was first."""
    return _befalls(h, rng, {LOST: rng.choice([0.2, 0.5])}, 10, IF_ABSENT)


def store_errors(h: History, rng: Random) -> str:
    """It is overloaded: it refuses some requests, or all for a while. What it answers with 500 may be done."""
    if rng.random() < 0.7:
        return _befalls(h, rng, {REFUSED: 0.2, FAILED: 0.1}, 40)
    if h.objects is None:
        return _not_here(h, "an outage")
    seconds = rng.uniform(2, 8)
    until = time.monotonic() + seconds
    # The client library asks again for some two seconds; then a query ends.
    with h.nobody_works(), h.objects.proxy.doing({REFUSED: 1.0}):
        h.until(lambda: time.monotonic() > until, "a while")
    return f"all for {seconds:.1f} s"


def store_timeouts(h: History, rng: Random) -> str:
    """Requests are never answered; their clients give up and ask again."""
    return _befalls(h, rng, {UNANSWERED: rng.choice([0.03, 0.1])}, 8)


def store_slow(h: History, rng: Random) -> str:
    return _befalls(h, rng, {SLOW: 0.7}, 40)


def cut_answers(h: History, rng: Random) -> str:
    """The network fails in the middle of what is read."""
    return _befalls(h, rng, {CUT: 0.2}, 10)


def _befalls(h: History, rng: Random, shares: Mapping[str, float], requests: int, kind: str | None = None) -> str:
    """Let faults befall so many requests, or so many of a kind, while something else goes on half of the time. No query may end."""
    what = " and ".join(f"{share:.0%} {fault}" for fault, share in shares.items())
    if h.objects is None:
        return _not_here(h, what)
    proxy = h.objects.proxy

    def count() -> int:
        return sum(proxy.count(fault, kind) for fault in shares)

    before = count()
    with contextlib.ExitStack() as faults:
        faults.enter_context(h.nobody_works(queries_may_end=False))
        faults.enter_context(proxy.doing(shares))

        def end() -> None:
            h.until(lambda: count() >= before + requests, what)
            faults.close()

        return what + _meanwhile(h, rng, end)


def _not_here(h: History, what: str) -> str:
    h.not_done.add(f"{what}: the store lies on a disk")
    return "not done"


def _meanwhile(h: History, rng: Random, end: Callable[[], None]) -> str:
    """Nothing, a kill or a stop under the faults, or an operation that begins under them."""
    kind = rng.choices(["", "harm", "operation"], [5, 3, 2])[0]
    if kind == "operation":
        function, about = operation(h, rng)
        operate(h, function, about, maybe(rng), end)
        return f" during {function}"
    told = ""
    if kind == "harm":
        step = rng.choice([kill_producer, kill_consumer, stop_consumer])
        told = f" and {step.__name__} {step(h, rng)}"
    end()
    return told
