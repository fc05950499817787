"""Spark's types as Arrow's, without Spark; and arrays, without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas, which takes a new worker a third of a second and 50 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_partq.core.payload.schema import Struct

_ATOMIC = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_schema(struct: Struct) -> pa.Schema:
    """The schema of files that hold these columns; the types are those of `core.payload.schema`."""
    return pa.schema([pa.field(f["name"], arrow_type(f["type"]), f["nullable"]) for f in struct["fields"]])


def in_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly these columns; null in those that they lack."""
    columns = [rows.column(f.name) if f.name in rows.schema.names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_type(type_: Any) -> pa.DataType:
    if not isinstance(type_, dict):
        if type_.startswith("decimal("):
            return pa.decimal128(*map(int, type_[len("decimal(") : -1].split(",")))
        return _ATOMIC[type_]
    if type_["type"] == "array":
        return pa.list_(pa.field("element", arrow_type(type_["elementType"]), type_["containsNull"]))
    if type_["type"] == "map":
        return pa.map_(arrow_type(type_["keyType"]), arrow_type(type_["valueType"]))
    return pa.struct([pa.field(f["name"], arrow_type(f["type"]), f["nullable"]) for f in type_["fields"]])


def integers(values: NDArray[Any], type_: pa.DataType | None = None) -> pa.Array:
    """Integers of the type's width (64 bits if there is none), without a copy."""
    return pa.Array.from_buffers(type_ or pa.int64(), len(values), [None, pa.py_buffer(values)])


def texts(values: Sequence[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def repeated(value: str | int | None, type_: pa.DataType, n: int) -> pa.Array:
    """`n` times the same text, number, time or truth value."""
    if value is None:
        return pa.nulls(n, type_)
    if isinstance(value, str):
        one = texts([value])
    elif pa.types.is_boolean(type_):
        one = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(bytes([value]))])
    else:
        one = integers(np.array([value], f"i{type_.bit_width // 8}"), type_)
    return pa.repeat(one[0], n)
