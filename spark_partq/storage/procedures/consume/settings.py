"""A query's settings, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.errors import CorruptTableError, QueueNotFoundError, QueueNotReadyError
from spark_partq.core.patterns import matches
from spark_partq.core.payload.schema import Struct
from spark_partq.storage.group import assignors
from spark_partq.storage.queue.control import list_queues, open_control
from spark_partq.storage.queue.handle import Queue, check_usable, open_queue
from spark_partq.storage.replica.table import is_replica
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class ConsumerSettings:
    """How a query reads. docs/options.md lists the options with units and defaults.

    Attributes
    ----------
    queues : tuple of str
        Names of the queues; empty with a pattern.
    queue_pattern : str or None
        Reads every queue whose whole name matches (`core.patterns`).
    instance_id : str or None
        The user's name for the member, the same after a restart (K6).
    assignors : tuple of str
        The assignors that the query supports, best first.
    max_barrier_wait_ms : int
        How long messages above the cut of a resize wait for members that acknowledge by hand (S5, H5).
    payload : dict or None
        The columns that the query reads. None means all columns that its queues share.
    """

    store: Store
    queues: tuple[str, ...] = ()
    queue_pattern: str | None = None
    flows: int = 1
    instance_id: str | None = None
    assignors: tuple[str, ...] = ("balanced",)
    weight: float = 1.0
    session_timeout_ms: int = 10_000
    starting_offsets: str = "earliest"
    starting_timestamp_ms: int | None = None
    starting_timestamp_strategy: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    limits: Limits = field(default_factory=Limits)
    max_unacked_per_flow: int | None = None
    max_poll_interval_ms: int = 300_000
    manual_acknowledgement: bool = False
    max_barrier_wait_ms: int = 60_000
    payload: Struct | None = None

    @property
    def cooperative(self) -> bool:
        """Whether all its assignors use the cooperative protocol (K7)."""
        return all(assignors.find(name).cooperative for name in self.assignors)

    def matches(self, queue: str) -> bool:
        return self.queue_pattern is not None and matches(self.queue_pattern, queue)

    def matching(self) -> list[str]:
        """Names of the store's queues that match the pattern."""
        return [name for name in list_queues(self.store) if self.matches(name)]

    def open_queues(self) -> list[Queue]:
        """The queues that the query reads now. A pattern leaves out replicas, and queues that are being made or deleted.

        Raises
        ------
        NotAStoreError
        QueueNotFoundError
            A queue that the query names does not exist, or no queue that can be read matches the pattern.
        QueueNotReadyError
            A queue that the query names is being made or deleted; or no queue that can be read matches, and one that matches is being made or deleted.
        """
        if self.queue_pattern is None:
            return [open_queue(self.store, name) for name in self.queues]
        found, replicas, unfinished = list[Queue](), list[str](), list[QueueNotReadyError]()
        for name in self.matching():
            try:
                if self._is_replica(name):
                    replicas.append(name)
                else:
                    found.append(open_queue(self.store, name))
            except QueueNotReadyError as error:
                unfinished.append(error)
            except QueueNotFoundError:
                pass  # it was deleted meanwhile
        if not found and unfinished:
            raise unfinished[0]
        if not found:
            every = list_queues(self.store)
            left_out = f"; left out until they are promoted, as they are replicas: {', '.join(replicas)}"
            raise QueueNotFoundError(
                f"no queue in {self.store.uri} matches queuePattern={self.queue_pattern!r}; its queues: {', '.join(every) or 'none'}"
                f"{left_out if replicas else ''}",
                store=self.store.uri,
            )
        return found

    def _is_replica(self, name: str) -> bool:
        try:
            return is_replica(self.store, name)
        except CorruptTableError:  # a deletion removes first what says whether it is a replica
            check_usable(open_control(self.store, name))
            raise
