"""Appends with an identity in one checkout: ``python benchmarks/append_worker.py FOLDER``, with that checkout first in PYTHONPATH."""

from __future__ import annotations

import json
import statistics
import sys
import time

from pyspark.sql import SparkSession

import spark_partq as partq

PARTITIONS = 16
# Rows of a batch, and how many batches are measured, after how many that are not.
SIZES = ((1_000, 40, 15), (1_000_000, 6, 2))


def main(folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    trees = {partq.__file__, *spark.range(1).repartition(1).rdd.map(_tree).collect()}
    found: dict[str, object] = {"trees": sorted(trees)}
    for rows, runs, warm_up in SIZES:
        queue = f"q{rows}"
        partq.create_queue(folder, queue, "id bigint, k string, body string", key="k", partitions=PARTITIONS)
        df = spark.range(rows).selectExpr("id", "concat('k', id % 1000) k", "repeat('x', 90) body").cache()
        df.count()
        seconds = []
        for batch in range(warm_up + runs):
            began = time.perf_counter()
            partq.append(df, folder, queue, sink_id="bench", batch_id=batch)
            seconds.append(time.perf_counter() - began)
        found[str(rows)] = 1000 * statistics.median(seconds[warm_up:])
    print(json.dumps(found))
    spark.stop()


def _tree(_: object) -> str:
    import spark_partq

    return spark_partq.__file__


if __name__ == "__main__":
    main(sys.argv[1])
