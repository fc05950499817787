"""The handler of `jobs/to_kafka.py`: messages of queues go into a Kafka topic, each at least once, with an id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from spark_partq.core.delivery.positions import Position
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition
from spark_partq.spark.micro_batch import SOURCE, micro_batch

# The header of each message in the topic that says where the message was in its queue: "<incarnation>/<partition>/<offset>".
ID_HEADER = "partq-id"
_HEADERS = "array<struct<key:string,value:binary>>"
_BY_NAME = "key", "value", "headers"
_TAKEN = *_BY_NAME, "partition"  # the columns of a row that the connector writes


class TopicWriter:
    """Writes micro-batches of queues into a topic; for ``writeStream.foreachBatch``.

    Parameters
    ----------
    options : dict
        Options of the connector.
    select : sequence of str
        Expressions that give columns `key`, `value`, `headers` or `partition`. Without any, the columns of the queue that have one of the
        first three names.
    """

    def __init__(self, topic: str, options: Mapping[str, str], select: Sequence[str] = ()) -> None:
        self._topic, self._options, self._select = topic, dict(options), tuple(select)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = self.rows(batch, micro_batch(batch).positions)
        rows.write.format("kafka").options(**self._options).option("topic", self._topic).save()

    def rows(self, batch: DataFrame, positions: Mapping[QueuePartition, Position]) -> DataFrame:
        """The rows that the connector writes, each with its message's id among the headers.

        Parameters
        ----------
        positions : dict
            The messages that were planned for the micro-batch.

        Raises
        ------
        InvalidArgumentError
            If there is no column `value`, or a column of another name, or the headers have another type.
        """
        columns = self._select or [name for name in _BY_NAME if name in batch.columns]
        rows = batch.selectExpr(*columns, *SOURCE)
        given = [name for name in rows.columns if name not in SOURCE]
        unknown = [name for name in given if name not in _TAKEN]
        if "value" not in given or unknown:
            what = f"no column {', '.join(unknown)}" if unknown else "a value"
            raise InvalidArgumentError(
                f"a Kafka message has {what}; it has value, and may have {', '.join(name for name in _TAKEN if name != 'value')}. Say with --select "
                'what they are made of, as --select "to_json(struct(*)) as value"',
                columns=", ".join(given),
            )
        id_ = _id(positions)
        headers = sf.array(sf.struct(sf.lit(ID_HEADER).alias("key"), id_.cast("binary").alias("value"))).cast(_HEADERS)
        if "headers" in given:
            headers = sf.concat(_own_headers(rows.schema["headers"].dataType, id_), headers)
        return rows.withColumn("headers", headers).drop(*SOURCE)


def _own_headers(type_: DataType, id_: Column) -> Column:
    """The headers that a message has itself, without the id that it has if it came from a topic of this job.

    Raises
    ------
    InvalidArgumentError
        If a column of this type has no headers.
    """
    if not _are_headers(type_):
        raise InvalidArgumentError(
            f"the headers of a Kafka message are {_HEADERS}, and the column headers is {type_.simpleString()}. Say with "
            "--select what they are made of, or leave the column out",
            columns="headers",
        )
    own = sf.coalesce(sf.col("headers").cast(_HEADERS), sf.array().cast(_HEADERS))
    # The connector's error would not name the message.
    what = "a header of message %s has no key, and Kafka takes none without. Leave it out with --select"
    refused = sf.raise_error(sf.format_string(what, id_)).cast(_HEADERS)
    own = sf.when(sf.exists(own, lambda h: h["key"].isNull()), refused).otherwise(own)
    return sf.filter(own, lambda h: h["key"] != ID_HEADER)


def _are_headers(type_: DataType) -> bool:
    """Whether these are headers, each a text with bytes or with a text."""
    fields = (
        type_.elementType.fields if isinstance(type_, ArrayType) and isinstance(type_.elementType, StructType) else []
    )
    return (
        len(fields) == 2
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, (BinaryType, StringType))
    )


def _id(positions: Mapping[QueuePartition, Position]) -> Column:
    """The id of each row's message. It names the incarnation in which the message was written, so a promotion does not change the id."""
    queue, partition, offset = (sf.col(name) for name in SOURCE)
    # One literal, as Spark cannot plan thousands of nested conditions. The oldest incarnation that had the message decides.
    lineages = {
        f"{name}/{number}": [
            {"incarnation": incarnation, "shared": shared} for incarnation, shared in reversed(position.lineage)
        ]
        for (name, number), position in positions.items()
    }
    known = sf.from_json(sf.lit(json.dumps(lineages)), "map<string,array<struct<incarnation:string,shared:bigint>>>")
    had_it = sf.filter(known[sf.concat_ws("/", queue, partition)], lambda lineage: offset < lineage["shared"])
    return sf.concat_ws("/", sf.get(had_it, sf.lit(0))["incarnation"], partition, offset)
