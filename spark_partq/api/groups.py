"""Consumer groups: describe and delete them, acknowledge for them, read their history. Only `history` needs Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_partq.core import arguments
from spark_partq.core.group.explain import Explanation
from spark_partq.spark.driver import claims
from spark_partq.storage.group import handle as _groups
from spark_partq.storage.inspect import describe_group as _describe
from spark_partq.storage.inspect import explain as _explain
from spark_partq.storage.inspect.describe_group import GroupDescription
from spark_partq.storage.procedures import acknowledge as _acknowledge
from spark_partq.storage.procedures import delete as _delete
from spark_partq.storage.procedures import reset_offsets as _reset
from spark_partq.storage.procedures.inactive import SessionWait
from spark_partq.storage.procedures.reset_offsets import OffsetReset
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def describe_group(
    store: StorePath, group: str, *, storage_options: Mapping[str, str] | None = None
) -> GroupDescription:
    """State, members, flows and partitions of a consumer group, its lag, and warnings for operators (K8, R7).

    A group that was deleted has the state ``Dead`` and nothing else; `history` still shows its facts.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return _describe.describe_group(Store.at(store, storage_options), group)


def explain(
    store: StorePath, queue: str, partition: int, group: str, *, storage_options: Mapping[str, str] | None = None
) -> Explanation:
    """Why a partition is where it is, and what its next messages wait for: a handoff, a holddown, the barrier of a resize… (U3).

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    InvalidArgumentError
        If the group does not read the queue, or has no such partition of it.
    """
    return _explain.explain(Store.at(store, storage_options), queue, partition, group)


def list_groups(store: StorePath, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Names of the store's consumer groups, sorted. Names whose tables cannot be read are listed, too, as they may be groups.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
    """
    return _groups.list_groups(Store.at(store, storage_options))


def delete_group(
    store: StorePath,
    group: str,
    *,
    report: Callable[[SessionWait], None] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Delete a consumer group and its positions, so that retention no longer waits for the group (Q8).

    If a member has died, the call waits until the member's session is over.

    Parameters
    ----------
    report : function, optional
        Called once with the members that the call waits for, before it waits.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, ReplicaError
    GroupActiveError
        If a query consumes in the group. Nothing was changed.
    """
    _delete.delete_group(Store.at(store, storage_options), group, report or (lambda _: None))


def reset_offsets(
    store: StorePath,
    group: str,
    to: str | Mapping[str, Mapping[int, int]],
    queues: Sequence[str] | None = None,
    dry_run: bool = False,
    *,
    report: Callable[[SessionWait], None] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[OffsetReset]:
    """Set the positions of a consumer group in which no query consumes: it reads on from these positions, whatever the checkpoints of its queries say (H4).

    If a member has died, the call waits until the member's session is over. Messages that were delivered before and are delivered again are
    marked (``_redelivered``). A table that `delta_sink` writes keeps its rows: they are not written twice.

    Parameters
    ----------
    to : str or dict
        ``"earliest"`` or ``"latest"``. ``"time:2026-11-01T00:00:00Z"``: the first message that was enqueued then or later (in UTC if the
        text names no zone). ``"by:P1D"``: the same for a day ago. ``{"orders": {3: 120, 4: -2}}``, also as JSON: the next offset that is
        wanted of each of these partitions; -2 is the first message and -1 the end. A partition without a message of the given time or later is set to its
        end.
    queues : list of str, optional
        Set positions only in these queues, of those that the group reads.
    dry_run : bool
        Return what would be set, and change nothing.
    report : function, optional
        Called once with the members that the call waits for, before it waits.

    Returns
    -------
    list of OffsetReset
        Each partition that is set, by the queue's name and its number.

    Raises
    ------
    GroupActiveError
        If a query consumes in the group.
    GroupNotFoundError, QueueNotFoundError, InvalidArgumentError, OffsetOutOfRangeError, QueueFencedError, ReplicaError
        Nothing was changed.
    """
    arguments.truth("dry_run", dry_run)
    return _reset.reset_offsets(
        Store.at(store, storage_options), group, to, queues, dry_run, report or (lambda _: None)
    )


def acknowledge(
    store: StorePath,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    epochs: Mapping[tuple[str, int], int] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[tuple[str, int]]:
    """Acknowledge the messages of partitions that the application has finished, for a query with ``ack=manual`` (H5).

    Parameters
    ----------
    offsets : dict
        ``{("orders", 3): 120}``: the next offset that is wanted, per queue and partition. An offset below the group's position changes nothing.
    epochs : dict, optional
        For each partition, the newest value of the column ``_epoch`` among the messages that are acknowledged. Needed if no query of the
        group runs in this driver.

    Returns
    -------
    list
        Partitions whose acknowledgement was refused, because another query owns them by now, or the group was set back (H4), or their queue no longer
        has them (S2). A refusal is an ordinary event: the owner gets these messages again.

    Raises
    ------
    GroupNotFoundError, InvalidArgumentError
        If a partition is unknown, or an offset was never delivered. Nothing was written.
    """
    opened = Store.at(store, storage_options)
    return _acknowledge.acknowledge(opened, group, offsets, epochs, claims(group, opened.uri))


def history(
    spark: SparkSession, store: StorePath, group: str, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """Every fact of a consumer group in order, as a DataFrame: which flow owned which partition, from when, and why (U3). It also works for a deleted group.

    The columns are those of the group's control table; `spark_partq.analysis` computes ownerships, handoffs and lag from them.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    from spark_partq.spark.history import history as read  # here, as nothing else in this file needs Spark

    return read(spark, Store.at(store, storage_options), group)
