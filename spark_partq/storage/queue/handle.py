"""An open queue (Q1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from spark_partq.core import format
from spark_partq.core.errors import (
    CommitFailedError,
    CorruptTableError,
    InvalidArgumentError,
    QueueNotFoundError,
    QueueNotReadyError,
)
from spark_partq.core.group.facts import QueueInGroup
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import Struct, is_readable_as, type_name
from spark_partq.core.queue import decide
from spark_partq.core.queue.partition_map import Barrier
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.queue.control import QueueControl, open_control
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store

T = TypeVar("T")


class Queue:
    """An open queue: its state and its partition tables, each as of its last refresh. Not safe for use by several threads at once."""

    def __init__(self, control: QueueControl) -> None:
        self.store, self.name, self.control = control.store, control.name, control
        self._tables: dict[int, PartitionTable] = {}
        self._kept: dict[object, Any] = {}

    @property
    def state(self) -> QueueState:
        return self.control.state

    @property
    def partitions(self) -> list[PartitionTable]:
        """The operating partitions, by number."""
        return [self.table(number) for number in self.state.partition_numbers]

    def table(self, number: int) -> PartitionTable:
        """Any table that the queue ever had."""
        if number not in self._tables:
            self._tables[number] = PartitionTable(self.store, self.name, number, self.state.schema, self.state.queue_id)
        return self._tables[number]

    def kept(self, opened: Callable[[Store, str], T]) -> T:
        """A handle on something else of the queue, which is opened once, as this one is kept."""
        if opened not in self._kept:
            self._kept[opened] = opened(self.store, self.name)
        found: T = self._kept[opened]
        return found

    def refresh(self) -> bool:
        """Read what is new in all operating partitions; True if one has changed.

        Raises
        ------
        QueueNotFoundError, QueueNotReadyError
            If the queue was deleted, also if it was created again since.
        """
        with self.explained():
            changed = [table for table in self.partitions if table.may_have_changed()]
            return any(self.store.map(lambda table: table.refresh(), changed))

    def every_table(self) -> list[PartitionTable]:
        """Any table that the queue ever had, as it is now."""
        tables = [self.table(number) for number in self.state.all_partitions]
        self.store.map(lambda table: table.refresh(), tables)
        return tables

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """What looks like damage of a partition, or cannot be written there, and comes from the queue's deletion, is told as that."""
        try:
            yield
        except (CorruptTableError, CommitFailedError):
            self.control.reopen()
            check_usable(self.control)
            raise


def last_batch(queue: Queue, tables: Iterable[PartitionTable], sink_id: str) -> int:
    """The last batch of a sink that one of these tables records, or whose messages are counted as discarded; -1 if there is none."""
    app = BatchRecord(sink_id, 0).app
    return max([queue.control.last_discarded(sink_id), *(table.recorded(app) for table in tables)])


def last_batches(tables: Iterable[PartitionTable], sink_id: str) -> dict[int, int]:
    """For each of these partitions that records a sink, the sink's last batch there."""
    app = BatchRecord(sink_id, 0).app
    return {table.partition: last for table in tables if (last := table.recorded(app)) >= 0}


def recorded_in(queue: Queue, tables: Iterable[PartitionTable], record: BatchRecord) -> dict[int, set[int]]:
    """By generation of the map, the partitions of these tables, as of their last refresh, that hold a part of the batch."""
    every = range(queue.state.generation + 1)
    # Of all generations together a table never records less than of one: a new batch is looked for in none.
    any_part = [table for table in tables if table.recorded(record.app) >= record.batch_id]
    found = {g: {table.partition for table in any_part if table.has(record, g)} for g in every if any_part}
    return {g: partitions for g, partitions in found.items() if partitions}


def open_queue(store: Store, name: str) -> Queue:
    """The queue as it is now.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError
    """
    return Queue(check_usable(open_control(store, name)))


def check_usable(control: QueueControl) -> QueueControl:
    """Refuse a queue that is being made or deleted.

    Raises
    ------
    QueueNotReadyError
    """
    state = control.state
    if not state.usable:
        undo = "delete it again" if state.deleted else "create it again"
        raise QueueNotReadyError(
            f"queue {state.name!r} in {control.store.uri} is {state.status}: that was interrupted or is under way; "
            f"wait for it, or {undo} to finish it",
            queue=state.name,
            status=state.status,
        )
    return control


def queue_state(store: Store, name: str) -> QueueState:
    return open_control(store, check_name("queue", name)).state


def state_unless_deleted(store: Store, name: str) -> QueueState | None:
    """The state of a queue; None if there is no such queue, or it is being deleted."""
    try:
        state = queue_state(store, name)
    except (QueueNotFoundError, QueueNotReadyError):  # not ready: only a part of the queue is left
        return None
    return None if state.deleted else state


def attach_group(queue: Queue, group: str, deletions: int) -> None:
    """Attach a group before it reads where to start: what lies there is then kept until the group has acknowledged it.

    Parameters
    ----------
    deletions : int
        How often a group of that name had been deleted.
    """
    if queue.state.groups.get(group) != deletions:
        queue.control.decide(lambda state: decide.attach_group(state, group, deletions))
        queue.refresh()


def first_left(queue: Queue, table: PartitionTable) -> int:
    """Where a group starts that is new to a partition: not at what is being removed, nor at what was before it came back."""
    number = table.partition
    return max(table.first_offset, queue.state.removed_ends.get(number, 0), queue.control.removed_end(number))


def barrier_of(queue: Queue, settled: Callable[[int], int], first: int = 0) -> Barrier:
    """The barrier of a group in this queue, as of the last refresh (S5).

    Parameters
    ----------
    settled : function
        Partition number to the offset below which the group has settled everything.
    first : int
        Generations before this one are known to be settled.
    """
    ends = dict(queue.state.removed_ends)
    for table in queue.partitions:  # what was too old is gone, too
        ends[table.partition] = max(table.first_offset, ends.get(table.partition, 0))
    return Barrier(queue.state.generations, settled, ends, first)


def in_group(state: QueueState) -> QueueInGroup:
    """What a group shall know of a queue."""
    settings = state.settings
    return QueueInGroup(
        state.name,
        state.operating_partitions,
        settings.rebalance_delay_ms,
        settings.max_handoff_time_ms,
        state.first,
        state.revision,
        settings.durable,
    )


def same_payload(queues: Sequence[Queue]) -> Struct:
    """The payload that all these queues share; without columns that were added and that not all of them have.

    Raises
    ------
    InvalidArgumentError
        If they differ in others.
    """
    first, *others = queues
    fields = first.state.schema["fields"]
    payload = {
        **first.state.schema,
        "fields": [f for f in fields if all(f in o.state.schema["fields"] for o in others)],
    }
    unlike = [queue for queue in queues if not is_readable_as(queue.state.schema, queue.state.added, payload)]
    if unlike:
        other = next(queue for queue in [*unlike, *others] if queue.state.schema != first.state.schema)
        raise InvalidArgumentError(
            f"queues {first.name!r} and {other.name!r} have different columns "
            f"({type_name(first.state.schema)} and {type_name(other.state.schema)}); read them apart",
            queue=other.name,
        )
    return payload


def features_of(tables: Iterable[PartitionTable]) -> Iterator[str]:
    """What of the format their files ask for: a pass copies them later than the control table, which may not say so yet."""
    indexes = [table.index for table in tables]
    if any(index.is_segment.any() for index in indexes):
        yield format.SEGMENTS
    if any((index.left < index.rows).any() for index in indexes):
        yield format.DELETED_MESSAGES
