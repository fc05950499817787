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
    """Make the object that a task needs. A `__reduce__` names this function, so a worker calls it when it receives the task."""
    _acknowledge_at_once()
    if next(_tasks) == 1:  # the first task has imported its modules, and its garbage is collected
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
    """Let the kernel acknowledge at once what has come on this process's sockets, and what will come until this process sends something.

    Spark sends a task in pieces. TCP holds a small piece back until the piece before is acknowledged. The receiver's kernel delays the
    acknowledgement by up to 40 ms, to send it together with data; but a worker sends no data before it has the whole task. On a system
    without this option nothing happens.
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
                found.detach()  # this object must not close it
        except OSError:  # the socket is closed by now, or is no TCP socket
            continue
