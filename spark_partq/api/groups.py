"""Consumer groups: describe and delete them, acknowledge for them, read their history. Only `history` needs Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_partq.spark.driver import claims
from spark_partq.storage.group import handle as _groups
from spark_partq.storage.inspect import describe_group as _describe
from spark_partq.storage.inspect.describe_group import GroupDescription
from spark_partq.storage.procedures import acknowledge as _acknowledge
from spark_partq.storage.procedures import delete as _delete
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def describe_group(
    store: StorePath, group: str, *, storage_options: Mapping[str, str] | None = None
) -> GroupDescription:
    """Status, members, flows and partitions of a consumer group, its lag, and warnings for operators (K8, R7).

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return _describe.describe_group(Store.at(store, storage_options), group)


def list_groups(store: StorePath, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Names of the store's consumer groups, sorted."""
    return _groups.list_groups(Store.at(store, storage_options))


def delete_group(store: StorePath, group: str, *, storage_options: Mapping[str, str] | None = None) -> None:
    """Delete a consumer group and its positions, so that retention no longer waits for it (Q8).

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    _delete.delete_group(Store.at(store, storage_options), group)


def acknowledge(
    store: StorePath,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    epochs: Mapping[tuple[str, int], int] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[tuple[str, int]]:
    """Acknowledge what the application has finished of partitions, for a query with ``ack=manual`` (H5).

    Parameters
    ----------
    offsets : dict
        ``{("orders", 3): 120}``: the next offset wanted, per queue and partition. Going back changes nothing.
    epochs : dict, optional
        The column ``_epoch`` of the messages that are acknowledged. Needed where no query of the group runs in this driver.

    Returns
    -------
    list
        Partitions whose acknowledgement was refused, because another query owns them by now (H4), or their queue has them no longer (S2).
        That is an ordinary event: a new owner gets these messages again.

    Raises
    ------
    GroupNotFoundError, InvalidArgumentError
        Before anything is written: an unknown partition, an offset that was never delivered.
    """
    opened = Store.at(store, storage_options)
    return _acknowledge.acknowledge(opened, group, offsets, epochs, claims(group, opened.uri))


def history(
    spark: SparkSession, store: StorePath, group: str, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """Every fact of a consumer group in order, as a DataFrame: who owned what, from when, why (U3).

    The columns are those of the group's control table; `spark_partq.analysis` computes ownerships, handoffs and lag from them.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    from spark_partq.spark.history import history as read  # here, as nothing else in this file needs Spark

    return read(spark, Store.at(store, storage_options), group)
