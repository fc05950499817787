"""Queues: create, open, delete (Q1)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from spark_partq.core.errors import (
    InvalidArgumentError,
    QueueAlreadyExistsError,
    QueueNotReadyError,
    ReplicaError,
)
from spark_partq.core.group.state import QueueInGroup
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import Struct, payload_schema, type_name
from spark_partq.core.queue import state as core
from spark_partq.core.queue.partition_map import numbers
from spark_partq.core.queue.settings import QueueSettings, check_partition_count
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.log import Conflict
from spark_partq.storage.queue.control import QueueControl, look
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import is_replica
from spark_partq.storage.store import Store, queue_folder


class Queue:
    """An open queue: its state and its partition tables, each as of its last look. Not safe for use by several threads at once."""

    def __init__(self, control: QueueControl) -> None:
        self.store, self.name, self.control = control.store, control.name, control
        self._tables: dict[int, PartitionTable] = {}

    @property
    def state(self) -> QueueState:
        return self.control.state

    @property
    def partitions(self) -> list[PartitionTable]:
        """The operating partitions, by number."""
        return [self.table(number) for number in self.state.numbers]

    def table(self, number: int) -> PartitionTable:
        """Any table that the queue ever had."""
        if number not in self._tables:
            self._tables[number] = PartitionTable(self.store, self.name, number, self.state.schema)
        return self._tables[number]

    def refresh(self) -> bool:
        """Look at all operating partitions; True if one has changed."""
        changed = [table for table in self.partitions if table.may_have_changed()]
        return any(self.store.map(lambda table: table.refresh(), changed))


def create_queue(
    store: Store, name: str, schema: str | Struct, key: str | Iterable[str] | None, partitions: int, **settings: Any
) -> QueueState:
    """Make a queue; of several at once under one name exactly one wins, whatever they ask for.

    The first commit of the control table is the decision. The partition tables follow; until all exist the status is
    ``ScalingUp``. Whoever comes second finishes that, in case the winner has died, and is told that the queue exists.

    Raises
    ------
    InvalidArgumentError, NotAStoreError
        Before anything is written.
    QueueAlreadyExistsError, ReplicaError
        If there is one of that name, or a replica of one.
    """
    check_name("queue", name)
    columns = (key,) if isinstance(key, str) else tuple(key or ())
    fact = core.created(
        str(store.runtime.new_uuid()),
        payload_schema(schema, columns),
        columns,
        check_partition_count(partitions),
        QueueSettings.parse(settings),
    )
    store.check_can_be_made()
    if is_replica(store, name):
        raise ReplicaError(
            f"{store.uri} is to be a replica of a queue {name!r}; choose another name or store", queue=name
        )
    control = QueueControl(store, name)
    try:
        if control.exists():
            raise Conflict
        control.create(fact)
    except Conflict:
        control.refresh()
        if not control.state.generations:
            _create_partitions(control)
        old = control.state
        raise QueueAlreadyExistsError(
            f"queue {name!r} already exists in {store.uri} (status {old.status}, {old.configured_partitions} partitions); "
            "choose another name, or delete it first",
            queue=name,
            store=store.uri,
            status=old.status,
        ) from None
    return _create_partitions(control)


def open_queue(store: Store, name: str) -> Queue:
    """The queue as it is now.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError
    """
    return Queue(check_usable(look(store, name)))


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
    return look(store, check_name("queue", name)).state


def delete_queue(store: Store, name: str) -> None:
    """Remove a queue and all its messages. An interrupted deletion is finished by deleting again.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    with contextlib.suppress(QueueNotReadyError):  # only a part of the control table is left
        look(store, check_name("queue", name)).decide(
            lambda state: [] if state.deleted else [QueueFact("QueueDeleted", {})]
        )
    folder = queue_folder(name)
    for part in ("replica", "partitions", "control"):
        _remove_tree(store, f"{folder}/{part}")
    store.files.delete_folder(folder)


def _remove_tree(store: Store, folder: str) -> None:
    """The log last, and of it the newest files first: as long as anything is left, the table is still seen to be there."""
    files = store.files
    for name in files.list_folders(folder):
        if name != "_delta_log":
            _remove_tree(store, f"{folder}/{name}")
    for part in (folder, f"{folder}/_delta_log"):
        for info in reversed(files.list_files(part)):
            files.delete(f"{part}/{info.name}")
    files.delete_folder(folder)


def _create_partitions(control: QueueControl) -> QueueState:
    count = control.state.configured_partitions
    make_tables(Queue(control), numbers(count))
    # Another process may have finished the same creation, and the queue may have been deleted since.
    created = QueueFact("PartitionsCreated", {"partitions": count})
    return control.decide(lambda state: [] if state.generations or state.deleted else [created])


def make_tables(queue: Queue, wanted: Iterable[int]) -> None:
    """Make the tables of these partitions, unless they are there."""
    grace_ms = queue.state.settings.vacuum_grace_ms
    queue.store.map(lambda number: queue.table(number).create(grace_ms), list(wanted))


def first_left(queue: Queue, table: PartitionTable) -> int:
    """Where a group starts that is new to a partition: not at what was removed with it before it came back."""
    return max(table.first_offset, queue.state.gone.get(table.partition, 0))


def in_group(queue: Queue) -> QueueInGroup:
    """What a group shall know of a queue."""
    state, settings = queue.state, queue.state.settings
    return QueueInGroup(
        queue.name,
        state.operating_partitions,
        settings.rebalance_delay_ms,
        settings.max_handoff_time_ms,
        state.first,
        state.revision,
    )


def same_payload(queues: Sequence[Queue]) -> Struct:
    """The payload that all these queues share.

    Raises
    ------
    InvalidArgumentError
        If they differ.
    """
    first, *others = queues
    for other in others:
        if other.state.schema != first.state.schema:
            raise InvalidArgumentError(
                f"queues {first.name!r} and {other.name!r} have different columns "
                f"({type_name(first.state.schema)} and {type_name(other.state.schema)}); read them apart",
                queue=other.name,
            )
    return first.state.schema
