"""Spark's types as Arrow's, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

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
