"""Queues: make, describe, scale, maintain and delete them. Needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spark_partq.core import arguments
from spark_partq.core.errors import PartqError
from spark_partq.core.payload.schema import Struct
from spark_partq.core.queue.facts import Mode
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.inspect.describe_queue import QueueDescription, describe
from spark_partq.storage.procedures import alter as _alter
from spark_partq.storage.procedures import copy_stuck as _stuck
from spark_partq.storage.procedures import create as _create
from spark_partq.storage.procedures import delete as _delete
from spark_partq.storage.procedures import delete_messages as _messages
from spark_partq.storage.procedures import ingress as _ingress
from spark_partq.storage.procedures import maintain as _retention
from spark_partq.storage.procedures import scale as _scaling
from spark_partq.storage.procedures.maintain import MaintenanceReport
from spark_partq.storage.procedures.remainder import ScaleProgress
from spark_partq.storage.queue import control as _control
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def create_queue(
    store: StorePath,
    queue: str,
    schema: str | StructType | Struct,
    key: str | Iterable[str] | None = None,
    partitions: int = 8,
    *,
    key_hash: str = "xxhash64",
    exist_ok: bool = False,
    storage_options: Mapping[str, str] | None = None,
    **settings: Any,
) -> QueueDescription:
    """Create a queue (Q1).

    Parameters
    ----------
    store : path or Store
        A folder or an object-store URI; the call makes the store if it does not exist.
    schema : str or StructType
        The payload's columns. Every column is nullable.
    key : str or list of str, optional
        Columns of the partition key (Q2); None spreads the messages evenly (Q3).
    partitions : int
        1 to 4096, or 0 for an exclusive queue (S6).
    key_hash : str
        The hash that says which partition a key belongs to; it cannot be changed later. ``xxhash64``, or ``murmur2``, which puts a key into the
        partition where Kafka's default partitioner puts it. ``murmur2`` needs a key of one column, of type string or binary.
    exist_ok : bool
        Change nothing if the queue exists with the same schema, key, hash, partition count and settings.
    storage_options : dict, optional
        Storage options (credentials, endpoint…) of a store that is given as a path, with the names that obstore uses; other options have no
        effect. A `Store` has its own options.
    **settings
        See `core.queue.settings.QueueSettings`, for example ``retention_ms=86_400_000``.

    Raises
    ------
    InvalidArgumentError, NotAStoreError, ReplicaError
        Before anything is written.
    QueueAlreadyExistsError
        If a queue of that name exists; with `exist_ok`, only if that queue differs from what is asked for. The error names each difference.
    """
    arguments.truth("exist_ok", exist_ok)
    opened = Store.at(store, storage_options)
    columns = schema.jsonValue() if hasattr(schema, "jsonValue") else schema
    _create.create_queue(opened, queue, columns, key, partitions, key_hash=key_hash, exist_ok=exist_ok, **settings)
    return describe_queue(opened, queue)


def describe_queue(
    store: StorePath, queue: str, *, storage_options: Mapping[str, str] | None = None
) -> QueueDescription:
    """Settings, status and partitions of a queue, and how many messages each partition holds (Q8).

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError, CorruptTableError
    """
    opened = open_queue(Store.at(store, storage_options), queue)
    return describe(opened, groups_of(opened.store, opened.state))


def list_queues(store: StorePath, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Names of the store's queues, sorted. Names whose tables cannot be read are listed, too, as they may be queues.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
    """
    return _control.list_queues(Store.at(store, storage_options))


def delete_queue(store: StorePath, queue: str, *, storage_options: Mapping[str, str] | None = None) -> None:
    """Delete a queue and all of its messages. If a deletion was interrupted, calling it again finishes it.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    _delete.delete_queue(Store.at(store, storage_options), queue)


def maintain(
    store: StorePath, queue: str | None = None, *, storage_options: Mapping[str, str] | None = None
) -> list[MaintenanceReport]:
    """Remove messages that every group has acknowledged, that are too old or too many, and delete unused files (Q8).

    The settings `min_retention_ms`, `retention_ms` and `max_bytes` of each queue say how long its messages stay.

    Parameters
    ----------
    queue : str, optional
        The name of one queue. None means every queue that is in use: replicas, and queues that are just being made or deleted, are left out.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        For the one queue that was named.
    NewerStoreError
        If only a newer release may use a queue, or a group that reads it.
    PartqError
        The error of the first queue that cannot be maintained. All queues that can be maintained have been maintained.
    """
    opened = Store.at(store, storage_options)
    if queue is not None:
        return [_retention.maintain(open_queue(opened, queue))]
    errors: list[PartqError] = []
    reports = [*_retention.maintain_all(opened, errors.append)]
    if errors:
        raise errors[0]
    return reports


def scale(
    store: StorePath,
    queue: str,
    partitions: int,
    mode: Mode = "live",
    *,
    confirm_lost: int | None = None,
    timeout_s: float | None = None,
    report: Callable[[ScaleProgress], None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    replica_options: Mapping[str, str] | None = None,
) -> QueueDescription:
    """Change the partition count of a queue while it is in use (S1, S2, S4, S5), and wait until the change has ended.

    The call may be interrupted at any moment: calling it again goes on. Consumers go on meanwhile, and so do producers, except during a
    ``drain``: then the queue takes no messages, and its setting `reject_to_sender` says what a producer gets.

    Parameters
    ----------
    partitions : int
        1 to 4096, or 0 for an exclusive queue (S6).
    mode : str
        ``live`` keeps every message and every key's order while producers and consumers run. ``drain`` disables ingress, waits until
        everything is acknowledged, changes the count, waits for the rebalance, and enables ingress again. ``delete`` loses the
        messages that are left in the partitions that it removes.
    confirm_lost : int, optional
        With ``delete``: how many messages may be lost at most.
    timeout_s : float, optional
        Seconds to wait at most. Without it, ``live`` waits as long as a group still reads the partitions that it removes, and ``drain`` until
        the queue is drained.
    report : function, optional
        Called again and again with what `scale` waits for.
    replica_options : dict, optional
        Storage options of the replicas' stores. Without them, the options of `store` are used if both are object stores.

    Raises
    ------
    InvalidArgumentError
        The count is wrong; or the queue has this count already and no change is left to finish; or a loss was not confirmed.
    ScalingInProgressError
        Another change is under way, or `timeout_s` is over.
    QueueNotFoundError, QueueNotReadyError
        Before anything is changed.
    QueueFencedError, ReplicaError
        A replica has taken over, or cannot be brought up to date: before anything is changed, or at the end, when the count has changed.
    """
    opened = Store.at(store, storage_options)
    _scaling.scale(
        open_queue(opened, queue),
        partitions,
        mode,
        confirm_lost,
        timeout_s,
        report or (lambda _: None),
        replica_options,
    )
    return describe_queue(opened, queue)


def copy_stuck(store: StorePath, queue: str, *, storage_options: Mapping[str, str] | None = None) -> int:
    """Move the messages that are stuck in the parent of a queue that became partitioned into its partitions, in order (S6).

    The copy begins at the parent's first message that the group furthest behind has not acknowledged. The copies come behind the messages that
    the partitions hold already. The call may be interrupted at any moment: calling it again goes on, and each message is copied once.

    Returns
    -------
    int
        How many messages this call has copied; 0 if none is stuck. If several calls run at once and one call ends a file that another call began,
        it may be that neither of them counts that file.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive, as its consumers read the parent; or if it is a dead-message queue, as `redrive` reads the parent, too.
    ScalingInProgressError
        If the queue is about to become exclusive.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError
    """
    return _stuck.copy_stuck(open_queue(Store.at(store, storage_options), queue))


def alter_queue(
    store: StorePath,
    queue: str,
    *,
    reset: Iterable[str] = (),
    storage_options: Mapping[str, str] | None = None,
    **settings: Any,
) -> QueueDescription:
    """Change settings of a queue while it is in use; producers, consumers and maintenance follow the new values once they have read them.

    A setting that has the wanted value already stays as it is. A call that was interrupted may have changed all settings or none; calling it
    again finishes the change.

    Parameters
    ----------
    reset : iterable of str
        Settings that get their default value.
    **settings
        See `core.queue.settings.QueueSettings`, for example ``retention_ms=86_400_000``; durations in milliseconds.

    Raises
    ------
    InvalidArgumentError
        The error names every wrong setting.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        Nothing is changed.
    """
    opened = Store.at(store, storage_options)
    _alter.alter_queue(open_queue(opened, queue), settings, arguments.names("reset", reset))
    return describe_queue(opened, queue)


def add_column(
    store: StorePath, queue: str, column: str | Struct, *, storage_options: Mapping[str, str] | None = None
) -> QueueDescription:
    """Add a column to a queue while it is in use; its dead-message queue gets the column, too.

    Messages that exist already have null in the column, as do messages of producers whose DataFrames lack it. A consumer has the column once it
    is started again. If the queue has the column already, nothing changes. From then on programs of an earlier release may not use the queue.

    Parameters
    ----------
    column : str or dict
        Its name and type as Spark's DDL, for example ``"note string"``, or as ``StructType.jsonValue()``. Either form may name several columns,
        which are all added.

    Raises
    ------
    InvalidArgumentError
        A queue, or a queue that has a dead-message queue, cannot have a column of that name or type.
    SchemaMismatchError
        The queue, or its dead-message queue, has a column of that name with another type.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        Nothing is changed.
    """
    opened = Store.at(store, storage_options)
    _alter.add_columns(open_queue(opened, queue), column)
    return describe_queue(opened, queue)


def delete_messages(
    store: StorePath, queue: str, key: Mapping[str, object], *, storage_options: Mapping[str, str] | None = None
) -> int:
    """Delete all messages of one key, also from the queue's dead-message queue, and return how many were deleted.

    The other messages keep their offsets, so a consumer meets a gap. Messages that producers write during the call are not deleted, and
    consumers that have begun to read a former file read it to its end. `maintain` deletes the former files once `vacuum_grace_ms` has passed. From then on programs
    of an earlier release may not use the queue.

    Parameters
    ----------
    key : dict
        A value, or None for null, of each column of the key, for example ``{"customer": "c-7"}``.

    Raises
    ------
    InvalidArgumentError
        If these are not the columns of the queue's key, or a value does not have its column's type.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError, CommitFailedError
    """
    return _messages.delete_messages(open_queue(Store.at(store, storage_options), queue), key)


def set_ingress(
    store: StorePath, queue: str, enabled: bool, *, storage_options: Mapping[str, str] | None = None
) -> QueueDescription:
    """Enable or disable the ingress of a queue (S3): whether it takes messages.

    Consumers go on. While ingress is disabled, the setting `reject_to_sender` says what producers get.

    Raises
    ------
    ScalingInProgressError
        While `scale` drains the queue: it sets the ingress itself.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError
    """
    opened = Store.at(store, storage_options)
    _ingress.set_ingress(open_queue(opened, queue), enabled)
    return describe_queue(opened, queue)
