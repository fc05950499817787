"""The planner's port to the user's driver (H6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spark_partq.core.delivery.offsets import StreamOffset

Message = dict[str, Any]


class Application(Protocol):
    """Calls the user's listeners when partitions are assigned or lost, and tells the planner which micro-batches have finished.

    Nothing that the protocol needs depends on it: a planner that cannot reach its driver works without the driver.
    """

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        """Send a message and wait until the driver has processed it; returns its answer, empty if there is none.

        Raises
        ------
        ListenerError
            If a callback of the user raised.
        """
        ...

    @property
    def connected(self) -> bool:
        """Whether this process and the driver can exchange messages."""
        ...


class DriverEventHandler(Protocol):
    """Handles what the driver reports; must not block."""

    def batch_finished(self, offset: StreamOffset, stateful: bool = False) -> None:
        """A micro-batch that ends at `offset` has finished. `stateful`: the query keeps state by key in Spark."""

    def query_terminated(self) -> None: ...


# Connects to the driver, given the first message to send and the handler of what the driver reports.
Connect = Callable[[Message, DriverEventHandler], Application]


class NullApplication:
    """Used if there is no driver."""

    connected = False

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        return {}


def no_application(registration: Message, handler: DriverEventHandler) -> Application:
    return NullApplication()
