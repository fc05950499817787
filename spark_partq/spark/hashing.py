"""The partition of a row as a Spark expression; `core.payload.keys` computes the same in Python."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import LongType

from spark_partq.core.payload.schema import is_hashable
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.murmur2 import positive_murmur2s


def hash_column(state: QueueState, given: Collection[str], salt: str) -> Column:
    """The hash of each row, a long, which decides its partition under any map of the queue.

    A row with a key has the hash of its key (Q2). A row without one (no key columns, or all null) has that of its whole content and
    `salt` (Q3), which names the batch and so spreads rows that are all alike.

    Parameters
    ----------
    given : collection of str
        The columns that the rows have.
    """
    content = [_hashable(f["name"], f["type"]) for f in state.schema["fields"] if f["name"] in given]
    spread = sf.xxhash64(*content, sf.lit(salt))
    if not state.key:
        return spread
    key = [quoted(name) for name in state.key]
    all_null = reduce(Column.__and__, [column.isNull() for column in key])
    hash_ = murmur2_column(*key) if state.key_hash == "murmur2" else sf.xxhash64(*key)
    return sf.when(all_null, spread).otherwise(hash_)


def murmur2_column(key: Column) -> Column:
    """Kafka's hash of a string or binary column, a long from 0 to 2^31 - 1. Spark has no expression for it, so its Python workers compute it."""
    hashed: Column = arrow_udf(_murmur2, LongType())(key.cast("binary"))  # type: ignore[call-overload]
    return hashed


def _murmur2(keys: pa.Array) -> pa.Array:
    return pa.array(positive_murmur2s(keys))


def partition_column(hash_: Column, partitions: int) -> Column:
    """The partition number of each row, an int, under a map of this count."""
    return sf.pmod(hash_, sf.lit(partitions)).cast("int") if partitions else sf.lit(PARENT)


def _hashable(name: str, type_: object) -> Column:
    return quoted(name) if is_hashable(type_) else sf.to_json(sf.struct(quoted(name)))


def quoted(name: str) -> Column:
    """The column of exactly this name, whatever it contains."""
    return sf.col("`" + name.replace("`", "``") + "`")
