"""Differences between versions of Spark, and facts that Spark does not tell a data source."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def filters_are_pushed_down() -> bool:
    """Whether this planner process was started to push filters down.

    Spark refuses a reader that has `pushFilters` while `PUSHDOWN_CONF` is off, and does not tell a reader whether it
    is; but only the worker for push-down has this module loaded, or runs it.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == _PUSHDOWN_WORKER


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose `foreachBatch` calls this, or None outside of one."""
    return spark.sparkContext.getLocalProperty("sql.streaming.queryId")
