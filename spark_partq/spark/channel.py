"""How a planner and its driver talk: lines of JSON over a local socket.

Spark plans a Python source in a separate process, a child of the JVM, without a session; the user's callbacks live in the driver's
Python. The planner gets the driver's address from the source (`address`), and first sends the token of that address. A planner that
cannot reach its driver works without the driver: nothing that the protocol needs depends on it.

The planner tells the driver that it is about to join; the answer names the application and its executors. The planner also reports what
happened to the group's partitions; the answer comes when the callbacks have run. The driver tells the planner that a micro-batch is
finished, whether the query keeps state by key in Spark, and that the query has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import ListenerError
from spark_partq.spark.address import Address
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message

_log = logging.getLogger("spark_partq")


class JsonConnection:
    """One end of a socket over which messages go as lines of JSON; several threads may send."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket = socket_
        self._reader = socket_.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(OSError):  # the receiver finds the connection closed
            self._socket.sendall((json.dumps(message) + "\n").encode())

    def receive(self) -> Message | None:
        """The next message; None if the connection is closed, or if what arrives is no message."""
        try:
            text = self._reader.readline()
            found = json.loads(text) if text.endswith("\n") else None
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class DriverClient:
    """The planner's end of the connection; implements `Application`.

    Parameters
    ----------
    address : Address
        Where the driver of the query listens. If the driver does not listen, this logs one warning.
    handler : DriverEventHandler
        Called, in a thread of its own, for each message that is not an answer.
    """

    def __init__(self, address: Address, registration: Message, handler: DriverEventHandler) -> None:
        self._connection: JsonConnection | None = None
        self._answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._handler = handler
        self.connected = False
        try:
            self._connection = JsonConnection(address.connect())
        except OSError as error:
            _log.warning(
                "group %s: the driver cannot be reached at %s: %s. The query works without the driver: its listeners hear nothing, and what it "
                "finishes is acknowledged with its next micro-batch",
                registration["group"],
                address.path,
                error,
            )
            return
        self.connected = True
        self._connection.send({"token": address.token, **registration})
        threading.Thread(target=self._receive, args=(self._connection,), daemon=True, name="partq-channel").start()

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        """Send a message and wait until the driver has processed it; returns its answer, empty if there is none.

        Raises
        ------
        ListenerError
            If a callback of the user raised.
        """
        if self._connection is None or not self.connected:
            return {}
        self._connection.send(message)
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get(timeout=timeout_s)
            if answer is not None and answer.get("error"):
                raise ListenerError(
                    f"a listener of group {message['group']!r} failed: {answer['error']}; the query stops, since the listener may not know "
                    "what the query owns. Repair the listener and start the query again",
                    group=message["group"],
                )
            return answer or {}
        return {}

    def _receive(self, connection: JsonConnection) -> None:
        while (message := connection.receive()) is not None:
            if "answer" in message:
                self._answers.put(message["answer"])
            else:
                self._handle_event(message)
        self.connected = False
        self._answers.put(None)
        self._handler.query_terminated()

    def _handle_event(self, message: Message) -> None:
        if "terminated" in message:
            self._handler.query_terminated()
        else:
            offset = StreamOffset.from_json(message["finished"])
            self._handler.batch_finished(offset, bool(message.get("stateful")))
