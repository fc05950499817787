"""The user's driver, as a planner talks to it (H6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spark_partq.core.delivery.offsets import StreamOffset

Message = dict[str, Any]


class Application(Protocol):
    """Tells listeners what became of the group's partitions, and the planner what became of its micro-batches.

    Nothing that the protocol needs depends on it: a planner whose driver cannot be reached does without.
    """

    def ask(self, message: Message, timeout_s: float | None = None) -> Message:
        """Send a message and wait until the driver has dealt with it; its answer, empty if there is none.

        Raises
        ------
        ListenerError
            If a callback of the user raised.
        """
        ...

    @property
    def connected(self) -> bool:
        """Whether messages reach the driver, and its messages this process."""
        ...


class Hearer(Protocol):
    """Hears what the driver says; must not wait for anything."""

    def batch_finished(self, offset: StreamOffset) -> None: ...

    def query_terminated(self) -> None: ...


# Connects to the driver, given what to say first and who hears what the driver says.
Connect = Callable[[Message, Hearer], Application]


class NoApplication:
    """No driver: nobody to tell."""

    connected = False

    def ask(self, message: Message, timeout_s: float | None = None) -> Message:
        return {}


def nobody(hello: Message, hearer: Hearer) -> Application:
    return NoApplication()
