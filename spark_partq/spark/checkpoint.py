"""What Spark keeps in the checkpoint of a query that reads a Kafka topic."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession


class QueryCheckpoint:
    """The folder or URI of a checkpoint, read through Hadoop's client, as Spark reads it."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._location = location
        self._files = self._path("").getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def is_new(self) -> bool:
        """Whether no query has begun with this checkpoint: Spark has neither planned a micro-batch in it nor kept where its source begins."""
        return self._is_empty("offsets") and self._is_empty("sources/0")

    def first_offsets(self) -> dict[str, Any]:
        """Where the query began to read its topic, by topic and partition; empty if the checkpoint does not say."""
        path = self._path("sources/0/0")
        if not self._files.exists(path):
            return {}
        stream = self._files.open(path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        body: dict[str, Any] = json.loads(text.partition("\n")[2])  # the first line is the version of Spark's format
        return body

    def _is_empty(self, folder: str) -> bool:
        path = self._path(folder)
        return not self._files.exists(path) or not list(self._files.listStatus(path))

    def _path(self, below: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._location}/{below}")
