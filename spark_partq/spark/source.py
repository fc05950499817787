"""``format("partq")``: a queue as a DataFrame, in batches and as a stream (Q6, Q7, U2).

Spark loads this file in every task that reads, and in every session that looks for data sources. So the methods, which only
planners call, import the planning code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from spark_partq.spark.address import Address
    from spark_partq.spark.options import Options
    from spark_partq.storage.queue.handle import Queue


class PartqDataSource(DataSource):
    """Reads queues. The columns are the payload's, then `core.payload.schema.MESSAGE_COLUMNS`.

    Attributes
    ----------
    driver : Address or None
        Where the driver of the query listens. Only the query's planner uses it, though Spark sends the whole source to the
        tasks, too.
    """

    driver: Address | None = None

    @classmethod
    def of(cls, driver: Address | None) -> type[PartqDataSource]:
        """The source whose planners know this driver. Spark sends the class itself to the planners, not its name."""
        return type(cls.__name__, (cls,), {"driver": driver, "__module__": __name__})

    def __reduce__(self) -> tuple[Any, ...]:
        return _source, (self.options, self.driver)

    @classmethod
    def name(cls) -> str:
        return "partq"

    def schema(self) -> StructType:
        from spark_partq.core.payload.schema import message_schema
        from spark_partq.storage.queue.handle import same_payload

        return StructType.fromJson(message_schema(same_payload(self._queues())))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_partq.spark.batch_reader import BatchReader

        self._check(schema)
        self.driver = None
        return BatchReader(self._parsed(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_partq.spark.stream_reader import StreamReader

        self._check(schema)
        driver, self.driver = self.driver, None
        options = self._parsed()
        options.check_stream()
        return StreamReader(options, schema, driver)

    def _queues(self) -> list[Queue]:
        return self._parsed().consumer.open_queues()

    def _parsed(self) -> Options:
        from spark_partq.spark.options import Options

        return Options.parse(self.options)

    def _check(self, schema: StructType) -> None:
        from spark_partq.core.errors import SchemaMismatchError
        from spark_partq.core.payload.schema import is_readable_as, message_schema, payload_of

        payload = payload_of(schema.jsonValue())
        states = [queue.state for queue in self._queues()]  # a column may have been added since `schema`
        unlike = [state.name for state in states if not is_readable_as(state.schema, state.added, payload)]
        if unlike or StructType.fromJson(message_schema(payload)) != schema:
            raise SchemaMismatchError(
                f"queue {(unlike or [states[0].name])[0]!r} does not have the columns that the DataFrame has: leave out .schema(…), and load the "
                "DataFrame again if the queue was created since"
            )


def _source(options: dict[str, str], driver: Address | None) -> PartqDataSource:
    source = PartqDataSource(options)
    source.driver = driver
    return source
