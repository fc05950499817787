"""Damages an input by a seed, and tells what its reader does that it must not.

A reader gets a second and 200 MiB. What Python can interrupt, a timer interrupts; what it cannot, and what ends the process, is seen by the
process that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import math
import multiprocessing
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MOST_S, MOST_MIB = 1.0, 200
# So many wrong inputs are enough to know that a reader is wrong, and so many are shown.
_MOST_WRONG, _SHOWN = 100, 10
_MAXRSS_PER_MIB = (1 << 20) if sys.platform == "darwin" else (1 << 10)


@dataclass(frozen=True)
class Target:
    """Something that reads what anybody may have written.

    Attributes
    ----------
    valid : function
        Makes an input that is whole.
    change : function
        From that input and a seeded chance another input, which may be damaged. It leaves the first one as it is.
    read : function
        What is tried.
    refused : tuple of exception classes
        What it may raise, and nothing else.
    one_of : int
        It is slow, and gets one input where others get so many.
    """

    valid: Callable[[], Any]
    change: Callable[[Any, random.Random], Any]
    read: Callable[[Any], object]
    refused: tuple[type[Exception], ...]
    one_of: int = 1


class _Hang(BaseException):
    """The time of an input is over. No `except Exception` holds it up."""


def problems(
    name: str, target: Target, seeds: Iterable[int], begins: Callable[[int], object] = lambda _: None
) -> Iterator[str]:
    """Errors that are none of the reader's, inputs that take longer than a second, and more memory than there may be.

    Parameters
    ----------
    begins : function
        Called with each seed before its input is read.
    """
    valid = target.valid()
    target.read(valid)  # loads what is only loaded when it is used, which is no growth
    before = peak_mib()
    for seed in seeds:
        begins(seed)

        def read(within: Callable[[], AbstractContextManager[None]], seed: int = seed) -> str | None:
            return _outcome(target, target.change(valid, random.Random(f"{name}/{seed}")), within)

        try:
            found = read(_a_second)
        except _Hang:
            try:  # it may have been slow because others use the machine
                found = read(_a_second_of_its_own)
            except _Hang as hang:
                found = f"it {hang} longer than {MOST_S:g} s"
        if found is not None:
            yield f"seed {seed}: {found}"
        if peak_mib() - before > MOST_MIB:
            yield f"seed {seed}: {peak_mib() - before:.0f} MiB more memory than at the beginning; it stops here"
            return


def peak_mib() -> float:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MAXRSS_PER_MIB


def _outcome(target: Target, value: Any, within: Callable[[], AbstractContextManager[None]]) -> str | None:
    try:
        with within():
            target.read(value)
    except target.refused:
        pass
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.100}"
    return None


@contextlib.contextmanager
def _a_second() -> Iterator[None]:
    """By the clock."""
    with _timer(signal.ITIMER_REAL, MOST_S, lambda: "takes"):
        yield


@contextlib.contextmanager
def _a_second_of_its_own() -> Iterator[None]:
    """A second of processor time, and a second in which the reader waits for something that is no processor."""
    busy_s, began_s = _busy_s(), time.monotonic()

    def judge() -> str | None:
        return "waits" if time.monotonic() - began_s > _busy_s() - busy_s + MOST_S else None

    with _timer(signal.ITIMER_REAL, MOST_S / 4, judge), _timer(signal.ITIMER_PROF, MOST_S, lambda: "takes"):
        yield


def _busy_s() -> float:
    """How long the threads of this process ran, or waited for a processor that others used. NaN: the system does not say."""
    try:
        ns = [path.read_text().split()[:2] for path in Path("/proc/self/task").glob("*/schedstat")]
    except OSError:  # a thread has ended
        return math.nan
    return sum(int(ran) + int(queued) for ran, queued in ns) / 1e9 if ns else math.nan


@contextlib.contextmanager
def _timer(timer: int, every_s: float, judge: Callable[[], str | None]) -> Iterator[None]:
    """Ask again and again whether the reader is to be interrupted."""

    def interrupt(*_: object) -> None:
        found = judge()
        if found is not None:
            raise _Hang(found)

    sent = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_PROF: signal.SIGPROF}[timer]
    before = signal.signal(sent, interrupt)
    signal.setitimer(timer, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(sent, before)


# ---- a process for each target
@dataclass
class Report:
    """What came of a target's inputs: how many were wrong, the first of these, and what it took (by the clock)."""

    wrong: int = 0
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    mib: float = 0.0


def examine(name: str, target: Target, seeds: Sequence[int], stuck_s: float) -> Report:
    """Read all of these inputs in a process of its own, and end it if it does not come to an end itself."""
    context = multiprocessing.get_context("fork")
    seed = context.Value("q", -1, lock=False)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(name, target, seeds, seed, theirs))
    child.start()
    theirs.close()
    last = None
    while not ours.poll(stuck_s):
        if seed.value == last:
            child.kill()
            child.join()
            return Report(1, (f"seed {last}: it hangs, and nothing in its process can interrupt it",))
        last = seed.value
    try:
        report: Report = ours.recv()
    except EOFError:
        child.join()
        return Report(1, (f"seed {seed.value}: its process ended with {child.exitcode}",))
    child.join()
    return report


def _work(name: str, target: Target, seeds: Sequence[int], seed: Any, report: Connection) -> None:
    def begins(number: int) -> None:
        seed.value = number

    logging.disable(logging.CRITICAL)  # what is refused is also logged in some places
    before, began = peak_mib(), time.monotonic()
    found = list(itertools.islice(problems(name, target, seeds, begins), _MOST_WRONG))
    report.send(Report(len(found), tuple(found[:_SHOWN]), time.monotonic() - began, peak_mib() - before))


def main(targets: Mapping[str, Target]) -> int:
    """Examine targets; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=10_000, help="of each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--target", choices=targets, help="default: all")
    # Twice the second that a reader gets, and what a busy machine takes.
    parser.add_argument("--stuck-s", type=float, default=20.0, help="after so long on one input its process is ended")
    given = parser.parse_args()
    wrong = 0
    for name in [given.target] if given.target else targets:
        count = -(-given.inputs // targets[name].one_of)
        report = examine(name, targets[name], range(given.first, given.first + count), given.stuck_s)
        wrong += report.wrong
        took = f"{report.seconds:,.0f} s, {report.mib:.0f} MiB more memory" if report.seconds else "ended"
        print(f"{name}: {count:,} inputs, {report.wrong:,} wrong, {took}", flush=True)
        for line in report.lines:
            print(f"  {line}", flush=True)
    return 1 if wrong else 0
