"""DataFrames as far as there are any without Spark: what a sink looks at before its job begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.payload.schema import MESSAGE_COLUMNS
from spark_partq.spark.micro_batch import writing_run
from spark_partq.spark.reject import _name_of
from spark_partq.storage.store import Store
from tests.helpers import opened

_TYPES = {"string": StringType(), "long": LongType(), "integer": IntegerType()}


def rows(**columns: str) -> Any:
    """A DataFrame with these columns, of no streaming query."""
    fields = [StructField(name, _TYPES[type_]) for name, type_ in columns.items()]
    return _frame(StructType(fields), {}, [])


def batch(store: str, *groups: str, **columns: str | None) -> Any:
    """A micro-batch that group `g`, or these groups, reads: messages 3 to 7 of partition 0 of queue `q`.

    Parameters
    ----------
    columns : str or None
        What is otherwise than in the queue: a column's type, or None if it is left out.
    """
    read = {"k": "string", "v": "long", **columns}
    fields = [StructField(name, _TYPES[type_]) for name, type_ in read.items() if type_]
    added = StructType.fromJson(MESSAGE_COLUMNS).fields
    schema = StructType([*fields, *(field for field in added if field.name not in columns)])
    ids = {"q": opened(store).state.queue_id}
    offsets = [StreamOffset(group, "a", ids, {("q", 0): Range(1, 3, 8)}) for group in groups or ("g",)]
    local = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0", "spark.jobGroup.id": store}
    return _frame(schema, local, offsets)


def rejected(store: str, reason: str) -> Any:
    """A micro-batch whose function has rejected messages for that reason."""
    found = batch(store)
    run = writing_run(found)
    assert run is not None
    run.written["reject", Store.at(store).uri, _name_of(reason)] = ()  # of other rows
    return found


def _frame(schema: StructType, local: Mapping[str, str], offsets: Sequence[StreamOffset]) -> Any:
    """With a session that answers for Spark: local properties, and the offset log of the running query."""
    session = mock.MagicMock()
    session.sparkContext.getLocalProperty = local.get
    query = session._jsparkSession.sharedState().activeStreamingQueries().get()
    query.runId().toString.return_value = local.get("spark.jobGroup.id")
    query.logicalPlan().collectLeaves().size.return_value = 0
    entry = query.offsetLog().get().get().offsets()
    entry.size.return_value = len(offsets)
    entry.apply.side_effect = lambda i: mock.MagicMock(
        get=lambda: SimpleNamespace(json=lambda: json.dumps(offsets[i].to_json()))
    )
    plan = SimpleNamespace(  # it reads no file
        collectLeaves=lambda: SimpleNamespace(size=lambda: 0),
        subqueriesAll=lambda: SimpleNamespace(isEmpty=lambda: True),
    )
    return SimpleNamespace(
        semanticHash=lambda: 0,
        schema=schema,
        columns=schema.names,
        isStreaming=False,
        sparkSession=session,
        _jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)),
    )
