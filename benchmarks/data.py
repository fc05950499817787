"""The rows that all benchmarks use: about 110 bytes each, 10,000 keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import spark_partq as partq

KEYS = 10_000
ROW_BYTES = 113  # in memory: 8 + 9 + 80 + 8 and Arrow's offsets


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    spark = partq.session(
        "benchmarks",
        "local[2]",
        {
            "spark.driver.memory": "4g",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **(conf or {}),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    """`count` rows on disk as four Parquet files, the same in every run."""
    path = str(folder / f"rows-{count}")
    if not Path(path).exists():
        key = sf.format_string("key-%05d", sf.pmod(sf.xxhash64("id"), sf.lit(KEYS)))
        text = [sf.md5((sf.col("id") * n).cast("string")) for n in (3, 5, 7)]
        spark.range(0, count, 1, 4).select(
            "id",
            key.alias("k"),
            sf.substring(sf.concat(*text), 1, 80).alias("body"),
            sf.expr("timestamp_millis(1700000000000 + id)").alias("at"),
        ).write.parquet(path)
    return spark.read.parquet(path)
