"""Queues: create, open, list, describe, delete (Q1, S8)."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pyarrow import fs

from spark_partq.core import queue as core
from spark_partq.core.errors import (
    CorruptTableError,
    InvalidArgumentError,
    QueueAlreadyExistsError,
    QueueNotFoundError,
    QueueNotReadyError,
)
from spark_partq.core.names import check_name
from spark_partq.core.queue import QueueFact, QueueState
from spark_partq.core.schema import Struct, payload_schema, type_name
from spark_partq.core.settings import QueueSettings, check_partition_count
from spark_partq.storage.delta import Conflict, retrying
from spark_partq.storage.partition import PartitionTable
from spark_partq.storage.rows import RowTable, now
from spark_partq.storage.store import Store, queue_folder

A = TypeVar("A")
B = TypeVar("B")

CONTROL_COLUMNS = (("seq", "long"), ("kind", "string"), ("body", "string"), ("by", "string"), ("at", "timestamp"))


def in_threads(store: Store, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """`function` of each item, in order; delta-rs lets other threads run while it works.

    On a local disk that work is the processor's, on an object store it is mostly waiting.
    """
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(8 if store.is_local else 32, len(items))) as pool:
        return list(pool.map(function, items))


class Queue:
    """An open queue: its state and its partition tables, each as of its last look."""

    def __init__(self, store: Store, state: QueueState) -> None:
        self.store, self.state = store, state
        self.partitions = [
            PartitionTable(store, state.name, p, state.schema) for p in range(state.operating_partitions)
        ]

    @property
    def name(self) -> str:
        return self.state.name

    def refresh(self) -> bool:
        """Look at all partitions; True if one has changed."""
        return any(in_threads(self.store, lambda p: p.refresh(), [p for p in self.partitions if p.may_have_changed()]))


def who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user often has a number and no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


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
    QueueAlreadyExistsError
        If there is one of that name.
    """
    check_name("queue", name)
    columns = (key,) if isinstance(key, str) else tuple(key or ())
    fact = core.created(
        str(uuid.uuid4()),
        payload_schema(schema, columns),
        columns,
        check_partition_count(partitions),
        QueueSettings.parse(settings),
    )
    store.check_can_be_made()
    control = _control(store, name)
    try:
        if control.exists():
            raise Conflict
        control.create([_row(fact, 0)])
    except Conflict:
        old = _replay(control, store, name)
        if old.status == "ScalingUp":
            old = _create_partitions(store, control, old)
        raise QueueAlreadyExistsError(
            f"queue {name!r} already exists in {store.uri} (status {old.status}, {old.configured_partitions} partitions); "
            "choose another name, or delete it first",
            queue=name,
            store=store.uri,
            status=old.status,
        ) from None
    return _create_partitions(store, control, _replay(control, store, name))


def open_queue(store: Store, name: str) -> Queue:
    """The queue as it is now.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError
    """
    state = queue_state(store, name)
    if state.status != "Ready":
        undo = "delete it again" if state.status == "Deleting" else "create it again"
        raise QueueNotReadyError(
            f"queue {name!r} in {store.uri} is {state.status}: that was interrupted or is under way; "
            f"wait for it, or {undo} to finish it",
            queue=name,
            status=state.status,
        )
    return Queue(store, state)


def queue_state(store: Store, name: str) -> QueueState:
    check_name("queue", name)
    store.check_exists()
    control = _control(store, name)
    if not control.exists():
        known = ", ".join(list_queues(store)) or "none"
        raise QueueNotFoundError(
            f"there is no queue {name!r} in {store.uri}; its queues: {known}", queue=name, store=store.uri
        )
    return _replay(control, store, name)


def list_queues(store: Store) -> list[str]:
    """Names of the queues in the store, sorted."""
    store.check_exists()
    return [name for name in store.names("queues") if "_delta_log" in store.names(f"queues/{name}/control")]


def delete_queue(store: Store, name: str) -> None:
    """Remove a queue and all its messages. An interrupted deletion is finished by deleting again.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    control = _control(store, name)

    def mark() -> None:
        if queue_state(store, name).status != "Deleting":
            control.refresh()
            control.append([_row(QueueFact("QueueDeleted", {}), len(control.rows()))])

    with contextlib.suppress(QueueNotReadyError):  # only a part of the control table is left
        retrying(mark, f"the deletion of queue {name!r}")
    folder = queue_folder(name)
    for part in ("partitions", "control"):
        _remove_tree(store, f"{folder}/{part}")
    _remove_folder(store, folder)


def _remove_tree(store: Store, folder: str) -> None:
    """Newest log files first and version 0 last: as long as anything is left, the table is still seen to be there."""
    found = store.files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [info.path for info in found if info.type == fs.FileType.File]
    log = sorted((p for p in files if "/_delta_log/" in p), reverse=True)
    for path in [*set(files).difference(log), *log]:
        with contextlib.suppress(FileNotFoundError):  # another process deletes the same queue
            store.files.delete_file(path)
    _remove_folder(store, folder)


def _remove_folder(store: Store, folder: str) -> None:
    if store.files.get_file_info(folder).type == fs.FileType.Directory:
        with contextlib.suppress(OSError):  # another process deletes it too; an empty folder is no queue
            store.files.delete_dir(folder)


def _create_partitions(store: Store, control: RowTable, state: QueueState) -> QueueState:
    numbers = range(state.configured_partitions)
    in_threads(store, lambda p: PartitionTable(store, state.name, p, state.schema).create(), numbers)
    fact = QueueFact("PartitionsCreated", {"partitions": state.configured_partitions})

    def finish() -> QueueState:
        # Another process may have finished the same creation, and the queue may have been deleted since.
        now_state = _replay(control, store, state.name)
        if now_state.status == "ScalingUp":
            control.append([_row(fact, len(control.rows()))])
            now_state = _replay(control, store, state.name)
        return now_state

    return retrying(finish, f"the creation of queue {state.name!r}")


def _control(store: Store, name: str) -> RowTable:
    return RowTable(store, f"{queue_folder(name)}/control", f"the control table of queue {name!r}", CONTROL_COLUMNS)


def _row(fact: QueueFact, seq: int) -> dict[str, Any]:
    return {"seq": seq, "kind": fact.kind, "body": json.dumps(fact.body), "by": who(), "at": now()}


def _replay(control: RowTable, store: Store, name: str) -> QueueState:
    try:
        control.refresh()
    except CorruptTableError:
        if store.has_folder(f"{queue_folder(name)}/partitions"):
            raise
        # A deletion removes the control table last.
        raise QueueNotReadyError(
            f"queue {name!r} in {store.uri} is half deleted; delete it again to finish that",
            queue=name,
            status="Deleting",
        ) from None
    try:
        state = core.replay(name, (QueueFact(row["kind"], json.loads(row["body"])) for row in control.rows()))
        assert state is not None, "a control table begins with a fact"
    except (TypeError, ValueError, KeyError, AttributeError, AssertionError) as error:
        raise CorruptTableError(
            f"the control table of queue {name!r} in {store.uri} holds a fact that cannot be ({error}): it was edited. Restore it "
            "from a backup",
            queue=name,
        ) from error
    return state


@dataclass(frozen=True)
class PartitionDescription:
    """One partition: the messages ``[first_offset, next_offset)`` are stored; `depth` of them not yet read by every group."""

    partition: int
    first_offset: int
    next_offset: int
    depth: int
    files: int
    size_bytes: int


@dataclass(frozen=True)
class QueueDescription:
    """A queue as `describe_queue` shows it."""

    name: str
    queue_id: str
    status: str
    configured_partitions: int
    operating_partitions: int
    key: tuple[str, ...]
    schema: str
    settings: dict[str, Any]
    groups: tuple[str, ...]
    depth: int
    partitions: tuple[PartitionDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def describe(queue: Queue, groups: Sequence[str], positions: Callable[[int], Sequence[int]]) -> QueueDescription:
    """Describe an open queue; `positions(partition)` are those of its groups, from which the depth follows."""
    queue.refresh()
    partitions = []
    for table in queue.partitions:
        read = min(positions(table.partition), default=0)
        partitions.append(
            PartitionDescription(
                table.partition,
                table.first_offset,
                table.next_offset,
                table.next_offset - max(table.first_offset, read),
                len(table.index),
                int(table.index.size.sum()),
            )
        )
    state = queue.state
    return QueueDescription(
        state.name,
        state.queue_id,
        state.status,
        state.configured_partitions,
        state.operating_partitions,
        state.key,
        type_name(state.schema)[len("struct<") : -1],
        state.settings.model_dump(),
        tuple(groups),
        sum(p.depth for p in partitions),
        tuple(partitions),
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
