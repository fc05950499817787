"""The socket between Spark's JVM and the Python worker of a task."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from pathlib import Path

# Where a process finds its own open files, on Linux and on macOS.
_OPEN = Path("/dev/fd")


@functools.cache
def send_at_once() -> None:
    """Let this worker's last bytes of a task reach the JVM without waiting; to be called in a task.

    A worker writes its rows and then, by themselves, a few bytes that end the task. TCP holds these back until the JVM's machine has confirmed the
    rows, and that confirmation waits for up to 40 ms for something to go with (Nagle's algorithm and delayed acknowledgements). Spark gives
    the worker's code no socket, so this asks all that the process has open; to all others of them it does no harm.
    """
    with contextlib.suppress(OSError):  # neither Linux nor macOS
        for name in os.listdir(_OPEN):
            _send_at_once(int(name))


def _send_at_once(fd: int) -> None:
    with contextlib.suppress(OSError):  # no socket, or none of TCP
        opened = socket.socket(fileno=fd)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        finally:
            opened.detach()
