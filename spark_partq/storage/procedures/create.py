"""Make a queue (Q1)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

from spark_partq.core import arguments
from spark_partq.core.errors import (
    InvalidArgumentError,
    QueueAlreadyExistsError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
)
from spark_partq.core.names import check_name
from spark_partq.core.payload.dead_letters import with_origin
from spark_partq.core.payload.keys import DEFAULT_HASH, check_hash
from spark_partq.core.payload.schema import Struct, check_same_columns, new_columns, types_of
from spark_partq.core.queue import decide
from spark_partq.core.queue.partition_map import partition_numbers
from spark_partq.core.queue.same import differences
from spark_partq.core.queue.settings import QueueSettings, check_partition_count
from spark_partq.core.queue.state import QueueState, replay
from spark_partq.storage.log import Conflict
from spark_partq.storage.queue.control import QueueControl, open_control
from spark_partq.storage.queue.handle import Queue, check_usable, open_queue
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import is_replica
from spark_partq.storage.store import Store


def create_queue(
    store: Store,
    name: str,
    schema: str | Struct,
    key: str | Iterable[str] | None,
    partitions: int,
    *,
    key_hash: str = DEFAULT_HASH,
    exist_ok: bool = False,
    **settings: Any,
) -> QueueState:
    """Make a queue. If several calls run at once under one name, exactly one wins, whatever they ask for.

    The first commit of the control table is the decision. The partition tables follow; until all exist the status is
    ``ScalingUp``. A call that comes second finishes the creation, in case the winner has died, and gets the error that
    the queue exists.

    Parameters
    ----------
    key_hash : str
        The hash by which keys are placed; it cannot be changed later (`core.payload.keys`).
    exist_ok : bool
        Return the existing queue, if it has this schema, key, hash, partition count and these settings.

    Raises
    ------
    InvalidArgumentError, NotAStoreError
        Before anything is written.
    QueueAlreadyExistsError, ReplicaError
        If a queue of that name exists; with `exist_ok`, if it differs from what is wanted. Also if a replica of that
        name exists.
    """
    check_name("queue", name)
    columns = arguments.names("key", key)
    payload, parsed = new_columns(schema, columns), QueueSettings.parse(settings)
    hash_ = check_hash(key_hash, types_of(payload, columns), columns)
    count = check_partition_count(partitions)
    facts = decide.create(str(store.runtime.new_uuid()), payload, columns, count, parsed, hash_)
    check_dead_letter_queue(name, payload, columns, parsed)
    store.check_can_be_made()
    if is_replica(store, name):
        raise ReplicaError(
            f"{store.uri} is to be a replica of a queue {name!r}; choose another name or store", queue=name
        )
    control = QueueControl(store, name)
    try:
        if control.exists():
            raise Conflict
        if parsed.durable:
            store.force_writes()
        provide_dead_letter_queue(store, name, payload, columns, parsed)
        control.create(facts)
    except Conflict:
        control.refresh()
        if not control.state.generations:
            _create_partitions(control)
        old, wanted = control.state, replay(name, facts)
        differs = differences(old, wanted) if exist_ok and wanted is not None else []
        if differs:
            raise QueueAlreadyExistsError(
                f"queue {name!r} exists in {store.uri} and differs from the queue that is to be created: {'; '.join(differs)}. Ask for the queue "
                "that exists, change it (alter-queue, scale), or choose another name",
                queue=name,
                store=store.uri,
                status=old.status,
                differences="; ".join(differs),
            ) from None
        if exist_ok:
            return old
        raise QueueAlreadyExistsError(
            f"queue {name!r} already exists in {store.uri} (status {old.status}, {old.configured_partitions} partitions); "
            "choose another name, or, to use it as it is, ask for the same queue with exist_ok (--exist-ok)",
            queue=name,
            store=store.uri,
            status=old.status,
        ) from None
    return _create_partitions(control)


def check_dead_letter_queue(name: str, payload: Struct, key: Sequence[str], settings: QueueSettings) -> None:
    """Refuse a dead-message queue that the queue cannot have, whichever queues exist, and an order of dead messages that the queue cannot keep.

    Raises
    ------
    InvalidArgumentError
    """
    if settings.dead_letter_queue == name:
        raise InvalidArgumentError(
            f"dead_letter_queue={name!r}: a queue cannot be its own dead-message queue; choose another name", queue=name
        )
    if settings.dead_letter_queue is not None:
        with_origin(payload)
    if settings.dead_letter_order == "hold" and not key:
        raise InvalidArgumentError(
            f"dead_letter_order='hold' holds back the messages of a key, and queue {name!r} has no key; use 'skip', or create a queue with a key",
            queue=name,
        )


def provide_dead_letter_queue(
    store: Store,
    name: str,
    payload: Struct,
    key: tuple[str, ...],
    settings: QueueSettings,
    added: Collection[str] = (),
) -> None:
    """Make the dead-message queue of a queue, unless it exists.

    Parameters
    ----------
    added : collection of str
        Columns of the queue that its dead-message queue can still get.

    Raises
    ------
    SchemaMismatchError
        If there is a queue of that name with other columns.
    InvalidArgumentError
        If that queue places messages by another key, and the order of each key is to be kept.
    """
    dead_letters = settings.dead_letter_queue
    if dead_letters is None:
        return
    columns = with_origin(payload)
    with contextlib.suppress(QueueAlreadyExistsError):
        create_queue(store, dead_letters, columns, key, 1, durability=settings.durability)
    there = open_queue(store, dead_letters).state
    if settings.dead_letter_order == "hold" and there.key != key:
        raise InvalidArgumentError(
            f"dead_letter_order='hold' puts the messages of a key back in order, and dead_letter_queue {dead_letters!r} places them by another "
            f"key ({', '.join(there.key) or 'none'}) than queue {name!r} ({', '.join(key)}). Name a queue that does not exist, and it is made "
            "with the right key",
            queue=name,
            dead_letter_queue=dead_letters,
        )
    check_same_columns(
        there.schema,
        columns,
        f"a dead message of queue {name!r}",
        f"dead_letter_queue {dead_letters!r}",
        "Name a queue that does not exist, and it is made with the right columns",
        may_lack=there.added,
        may_add=added,
    )


def _create_partitions(control: QueueControl) -> QueueState:
    Manifests(control.store, control.name, control.state.queue_id).make_folder()
    make_tables(Queue(control), partition_numbers(control.state.configured_partitions))
    return control.decide(decide.finish_creation)


def make_tables(queue: Queue, partitions: Iterable[int]) -> None:
    """Make the tables of these partitions that the queue never had, unless they exist.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError
        If the queue was deleted meanwhile. Then no table that was made here is left.
    """
    grace_ms = queue.state.settings.vacuum_grace_ms
    check = partial(_check_present, queue.store, queue.name, queue.state.queue_id)
    made: list[PartitionTable] = []

    def make(table: PartitionTable) -> None:
        if table.create(grace_ms, check):
            made.append(table)

    try:
        queue.store.map(
            make, [queue.table(number) for number in partitions if number not in queue.state.all_partitions]
        )
        check()  # a deletion that has begun meanwhile may have looked for tables before
    except (QueueNotFoundError, QueueNotReadyError):
        queue.store.map(PartitionTable.take_back, made)
        raise


def _check_present(store: Store, name: str, queue_id: str) -> None:
    """
    Raises
    ------
    QueueNotFoundError, QueueNotReadyError
        If the queue was deleted, also if it was created again since.
    """
    control = open_control(store, name)
    if control.state.queue_id != queue_id:
        raise control.created_again()
    if control.state.deleted:
        check_usable(control)
