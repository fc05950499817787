"""The partition of a row as a Spark expression; `core.payload.keys` is the same in Python."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as sf

from spark_partq.core.payload.schema import is_hashable
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState


def hash_column(state: QueueState, salt: str) -> Column:
    """The hash of each row, a long, that says where it goes under any map of the queue.

    That of its key (Q2). Of a row without one (no key columns, or all null) that of its whole content and `salt` (Q3): it
    never depends on a position, so a replayed batch that arrives in another order puts each row where it was. `salt` is the
    batch, which spreads rows that are all alike.
    """
    content = [_hashable(f["name"], f["type"]) for f in state.schema["fields"]]
    spread = sf.xxhash64(*content, sf.lit(salt))
    if not state.key:
        return spread
    key = [quoted(name) for name in state.key]
    all_null = reduce(Column.__and__, [column.isNull() for column in key])
    return sf.when(all_null, spread).otherwise(sf.xxhash64(*key))


def partition_column(hash_: Column, partitions: int) -> Column:
    """The partition number of each row, an int, under a map of this count."""
    return sf.pmod(hash_, sf.lit(partitions)).cast("int") if partitions else sf.lit(PARENT)


def _hashable(name: str, type_: object) -> Column:
    return quoted(name) if is_hashable(type_) else sf.to_json(sf.struct(quoted(name)))


def quoted(name: str) -> Column:
    """The column of exactly this name, whatever it contains."""
    return sf.col("`" + name.replace("`", "``") + "`")
