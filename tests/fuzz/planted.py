"""Readers that do what a reader must not, for a test of the runner: ``python -m tests.fuzz.planted --target leak``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.fuzz.run import Target, main

_kept: list[bytes] = []
# It ends with the process that started it, also if that is killed.
_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


def _hang(number: int) -> None:
    while number == 3:
        pass


def _waits(number: int) -> None:
    if number == 3:
        time.sleep(3)


def _starved(number: int) -> None:
    """Half a second of work, while three other programs use the same processor."""
    if number != 3:
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    others = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(3)]
    try:
        end_s = time.process_time() + 0.5
        while time.process_time() < end_s:
            pass
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, allowed)


def _leak(number: int) -> None:
    _kept.append(bytes([number + 1]) * (30 << 20))


def _spike(number: int) -> None:
    if number == 3:
        _ = bytes([1]) * (300 << 20)


def _foreign(number: int) -> None:
    if number == 3:
        raise LookupError("no error of ours")


def _deaf(number: int) -> None:
    """As a loop in a compiled library is, which looks at no signal."""
    if number == 3:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGPROF])
    _hang(number)


def _dead(number: int) -> None:
    if number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)


def _sound(number: int) -> None:
    if number == 3:
        raise ValueError("refused")


def _planted(read: Callable[[int], None]) -> Target:
    """The seeds from 0 on are given as 0, 1, 2…"""
    numbers = iter(range(1_000))
    seen: dict[float, int] = {}

    def change(_: int, chance: random.Random) -> int:
        drawn = chance.random()  # the same when it is asked for again
        return seen[drawn] if drawn in seen else seen.setdefault(drawn, next(numbers))

    return Target(lambda: 0, change, read, (ValueError,))


READERS = [_hang, _waits, _starved, _leak, _spike, _foreign, _deaf, _dead, _sound]
TARGETS = {read.__name__[1:]: _planted(read) for read in READERS}

if __name__ == "__main__":
    sys.exit(main(TARGETS))
