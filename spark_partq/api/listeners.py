"""The partitions that a group's queries in this driver own, gain and lose (H6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_partq.spark import driver as _driver
from spark_partq.spark.driver import FlowChange
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_listener(spark: SparkSession, group: str, listener: Any, *, store: StorePath | None = None) -> None:
    """Call `listener` when the group's queries in this driver gain or lose partitions (H6).

    Parameters
    ----------
    listener : RebalanceListener
        A `RebalanceListener`, or any object that has some of its methods. Its methods are called at once for the partitions
        that the queries own already.
    store : str, Path or Store, optional
        The store of the group. None if the driver's queries have one store, or for the groups of that name in all stores.
    """
    from spark_partq.spark.session import driver_of  # here, as nothing else in this file needs Spark

    driver_of(spark).add_listener(group, listener, _uri(store))


def flow_changes(spark: SparkSession, group: str, *, store: StorePath | None = None) -> dict[str, FlowChange]:
    """Per flow, the partitions that it owns in the running micro-batch, and those that it gained and lost since the last micro-batch (H6).

    For use in a ``foreachBatch`` function; its tasks get the result with their closure. `spark` may be any session of this
    driver.
    """
    return _driver.flow_changes(group, _uri(store))


def _uri(store: StorePath | None) -> str | None:
    return None if store is None else Store.at(store).uri
