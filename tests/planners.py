"""Queries without Spark: a planner each, and what its application is told."""

from __future__ import annotations

from typing import Any

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store


class Query:
    """A planner of group `g` that reads queue `q`, and what its application was told of its partitions."""

    connected = True

    def __init__(self, store: Store | str, instance: str, **settings: Any) -> None:
        self.store = Store(store) if isinstance(store, str) else store
        self.instance = instance
        queues = settings.pop("queues", ("q",))
        self.planner = Planner(ConsumerSettings(self.store, queues, **settings), "g", instance, self.connect)
        self.done = StreamOffset("g", instance, {}, {})
        self.started = self.done
        self.told: list[tuple[str, Any]] = []
        self._handlers: list[DriverEventHandler] = []

    def connect(self, registration: Message, handler: DriverEventHandler) -> Query:
        self._handlers.append(handler)
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        self.told += [(what, message[what]) for what in ("assigned", "revoked", "lost") if message.get(what)]
        return {}

    def next(self, limits: Limits = Limits()) -> dict[int, tuple[int, int]]:  # noqa: B008
        """What the next micro-batch has of each partition; none if there is nothing to do."""
        end = self.planner.next(self.done, limits)
        if end is None:
            return {}
        self.started, self.done = self.done, end
        return {number: (r.start, r.end) for (_, number), r in end.ranges.items() if r.end > r.start}

    def leave(self) -> None:
        """The query ends: its planner is told that no micro-batch runs any more, and leaves."""
        for handler in self._handlers:
            handler.query_terminated()
        self.planner.leave()
