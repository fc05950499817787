"""Spark registers data sources of installed top-level modules named ``pyspark_*``; so ``format("partq")`` is there."""

from spark_partq.spark.source import PartqDataSource as DefaultSource

__all__ = ["DefaultSource"]
