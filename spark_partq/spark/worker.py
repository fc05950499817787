"""What a task does first in a Python worker of Spark, so that a micro-batch of few rows takes little time."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import stat
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_DESCRIPTORS = "/proc/self/fd"
_tasks = itertools.count()  # of this process


def in_worker(make: Callable[..., T], *arguments: Any) -> T:
    """Make what a task needs; a `__reduce__` names this function, so a worker calls it as it receives the task."""
    _acknowledge_at_once()
    if next(_tasks) == 1:  # what the first task needed is imported, and what it left behind is collected
        gc.freeze()
    return make(*arguments)


class WorkerFunction:
    """A function for tasks that begins with `in_worker`."""

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_worker, (WorkerFunction, self._function)


def _acknowledge_at_once() -> None:
    """Let the kernel acknowledge what has come on this process's sockets, and what will come until it sends something.

    Spark sends a task in pieces. TCP holds a small piece back until the one before is acknowledged, which the receiver's kernel puts off by
    up to 40 ms in the hope of something to send along; a worker sends nothing before it has the whole task. Where there is no such option,
    nothing happens.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not os.path.isdir(_DESCRIPTORS):
        return
    for descriptor in os.listdir(_DESCRIPTORS):
        try:
            if not stat.S_ISSOCK(os.stat(f"{_DESCRIPTORS}/{descriptor}").st_mode):
                continue
            found = socket.socket(fileno=int(descriptor))
            try:
                if found.family in (socket.AF_INET, socket.AF_INET6):
                    found.setsockopt(socket.IPPROTO_TCP, option, 1)
            finally:
                found.detach()  # it is not this object's to close
        except OSError:  # it is closed by now, or knows no TCP
            continue
