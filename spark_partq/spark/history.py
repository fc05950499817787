"""The history of a group as a DataFrame (U3)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_partq.storage.group.control import COLUMNS
from spark_partq.storage.inspect import group_history as facts
from spark_partq.storage.store import Store

SCHEMA = StructType.fromJson(
    {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in COLUMNS]}
)


def history(spark: SparkSession, store: Store, group: str) -> DataFrame:
    """Every fact, in order. This process reads them, so every kind of store works."""
    return spark.createDataFrame(facts.history(store, group), SCHEMA)
