"""Spark's types as Arrow's, without Spark; and arrays, without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas, which takes a new worker a third of a second and 50 MB.
"""

from __future__ import annotations

import datetime as dt
import itertools
from array import array
from collections.abc import Sequence, Sized
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
_EXACT = {"string": "binary", "date": "integer", "timestamp": "long", "timestamp_ntz": "long"}
_EPOCH, _MICROSECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)


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


def exact_type(type_: Any) -> Any:
    """The type whose Python values are there for any value of this one: the bytes of a text, which need not be UTF-8, and the numbers of
    dates and times, as Python has no year 10000. Their hash as a key is the same."""
    if not isinstance(type_, dict):
        return _EXACT.get(type_, type_)
    inner = {part: exact_type(type_[part]) for part in ("elementType", "keyType", "valueType") if part in type_}
    fields = {"fields": [{**f, "type": exact_type(f["type"])} for f in type_["fields"]]} if "fields" in type_ else {}
    return {**type_, **inner, **fields}


def exact_values(column: pa.Array, type_: Any) -> list[Any]:
    """The values of a column of this type, as Python has them of its `exact_type`."""
    return list(column.cast(arrow_type(exact_type(type_))).to_pylist())


def rows_of(batch: pa.RecordBatch, struct: Struct) -> list[dict[str, Any]]:
    """The rows of a batch of these columns, for people. A value that Python does not have is as in `exact_values`; a text has a mark for what is no
    UTF-8."""
    names = [f["name"] for f in struct["fields"]]
    columns = [_for_people(batch.column(f["name"]), f["type"]) for f in struct["fields"]]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _for_people(column: pa.Array, type_: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(exact, type_) for exact in exact_values(column, type_)]


def _value(exact: Any, type_: Any) -> Any:
    """The value, of `exact_type`, as Python has it. Each part that Python does not have stays as it is."""
    if isinstance(type_, dict) and exact is not None:
        if type_["type"] == "struct":
            return {f["name"]: _value(exact[f["name"]], f["type"]) for f in type_["fields"]}
        if type_["type"] == "array":
            return [_value(one, type_["elementType"]) for one in exact]
        return [(_value(key, type_["keyType"]), _value(one, type_["valueType"])) for key, one in exact]
    try:
        return pa.scalar(exact, arrow_type(exact_type(type_))).cast(arrow_type(type_)).as_py()
    except (ValueError, OverflowError):
        return exact.decode(errors="replace") if type_ == "string" else exact


def integers(values: NDArray[Any], type_: pa.DataType | None = None) -> pa.Array:
    """Integers of the type's width (64 bits if there is none), without a copy."""
    return pa.Array.from_buffers(type_ or pa.int64(), len(values), [None, pa.py_buffer(values)])


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """As `pa.array`, of the types that log entries, facts and acknowledgements have: texts, numbers of 32 and 64 bits, truth values, times, and
    lists, maps (of mappings) and structs of them.

    Raises
    ------
    TypeError, OverflowError
        If a value is not of the type.
    """
    whole = None not in values
    nulls = None if whole else _bits([value is not None for value in values])
    buffers, children = list[pa.Buffer](), list[pa.Array]()
    if pa.types.is_string(type_):
        plain = values if whole else ["" if value is None else value for value in values]
        text = "".join(plain)
        if text.isascii():
            buffers = [_ends(plain), pa.py_buffer(text.encode())]
        else:
            encoded = [value.encode() for value in plain]
            buffers = [_ends(encoded), pa.py_buffer(b"".join(encoded))]
    elif pa.types.is_boolean(type_):
        buffers = [_bits(values)]
    elif pa.types.is_struct(type_):
        for field in type_:
            children.append(
                array_of([None if value is None else value.get(field.name) for value in values], field.type)
            )
    elif pa.types.is_map(type_):
        maps = [value or {} for value in values]
        keys = array_of([key for one in maps for key in one], type_.key_type)
        items = array_of([item for one in maps for item in one.values()], type_.item_type)
        pair = pa.struct([type_.key_field, type_.item_field])
        buffers, children = [_ends(maps)], [pa.Array.from_buffers(pair, len(keys), [None], children=[keys, items])]
    elif pa.types.is_list(type_):
        lists = [value or () for value in values]
        buffers, children = [_ends(lists)], [array_of([*itertools.chain.from_iterable(lists)], type_.value_type)]
    else:
        if pa.types.is_timestamp(type_):
            values = [None if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
        numbers = values if whole else [0 if value is None else value for value in values]
        buffers = [pa.py_buffer(array("i" if type_.bit_width == 32 else "q", numbers))]
    return pa.Array.from_buffers(type_, len(values), [nulls, *buffers], children=children)


def _ends(values: Sequence[Sized]) -> pa.Buffer:
    """Where each value ends in the row of all of them, after a 0."""
    return pa.py_buffer(array("i", itertools.accumulate(map(len, values), initial=0)))


def _bits(values: Sequence[bool | None]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, bool), bitorder="little"))


def leaves(type_: pa.DataType) -> int:
    """Columns of a Parquet file that hold a column of this type."""
    if not pa.types.is_nested(type_):
        return 1
    return sum(leaves(type_.field(n).type) for n in range(type_.num_fields))


def is_like(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of the first type are values of the second: Spark's rows have times in the zone of its session, and texts and lists may be
    large ones.
    """
    types = pa.types
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(held) and (held.tz is None) == (wanted.tz is None))
    if types.is_string(wanted):
        return bool(types.is_string(held) or types.is_large_string(held))
    if types.is_binary(wanted):
        return bool(types.is_binary(held) or types.is_large_binary(held))
    if types.is_map(wanted):
        same_keys = types.is_map(held) and is_like(held.key_type, wanted.key_type)
        return same_keys and is_like(held.item_type, wanted.item_type)
    if types.is_list(wanted):
        return (types.is_list(held) or types.is_large_list(held)) and is_like(held.value_type, wanted.value_type)
    if types.is_struct(wanted):
        fields = list(zip(held, wanted, strict=False)) if types.is_struct(held) and len(held) == len(wanted) else []
        return bool(fields) and all(a.name == b.name and is_like(a.type, b.type) for a, b in fields)
    return bool(held == wanted)


def repeated(value: str | int | None, type_: pa.DataType, n: int) -> pa.Array:
    """`n` times the same text, number or truth value."""
    return pa.nulls(n, type_) if value is None else pa.repeat(array_of([value], type_)[0], n)
