"""Partitioned message queues for Spark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_partq.core.assignors import Member, assign
from spark_partq.core.errors import (
    AssignorError,
    CheckpointMismatchError,
    CommitFailedError,
    CorruptTableError,
    DataLossError,
    FencedError,
    GroupMismatchError,
    GroupNotFoundError,
    IngressDisabledError,
    InvalidArgumentError,
    ListenerError,
    NotAStoreError,
    OffsetOutOfRangeError,
    PartqError,
    QueueAlreadyExistsError,
    QueueFencedError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
    ScalingInProgressError,
    SchemaMismatchError,
    SinkAheadError,
    StoreUnavailableError,
    UnknownAssignorError,
)
from spark_partq.core.payload.keys import partition_of
from spark_partq.core.payload.schema import Struct
from spark_partq.core.queue.state import Mode
from spark_partq.spark import driver as _driver
from spark_partq.spark import history as _history
from spark_partq.spark import manual as _manual
from spark_partq.spark.driver import FlowChange, RebalanceListener
from spark_partq.spark.session import register, session
from spark_partq.spark.sink import QueueSink
from spark_partq.storage.group import handle as _groups
from spark_partq.storage.inspect import describe_group as _describe_group
from spark_partq.storage.inspect import replicas as _replicas
from spark_partq.storage.inspect.describe_group import (
    FlowDescription,
    GroupDescription,
    GroupPartition,
    MemberDescription,
)
from spark_partq.storage.inspect.describe_queue import PartitionDescription, QueueDescription
from spark_partq.storage.inspect.describe_queue import describe as _describe_queue
from spark_partq.storage.inspect.replicas import ReplicaStatus
from spark_partq.storage.procedures import copy_stuck as _stuck
from spark_partq.storage.procedures import create as _create
from spark_partq.storage.procedures import delete as _delete
from spark_partq.storage.procedures import ingress as _ingress
from spark_partq.storage.procedures import maintain as _retention
from spark_partq.storage.procedures import promote as _promotion
from spark_partq.storage.procedures import remove_replica as _remove_replica
from spark_partq.storage.procedures import replicate as _replicate
from spark_partq.storage.procedures import scale as _scaling
from spark_partq.storage.procedures.drain import Waiting
from spark_partq.storage.procedures.maintain import MaintenanceReport
from spark_partq.storage.procedures.promote import Promotion
from spark_partq.storage.queue import control as _queuecontrol
from spark_partq.storage.queue import handle as _queues
from spark_partq.storage.store import Store as _Store

__version__ = "0.1.0"

__all__ = [
    "AssignorError",
    "CheckpointMismatchError",
    "CommitFailedError",
    "CorruptTableError",
    "DataLossError",
    "FencedError",
    "FlowChange",
    "FlowDescription",
    "GroupDescription",
    "GroupMismatchError",
    "GroupNotFoundError",
    "GroupPartition",
    "IngressDisabledError",
    "InvalidArgumentError",
    "ListenerError",
    "MaintenanceReport",
    "Member",
    "MemberDescription",
    "NotAStoreError",
    "OffsetOutOfRangeError",
    "PartitionDescription",
    "PartqError",
    "Promotion",
    "QueueAlreadyExistsError",
    "QueueDescription",
    "QueueFencedError",
    "QueueNotFoundError",
    "QueueNotReadyError",
    "QueueSink",
    "RebalanceListener",
    "ReplicaError",
    "ReplicaStatus",
    "ScalingInProgressError",
    "SchemaMismatchError",
    "SinkAheadError",
    "StoreUnavailableError",
    "UnknownAssignorError",
    "Waiting",
    "acknowledge",
    "add_listener",
    "append",
    "assign",
    "copy_stuck",
    "create_queue",
    "delete_group",
    "delete_queue",
    "describe_group",
    "describe_queue",
    "flow_changes",
    "history",
    "list_groups",
    "list_queues",
    "maintain",
    "partition_of",
    "promote",
    "queue_sink",
    "register",
    "remove_replica",
    "replicas",
    "replicate",
    "scale",
    "session",
    "set_ingress",
]

Path = str | os.PathLike[str]
StorageOptions = Mapping[str, str] | None


def create_queue(
    store: Path,
    queue: str,
    schema: str | StructType | Struct,
    key: str | Iterable[str] | None = None,
    partitions: int = 8,
    *,
    storage_options: StorageOptions = None,
    **settings: Any,
) -> QueueDescription:
    """Create a queue (Q1).

    Parameters
    ----------
    store : path
        A folder or an object-store URI; made if it is new.
    schema : str or StructType
        The payload's columns. Every column is nullable.
    key : str or list of str, optional
        Columns of the partition key (Q2); None spreads the messages evenly (Q3).
    partitions : int
        1 to 4096.
    storage_options : dict, optional
        Storage options (credentials, endpoint…), named as obstore names them; others have no effect.
    **settings
        See `core.queue.settings.QueueSettings`, for example ``retention_ms=86_400_000``.

    Raises
    ------
    InvalidArgumentError, NotAStoreError, QueueAlreadyExistsError
        Before anything is written.
    """
    columns = schema.jsonValue() if isinstance(schema, StructType) else schema
    _create.create_queue(_Store.at(store, storage_options), queue, columns, key, partitions, **settings)
    return describe_queue(store, queue, storage_options=storage_options)


def describe_queue(store: Path, queue: str, *, storage_options: StorageOptions = None) -> QueueDescription:
    """What the queue is and how many messages each partition holds (Q8)."""
    opened = _queues.open_queue(_Store.at(store, storage_options), queue)
    return _describe_queue(opened, _groups.groups_of(opened.store, opened.state.queue_id))


def describe_group(store: Path, group: str, *, storage_options: StorageOptions = None) -> GroupDescription:
    """Status, members, flows and partitions of a consumer group, its lag, and what should be looked after (K8, R7).

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return _describe_group.describe_group(_Store.at(store, storage_options), group)


def list_queues(store: Path, *, storage_options: StorageOptions = None) -> list[str]:
    """Names of the store's queues."""
    return _queuecontrol.list_queues(_Store.at(store, storage_options))


def delete_queue(store: Path, queue: str, *, storage_options: StorageOptions = None) -> None:
    """Delete a queue and all of its messages; deleting again finishes an interrupted deletion."""
    _delete.delete_queue(_Store.at(store, storage_options), queue)


def list_groups(store: Path, *, storage_options: StorageOptions = None) -> list[str]:
    """Names of the store's consumer groups."""
    return _groups.list_groups(_Store.at(store, storage_options))


def delete_group(store: Path, group: str, *, storage_options: StorageOptions = None) -> None:
    """Forget a consumer group and its positions, so that retention no longer waits for it (Q8)."""
    _delete.delete_group(_Store.at(store, storage_options), group)


def maintain(
    store: Path, queue: str | None = None, *, storage_options: StorageOptions = None
) -> list[MaintenanceReport]:
    """Remove what every group has acknowledged or what is too old, and delete unused files (Q8).

    Parameters
    ----------
    queue : str, optional
        One queue; None means all that are used, and not those that are made or deleted just now, or replicas.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError
        For the one queue that was named.
    """
    opened = _Store.at(store, storage_options)
    if queue is not None:
        return [_retention.maintain(_queues.open_queue(opened, queue))]
    reports = []
    for name in _queuecontrol.list_queues(opened):
        with contextlib.suppress(QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError):
            reports.append(_retention.maintain(_queues.open_queue(opened, name)))
    return reports


def scale(
    store: Path,
    queue: str,
    partitions: int,
    mode: Mode = "live",
    *,
    confirm_lost: int | None = None,
    timeout_s: float | None = None,
    report: Callable[[Waiting], None] | None = None,
    storage_options: StorageOptions = None,
) -> QueueDescription:
    """Change the partition count of a queue while it is in use (S1, S2, S4, S5), and wait until that has ended.

    It may be interrupted at any moment: calling it again goes on, and so do producers and consumers meanwhile.

    Parameters
    ----------
    partitions : int
        1 to 4096, or 0 for an exclusive queue (S6).
    mode : str
        ``live`` keeps every message and every key's order while producers and consumers run. ``drain`` disables ingress, waits until
        everything is acknowledged, changes the count, waits for the rebalance, and enables ingress again. ``delete`` loses what
        is left in partitions that go.
    confirm_lost : int, optional
        With ``delete``: how many messages may be lost at most.
    timeout_s : float, optional
        Seconds to wait at most. Without it ``live`` waits as long as somebody reads what goes, ``drain`` until it is drained.
    report : function, optional
        Called again and again with what is waited for.

    Raises
    ------
    InvalidArgumentError
        The count is wrong, or a loss was not confirmed.
    ScalingInProgressError
        Another change is under way, or `timeout_s` is over.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        Before anything is changed.
    """
    opened = _queues.open_queue(_Store.at(store, storage_options), queue)
    _scaling.scale(opened, partitions, mode, confirm_lost, timeout_s, report or (lambda _: None))
    return describe_queue(store, queue, storage_options=storage_options)


def copy_stuck(store: Path, queue: str, *, storage_options: StorageOptions = None) -> int:
    """Move what is stuck in the parent of a queue that became partitioned into its partitions, in order (S6).

    It begins where the group that is furthest behind has left the parent, and the copies come behind what is in the partitions
    already. It may be interrupted at any moment: calling it again goes on, and each message is copied once.

    Returns
    -------
    int
        How many messages this call has copied; 0 if nothing is stuck.

    Raises
    ------
    InvalidArgumentError
        If the queue is exclusive: its consumers read what is in the parent.
    ScalingInProgressError
        If it is about to become exclusive.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError
    """
    return _stuck.copy_stuck(_queues.open_queue(_Store.at(store, storage_options), queue))


def replicate(
    store: Path,
    queue: str,
    location: Path,
    *,
    storage_options: StorageOptions = None,
    replica_options: StorageOptions = None,
) -> ReplicaStatus:
    """Make a replica of a queue and of its groups in another store, or bring it up to date: one pass (S7).

    It may be interrupted at any moment; calling it again goes on. `scale` does it, too.

    Parameters
    ----------
    replica_options : dict, optional
        Storage options of the other store; `storage_options` if both are object stores.

    Raises
    ------
    ReplicaError
        If that cannot be a replica of this queue, was promoted, or cannot be reached.
    QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    return _replicate.replicate(_Store.at(store, storage_options), queue, location, options=replica_options)


def replicas(
    store: Path, queue: str, *, storage_options: StorageOptions = None, replica_options: StorageOptions = None
) -> list[ReplicaStatus]:
    """How far each replica of a queue is (S7)."""
    return _replicas.status(_Store.at(store, storage_options), queue, replica_options)


def remove_replica(
    store: Path,
    queue: str,
    location: Path,
    *,
    force: bool = False,
    storage_options: StorageOptions = None,
    replica_options: StorageOptions = None,
) -> None:
    """Follow a queue in another store no more. What is there stays.

    Parameters
    ----------
    force : bool
        Also if that store cannot be reached, so that it may have been promoted.

    Raises
    ------
    ReplicaError
        If there is none, or it was promoted, or might have been.
    """
    opened = _Store.at(store, storage_options)
    _remove_replica.remove_replica(opened, queue, location, force=force, options=replica_options)


def promote(
    store: Path,
    queue: str,
    *,
    force: bool = False,
    storage_options: StorageOptions = None,
    primary_options: StorageOptions = None,
) -> Promotion:
    """Make the replica of a queue in this store the queue that is used (S7). Groups go on where they had acknowledged.

    If the primary can be reached, it is fenced, and what it still has is copied first. Start queries with new checkpoints: those of
    the primary may be ahead of the replica.

    Parameters
    ----------
    force : bool
        Go on although the primary is there but cannot be fenced or copied.

    Raises
    ------
    ReplicaError
        If it is no replica, was promoted already, or has never been complete.
    """
    return _promotion.promote(_Store.at(store, storage_options), queue, force=force, options=primary_options)


def set_ingress(store: Path, queue: str, enabled: bool, *, storage_options: StorageOptions = None) -> QueueDescription:
    """Let a queue take messages or not (S3); consumers go on. What producers get meanwhile is its setting `reject_to_sender`.

    Raises
    ------
    ScalingInProgressError
        While it is drained by `scale`, which does this itself.
    QueueNotFoundError, QueueNotReadyError, QueueFencedError
    """
    _ingress.set_ingress(_queues.open_queue(_Store.at(store, storage_options), queue), enabled)
    return describe_queue(store, queue, storage_options=storage_options)


def queue_sink(
    store: Path,
    queue: str,
    *,
    order_by: str | Iterable[str] | None = None,
    sink_id: str | None = None,
    storage_options: StorageOptions = None,
) -> QueueSink:
    """A function for ``writeStream.foreachBatch`` that writes each micro-batch into a queue exactly once (Q5).

    Parameters
    ----------
    order_by : str or list of str, optional
        Columns that give the order of messages inside a micro-batch (Q4); None keeps the order in which Spark read them,
        which over several files is not that of their names.
    sink_id : str, optional
        Under which replayed batches are recognized; None is the streaming query's id.

    Raises
    ------
    QueueNotFoundError, NotAStoreError, InvalidArgumentError
        At once.
    SchemaMismatchError, SinkAheadError
        From a micro-batch, before anything of it is written.
    """
    columns = [order_by] if isinstance(order_by, str) else list(order_by or ())
    return QueueSink(_Store.at(store, storage_options), queue, columns, sink_id)


def append(
    df: DataFrame,
    store: Path,
    queue: str,
    *,
    order_by: str | Iterable[str] | None = None,
    sink_id: str | None = None,
    batch_id: int | None = None,
    storage_options: StorageOptions = None,
) -> int:
    """Write a batch DataFrame into a queue and return how many messages were added.

    With `sink_id` and `batch_id` (rising from 0) a repeated call adds nothing (Q5) and returns 0 for what is already in.

    Raises
    ------
    InvalidArgumentError
        If only one of the two ids is given.
    """
    sink = queue_sink(store, queue, order_by=order_by, sink_id=sink_id, storage_options=storage_options)
    return sink.append(df, batch_id)


def acknowledge(
    store: Path,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    epochs: Mapping[tuple[str, int], int] | None = None,
    storage_options: StorageOptions = None,
) -> list[tuple[str, int]]:
    """Say up to where partitions are finished, for a query with ``ack=manual`` (H5).

    Parameters
    ----------
    offsets : dict
        ``{("orders", 3): 120}``: the next offset wanted, per queue and partition. Going back changes nothing.
    epochs : dict, optional
        The column ``_epoch`` of what is acknowledged. Needed where no query of the group runs in this driver.

    Returns
    -------
    list
        Partitions that were refused, because they belong to somebody else by now (H4): an ordinary event. They are delivered
        again there.

    Raises
    ------
    GroupNotFoundError, InvalidArgumentError
        Before anything is written: an unknown partition, an offset that was never delivered.
    """
    return _manual.acknowledge(_Store.at(store, storage_options), group, offsets, epochs)


def add_listener(spark: SparkSession, group: str, listener: Any) -> None:
    """Tell `listener` what the group's queries in this driver are given and lose (H6).

    Parameters
    ----------
    listener : RebalanceListener
        Or any object that has some of its methods. What is owned already is told at once.
    """
    _driver.Driver.of(spark).add_listener(group, listener)


def flow_changes(spark: SparkSession, group: str) -> dict[str, FlowChange]:
    """Per flow, what it holds in the running micro-batch and what it gained and lost since the one before (H6).

    For use in a ``foreachBatch`` function, whose tasks get it with their closure.
    """
    return _driver.flow_changes(spark, group)


def history(spark: SparkSession, store: Path, group: str, *, storage_options: StorageOptions = None) -> DataFrame:
    """Every fact of a consumer group in order, as a DataFrame: who owned what, from when, why (U3).

    The columns are those of the group's control table; `spark_partq.analysis` makes ownerships, handoffs and lag of them.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return _history.history(spark, _Store.at(store, storage_options), group)
