"""The partition of a row as a Spark expression; `core.payload.keys` computes the same in Python.

It is one SQL text. PySpark would ask the JVM for each function and each column, which would take longer than a small batch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import LongType

from spark_partq.core.payload.schema import is_hashable, quoted, sql_type
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.murmur2 import positive_murmur2s

Expression = str | Column  # SQL, or a column if SQL has no function for it


def selected(rows: DataFrame, expressions: Iterable[Expression], names: Sequence[str]) -> DataFrame:
    """These expressions of the rows, under these names."""
    named = list(zip(expressions, names, strict=True))
    texts = [f"{expression} as {quoted(name)}" for expression, name in named if isinstance(expression, str)]
    if len(texts) == len(named):
        return rows.selectExpr(*texts)
    return rows.select(*((sf.expr(e) if isinstance(e, str) else e).alias(name) for e, name in named))


def partition_column(state: QueueState, given: Collection[str], salt: str) -> Expression:
    """The partition number of each row, a long, under the map in force.

    A row with a key is placed by the hash of its key (Q2). A row without one (no key columns, or all null) is placed by the hash of its whole
    content and `salt` (Q3). `salt` names the batch, so rows that are all alike are spread over the partitions from batch to batch.

    Parameters
    ----------
    given : collection of str
        The columns that the rows have.
    salt : str
        Of letters and digits.
    """
    count = state.partition_count
    if not count:
        return str(PARENT)
    content = [_hashable(f["name"], f["type"]) for f in state.schema["fields"] if f["name"] in given]
    spread = f"xxhash64({', '.join(content)}, '{salt}')"
    if not state.key:
        return _partition(spread, count)
    # Texts of a producer's column may have a collation, by which Spark can be set to hash them.
    key = [
        f"cast({quoted(name)} as {sql_type(type_)})" if '"string"' in json.dumps(type_) else quoted(name)
        for name, type_ in zip(state.key, state.key_types, strict=True)
    ]
    lacks_key = " and ".join(f"{column} is null" for column in key)
    if state.key_hash == "murmur2":
        return sf.when(sf.expr(lacks_key), sf.expr(_partition(spread, count))).otherwise(
            sf.pmod(murmur2_column(sf.expr(*key)), sf.lit(count))
        )
    return _partition(f"if({lacks_key}, {spread}, xxhash64({', '.join(key)}))", count)


def _partition(hash_: str, count: int) -> str:
    """A long: a cast to an int, whose range Spark checks for each row, takes longer than the hash."""
    return f"pmod({hash_}, {count}L)"


def murmur2_column(key: Column) -> Column:
    """Kafka's hash of a string or binary column, a long from 0 to 2^31 - 1. Spark has no expression for it, so its Python workers compute it."""
    hashed: Column = arrow_udf(_murmur2, LongType())(key.cast("binary"))  # type: ignore[call-overload]
    return hashed


def _murmur2(keys: pa.Array) -> pa.Array:
    return pa.array(positive_murmur2s(keys))


def _hashable(name: str, type_: object) -> str:
    return quoted(name) if is_hashable(type_) else f"to_json(struct({quoted(name)}))"
