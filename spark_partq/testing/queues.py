"""In-memory twins of a queue: the logs of its partitions and its control table, which conflict and stay silent on demand.

Every commit is a compare-and-set on a look. Whoever listens is told of each at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_partq.core.errors import CommitFailedError
from spark_partq.core.queue import decide, invariants
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState, after, replay
from spark_partq.storage.log import Conflict
from spark_partq.testing.memory import Faults

SCHEMA = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}


@dataclass(frozen=True)
class Message:
    """A row of a batch.

    Attributes
    ----------
    number : int
        Of its sink, over all batches: what it is.
    key : int or None
        Messages of one sink with the same key are to be delivered in the order of their numbers.
    hash : int
        Of the key; of a row without one, of the row.
    """

    sink: str
    batch: int
    number: int
    key: int | None
    hash: int


@dataclass(frozen=True)
class Look:
    """A look at a partition's log.

    Attributes
    ----------
    batches : dict
        By sink and generation, the last batch that is in.
    cuts : dict
        By generation, the next offset when it was sealed under it.
    """

    version: int
    end: int
    sealed: int
    cuts: Mapping[int, int]
    batches: Mapping[tuple[str, int], int]


class PartitionLog:
    """The log of one partition. Its application transactions outlive its messages."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.version = 0
        self.sealed = -1
        self.cuts: dict[int, int] = {}
        self.batches: dict[tuple[str, int], int] = {}
        self.messages: list[Message] = []
        self.generations: list[int] = []  # of each message, that under which it was placed

    def look(self) -> Look:
        return Look(self.version, len(self.messages), self.sealed, dict(self.cuts), dict(self.batches))

    def append(
        self, look: Look, messages: Sequence[Message], record: tuple[str, int], batch: int, generation: int
    ) -> None:
        def change() -> None:
            self.messages += messages
            self.generations += [generation] * len(messages)
            self.batches[record] = batch

        self._commit(look, change)

    def seal(self, look: Look, generation: int, cut: int) -> None:
        def change() -> None:
            self.sealed = generation
            self.cuts[generation] = cut

        self._commit(look, change)

    def _commit(self, look: Look, change: Callable[[], None]) -> None:
        fault = self.faults.draw()
        if look.version != self.version or fault == "conflict":
            raise Conflict(f"version {look.version + 1} of the partition exists already")
        if fault != "lost":
            change()
            self.version += 1
        if fault:
            raise CommitFailedError("it is not known whether the commit has landed; look again")


class QueueLog:
    """A queue's control table, and the state after its last commit."""

    def __init__(self, partitions: int, faults: Faults) -> None:
        self.faults = faults
        made = replay("queue-0", decide.create("q0", SCHEMA, ["k"], partitions, QueueSettings.parse({})))
        assert made is not None
        state = replay("queue-0", decide.finish_creation(made), made)
        assert state is not None
        self.state: QueueState = state
        self.facts: list[QueueFact] = []
        self.on_commit: Callable[[QueueState, Sequence[QueueFact], QueueState], None] = lambda *_: None

    def commit(self, look: QueueState, facts: Sequence[QueueFact]) -> None:
        fault = self.faults.draw()
        if look.revision != self.state.revision or fault == "conflict":
            raise Conflict("the queue has changed")
        if fault != "lost":
            before, state = self.state, look
            for fact in facts:
                state = after(state, fact)
            invariants.check(before, state, facts)
            self.state = state
            self.facts += facts
            self.on_commit(before, facts, state)
        if fault:
            raise CommitFailedError("it is not known whether the commit has landed; look again")
