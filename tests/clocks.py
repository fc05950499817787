"""The clocks of this process, as a test sets them."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Iterator
from unittest import mock

from spark_partq.storage.log import unnamed
from spark_partq.storage.log.unnamed import unnamed_files
from spark_partq.storage.queue import clock
from spark_partq.storage.queue.clock import ComparedClock
from spark_partq.storage.runtime import SYSTEM


@contextlib.contextmanager
def wall_clock(at: dt.datetime | None) -> Iterator[None]:
    """Let this machine's clock and that of all stores stand at a time; None leaves them as they are."""
    if at is None:
        yield
        return
    since_1970 = at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    with (
        mock.patch.object(SYSTEM, "time_ns", return_value=since_1970 // dt.timedelta(microseconds=1) * 1_000),
        mock.patch.object(clock, "measured_ms", return_value=since_1970 // dt.timedelta(milliseconds=1)),
        mock.patch.object(clock, "behind_ms", return_value=0),
        mock.patch.object(ComparedClock, "compare"),
    ):
        yield


@contextlib.contextmanager
def grace(ms: int) -> Iterator[None]:
    """Let files be deleted so soon after no log names them, whatever the queue's grace period."""
    with mock.patch.object(
        unnamed, "unnamed_files", lambda log, _, kept=(), *as_of: unnamed_files(log, ms, kept, *as_of)
    ):
        yield


@contextlib.contextmanager
def no_grace() -> Iterator[None]:
    """Let files be deleted as soon as no log names them."""
    with mock.patch.object(unnamed, "unnamed_files", lambda log, _, kept=(), *__: unnamed_files(log, 0, kept)):
        yield


# The variable of an application's environment that says by how many seconds its clock is ahead. (With libfaketime Python's `sleep` fails.)
SKEW = "APPLICATION_CLOCK_AHEAD_S"


def skew() -> None:
    """Let the clock of this process be wrong for good, if its environment says so; that of the store is not."""
    ahead_ns = int(os.environ.get(SKEW, "0")) * 1_000_000_000

    def ahead() -> int:
        return time.time_ns() + ahead_ns

    if ahead_ns:
        mock.patch.object(SYSTEM, "time_ns", ahead).start()


@contextlib.contextmanager
def monotonic_clock(ms: int) -> Iterator[None]:
    """Let the clock that does not go back stand at so many milliseconds."""
    with mock.patch.object(SYSTEM, "monotonic_s", return_value=ms / 1000):
        yield
