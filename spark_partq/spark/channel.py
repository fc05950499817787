"""How a planner and its driver talk: lines of JSON over a local socket.

A Python source's planner is a process of its own, a child of the JVM, without a session; the user's callbacks live in the
driver's Python. Both know the JVM's process id, so the driver listens at a path that carries it. A planner that finds nobody there
does without: nothing that the protocol needs depends on it.

Planner to driver: that it is about to join, answered with the application and its executors; what happened to the group's
partitions, answered when the callbacks have run. Driver to planner: that a micro-batch is finished, and that the query has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import tempfile
import threading

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import ListenerError
from spark_partq.storage.procedures.consume.application import Hearer, Message


def socket_path(jvm_pid: int) -> str:
    """Where the driver of that JVM listens; the folder belongs to this user alone."""
    folder = os.path.join(tempfile.gettempdir(), f"partq-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return os.path.join(folder, f"{jvm_pid}.sock")


class Line:
    """One end of a connection; several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(OSError):  # whoever reads meets the end of the line
            self._connection.sendall((json.dumps(message) + "\n").encode())

    def receive(self) -> Message | None:
        """The next message; None at the end."""
        try:
            text = self._reader.readline()
        except (OSError, ValueError):
            return None
        found: Message | None = json.loads(text) if text.endswith("\n") else None
        return found

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class PlannerEnd:
    """The planner's end.

    Parameters
    ----------
    hearer : Hearer
        Told, in a thread of its own, of each message that is no answer.
    """

    def __init__(self, hello: Message, hearer: Hearer) -> None:
        self._line: Line | None = None
        self._answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._hearer = hearer
        self.connected = True
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(socket_path(os.getppid()))
        except OSError:
            connection.close()
            self.connected = False
            return
        self._line = Line(connection)
        self._line.send(hello)
        threading.Thread(target=self._read, args=(self._line,), daemon=True, name="partq-channel").start()

    def ask(self, message: Message, timeout_s: float | None = None) -> Message:
        """Send a message and wait until the driver has dealt with it; its answer, empty if there is none.

        Raises
        ------
        ListenerError
            If a callback of the user raised.
        """
        if self._line is None or not self.connected:
            return {}
        self._line.send(message)
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get(timeout=timeout_s)
            if answer is not None and answer.get("error"):
                raise ListenerError(
                    f"a listener of group {message['group']!r} failed: {answer['error']}; the query stops, since it may not know "
                    "what it owns. Repair the listener and start the query again",
                    group=message["group"],
                )
            return answer or {}
        return {}

    def _read(self, line: Line) -> None:
        while (message := line.receive()) is not None:
            if "answer" in message:
                self._answers.put(message["answer"])
            else:
                self._hear(message)
        self.connected = False
        self._answers.put(None)
        self._hearer.query_terminated()

    def _hear(self, message: Message) -> None:
        if "terminated" in message:
            self._hearer.query_terminated()
        else:
            self._hearer.batch_finished(StreamOffset.from_json(message["finished"]))
