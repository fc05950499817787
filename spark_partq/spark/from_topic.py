"""The sink of `jobs/from_kafka.py`: messages of a Kafka topic go into a queue, each once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_partq.core.delivery.topics import (
    Topic,
    check_follows,
    check_reachable,
    first_positions,
    planned,
    position_name,
    recorded,
    starting_offsets,
)
from spark_partq.core.errors import CheckpointMismatchError, InvalidArgumentError
from spark_partq.core.names import check_name
from spark_partq.core.payload.schema import Struct, payload_schema, quoted, sql_type, types_of
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.spark.micro_batch import SOURCE, MicroBatch, bounds_of
from spark_partq.spark.sink import append_once
from spark_partq.spark.turns import in_turn
from spark_partq.spark.write_job import WrittenRows
from spark_partq.storage.log import retrying
from spark_partq.storage.procedures.positions_queue import PositionsQueue, read_positions
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

# The columns that Spark's connector gives for a message: name, and type in Spark's DDL.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
_TEXTS = "key", "value"  # bytes, which a queue may keep as text
_IN_VALUE = "value."
_NOWHERE = str(None)  # how an error names the topic of a row that comes from none


def columns_for(schema: Struct, key: Sequence[str], select: Sequence[str], key_from: str | None) -> list[str]:
    """The queue's columns as expressions over those of the connector.

    Parameters
    ----------
    select : sequence of str
        Expressions that a user gave; they are used instead.
    key_from : str, optional
        ``value.<field>``: the queue's key is that field of the value, which is JSON.

    Raises
    ------
    InvalidArgumentError
        If nothing says where a column comes from.
    """
    if select and key_from:
        raise InvalidArgumentError("--select says where the key comes from, too; give it or --key-from, and not both")
    if select:
        return list(select)
    found = {field["name"]: _expression(field["name"], field["type"]) for field in schema["fields"]}
    if key_from is not None:
        found |= _key_in_value(schema, key, key_from)
    unknown = [name for name, expression in found.items() if expression is None]
    if unknown:
        fitting = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        raise InvalidArgumentError(
            f"nothing of a Kafka message is called {', '.join(unknown)} and has that column's type; there is {fitting} (key and value also as "
            "string). Say with --select, for each column of the queue, what it is made of",
            columns=", ".join(unknown),
        )
    return [f"{expression} as {quoted(name)}" for name, expression in found.items()]


def _expression(name: str, type_: Any) -> str | None:
    if name in COLUMNS and [type_] == types_of(payload_schema(f"{quoted(name)} {COLUMNS[name]}"), [name]):
        return quoted(name)
    return f"cast({name} as string)" if name in _TEXTS and type_ == "string" else None


def _key_in_value(schema: Struct, key: Sequence[str], key_from: str) -> dict[str, str | None]:
    types = {field["name"]: field["type"] for field in schema["fields"]}
    field = key_from.removeprefix(_IN_VALUE)
    if (
        not key_from.startswith(_IN_VALUE)
        or not field
        or "'" in field
        or len(key) != 1
        or isinstance(types[key[0]], dict)
    ):
        raise InvalidArgumentError(
            f"--key-from {key_from!r}: give value.<field>, a field of a JSON value, for a queue whose key is one column of a plain type; or use "
            "--select",
            key_from=key_from,
        )
    return {key[0]: f"cast(get_json_object(cast(value as string), '$.{field}') as {sql_type(types[key[0]])})"}


class TopicSink:
    """Writes micro-batches of a topic into a queue; for ``writeStream.foreachBatch``.

    Parameters
    ----------
    sink_id : str
        The name under which the queue records how far it has the topic.
    columns : sequence of str
        Expressions over the connector's columns, as `columns_for` gives them.
    topic : function
        Asks the broker for the topic as it is now.
    first : function
        Where the checkpoint's first micro-batch begins, by topic and partition, as Spark has it.
    null_keys : bool
        Whether a message may have no key.
    """

    def __init__(
        self,
        store: Store,
        queue: str,
        sink_id: str,
        columns: Sequence[str],
        topic: Callable[[], Topic],
        first: Callable[[], Mapping[str, Any]] = dict,
        null_keys: bool = False,
    ) -> None:
        self._turn = threading.RLock()
        self._queue = open_queue(store, queue)
        self._sink_id = check_name("sink", sink_id)
        self._columns, self._topic, self._first, self._null_keys = tuple(columns), topic, first, null_keys
        self._target = PositionsQueue(self._queue, positions_sink(sink_id, sink_id))
        self._last: WrittenRows | None = None

    @in_turn
    def starting_offsets(self, otherwise: str, fail_on_data_loss: bool, is_new: bool) -> str:
        """Where to begin with a new checkpoint, in Spark's JSON: where the queue's positions say.

        Parameters
        ----------
        otherwise : {"earliest", "latest"}
            Where to begin if the queue has nothing of the topic.
        is_new : bool
            The checkpoint is new. Then the queue records where the job begins, before a message is read. So another job begins there, too.

        Raises
        ------
        CheckpointMismatchError, TargetAheadError, DataLossError
        """
        if is_new:
            retrying(self._queue.store.runtime, lambda: self._begin(otherwise), self._target.what)
        # This comes before the broker is asked: another job may add messages that came after the broker's answer.
        positions = read_positions(self._queue, positions_sink(self._sink_id, self._sink_id))
        topic = self._topic()
        known = recorded(positions, self._sink_id, topic)
        check_reachable(topic, known, fail_on_data_loss)
        return starting_offsets(topic, known)

    def _begin(self, otherwise: str) -> None:
        """Record in the queue where to begin, if the queue has nothing of the topic."""
        self._target.refresh()
        topic = self._topic()
        if not recorded(self._target.positions, self._sink_id, topic):
            first = first_positions(topic, otherwise)
            names = {position_name(self._sink_id, topic, number): offset for number, offset in first.items()}
            self._target.commit([self._target.prepare(lambda: [], lambda: 0)], names)

    @in_turn
    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        topic = self._topic()
        bounds = [
            ((start or self._first()).get(topic.name, {}), end[topic.name])
            for start, end in bounds_of(batch)
            if isinstance(end, dict) and topic.name in end
        ]
        if not bounds:  # the queue would want nothing of the micro-batch
            raise CheckpointMismatchError(
                f"this micro-batch holds nothing of topic {topic.name!r}: the checkpoint is of another topic or source. Nothing was written. Use a new "
                "checkpoint: the queue says where to begin",
                topic=topic.name,
            )
        starts, ends = bounds[0]
        self._check_begun(topic, starts, batch_id)
        self.write(batch, topic, ends)

    @in_turn
    def write(self, batch: DataFrame, topic: Topic, ends: Mapping[str, int]) -> None:
        """Append those messages of a micro-batch that the queue lacks.

        Parameters
        ----------
        batch : DataFrame
            Has the connector's columns.
        ends : dict
            For each partition, the end of the micro-batch.

        Raises
        ------
        InvalidArgumentError
            If a message has no key.
        SchemaMismatchError
        """
        rows = batch.selectExpr(
            *self._columns, f"topic as {SOURCE[0]}", f"partition as {SOURCE[1]}", f"offset as {SOURCE[2]}"
        )
        try:
            of_topic = MicroBatch(self._sink_id, planned(topic, ends))
            self._last, _ = append_once(self._target, of_topic, self._marked(rows), last=self._last, to_the_end=True)
        except InvalidArgumentError as error:
            if error.params.get("queue") != _NOWHERE:
                raise
            raise InvalidArgumentError(
                f"message {error.params['offset']} of partition {error.params['partition']} of topic {topic.name!r} has no key, so nothing says which "
                "messages stay in order. Nothing of this micro-batch was written. Take the key from the value (--key-from value.<field>, or --select), "
                "or let such messages be spread over the partitions (--allow-null-keys)",
                topic=topic.name,
                partition=error.params["partition"],
                offset=error.params["offset"],
            ) from None

    def _marked(self, rows: DataFrame) -> DataFrame:
        """If each row must have a key: the same rows, where those without a key have no topic.

        The job that writes them finds these and writes nothing.
        """
        key = self._queue.state.key
        if self._null_keys or not key or any(name not in rows.columns for name in key):
            return rows
        lacks = reduce(Column.__and__, [sf.col(quoted(name)).isNull() for name in key])
        return rows.withColumn(SOURCE[0], sf.when(~lacks, sf.col(SOURCE[0])))

    def _check_begun(self, topic: Topic, starts: Mapping[str, int], batch_id: int) -> None:
        """Refuse a checkpoint that goes on where another queue ends, or where this queue ended before it was restored to an earlier state.

        Raises
        ------
        CheckpointMismatchError
        """
        self._target.refresh()
        known = recorded(self._target.positions, self._sink_id, topic)
        if not known:  # a job that begins with a new checkpoint records where
            raise CheckpointMismatchError(
                f"the checkpoint has {batch_id + 1:,} micro-batches of topic {topic.name!r}, and queue {self._queue.name!r} has no message of it as "
                f"sink {self._sink_id!r}: the checkpoint belongs to another queue or sink. Nothing was written. Use a new checkpoint: the queue says where "
                "to begin",
                topic=topic.name,
                queue=self._queue.name,
                sink_id=self._sink_id,
            )
        check_follows(topic, known, starts, self._queue.name)
