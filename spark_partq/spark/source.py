"""``format("partq")``: a queue as a DataFrame, in batches and as a stream (Q6, Q7, U2)."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_partq.core.errors import SchemaMismatchError
from spark_partq.core.payload.schema import message_schema
from spark_partq.spark import compat
from spark_partq.spark.batch_reader import BatchReader, PushdownBatchReader
from spark_partq.spark.options import Options
from spark_partq.spark.stream_reader import StreamReader
from spark_partq.storage.queue.handle import open_queue, same_payload


class PartqDataSource(DataSource):
    """Reads queues. The columns are the payload's, then `core.payload.schema.MESSAGE_COLUMNS`."""

    @classmethod
    def name(cls) -> str:
        return "partq"

    def schema(self) -> StructType:
        options = Options.parse(self.options)
        payload = same_payload([open_queue(options.store, name) for name in options.consumer.subscribed_queues()])
        return StructType.fromJson(message_schema(payload))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema)
        return (
            PushdownBatchReader(options, schema) if compat.filters_are_pushed_down() else BatchReader(options, schema)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._options(schema), schema)

    def _options(self, schema: StructType) -> Options:
        if schema != self.schema():
            raise SchemaMismatchError("format partq has the schema of its queue; leave out .schema(…)")
        return Options.parse(self.options)
