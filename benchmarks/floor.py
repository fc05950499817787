"""A Python streaming source that reads nothing: it hands Spark the same batch again and again.

What it takes is what any Python source pays at the boundary to the JVM for rows of this width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

_BATCH_ROWS = 32_768
_WIDTH = {"body": 80, "k": 9}


class FloorSource(DataSource):
    """Options: ``rows`` in all, ``flows`` tasks, ``ddl`` the columns; ``batch`` rows of a micro-batch, or else all of them."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return str(self.options["ddl"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        rows = int(self.options["rows"])
        return _Reader(schema, rows, int(self.options["flows"]), int(self.options.get("batch", rows)))


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, rows: int, flows: int, batch: int) -> None:
        self._schema, self._rows, self._flows, self._batch = schema, rows, flows, batch

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(start["row"] + self._batch, self._rows)}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows = end["row"] - start["row"]
        return [InputPartition(rows // self._flows) for _ in range(self._flows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays([_column(field) for field in schema], schema=schema)
        left = partition.value
        while left:
            yield batch.slice(0, min(left, _BATCH_ROWS))
            left -= min(left, _BATCH_ROWS)


def _column(field: pa.Field) -> pa.Array:
    numbers: Any = np.arange(_BATCH_ROWS)
    if pa.types.is_string(field.type):
        return pa.array(["x" * _WIDTH.get(field.name, 6)] * _BATCH_ROWS)
    if pa.types.is_boolean(field.type):
        return pa.repeat(False, _BATCH_ROWS)
    return pa.array(numbers).cast(field.type)
