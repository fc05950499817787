"""Facts that Spark does not tell a data source or a sink."""

from __future__ import annotations

from pyspark.sql import SparkSession


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose `foreachBatch` calls this, or None outside of one."""
    return spark.sparkContext.getLocalProperty("sql.streaming.queryId")
