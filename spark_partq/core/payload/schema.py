"""Payload schemas, in the JSON form that Spark and Delta share (`StructType.jsonValue()`).

A queue keeps its schema with every column nullable and without metadata: a message store promises to
give back what was written, not to check it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from spark_partq.core.errors import InvalidArgumentError, SchemaMismatchError

Struct = dict[str, Any]  # {"type": "struct", "fields": [{"name", "type", "nullable", "metadata"}, …]}

# What the source adds to each message, and what the partition tables keep beside the payload.
MESSAGE_COLUMNS: Struct = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (
            ("_queue", "string"),
            ("_partition", "integer"),
            ("_offset", "long"),
            ("_enqueued_at", "timestamp"),
            ("_redelivered", "boolean"),
            ("_flow", "string"),
            ("_epoch", "long"),
        )
    ],
}
RESERVED = frozenset(f["name"] for f in MESSAGE_COLUMNS["fields"]) | {"_row", "base_offset"}

_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z_0-9]*")
_ATOMIC = frozenset(
    [
        "string",
        "integer",
        "long",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
# Columns, what is in them, what is in that… Parquet and JSON readers stop at some hundred.
MAX_DEPTH = 50
# Of columns that are new: deeper maps do not fit into Arrow's stream format, and delta-rs cannot read a table with deeper structs.
MAX_NEW_DEPTH = 32
_DECIMAL = re.compile(r"decimal\( *([0-9]+) *, *([0-9]+) *\)")


def payload_schema(schema: str | Struct, key: Sequence[str] = (), max_depth: int = MAX_DEPTH) -> Struct:
    """Normalize and check a payload schema given as Spark DDL or as Spark's JSON form.

    Parameters
    ----------
    schema : str or dict
        ``"order_id string, amount double"`` or ``StructType.jsonValue()``.
    key : sequence of str
        The partition key's columns, which must be there and hashable.
    max_depth : int
        How many levels deep a column may be nested.

    Raises
    ------
    InvalidArgumentError
        If it cannot be a queue's schema; the columns at fault are named.
    """
    struct = schema
    if isinstance(schema, str):
        from spark_partq.core.payload.ddl import (
            parse_ddl,  # heavy to import, and every process of a query imports this module
        )

        struct = parse_ddl(schema)
    if not isinstance(struct, dict) or struct.get("type") != "struct" or not struct.get("fields"):
        raise InvalidArgumentError("a queue's schema needs at least one column", schema=schema)
    try:
        struct = _normalized_struct(struct, (), 1, max_depth)
    except (KeyError, TypeError, AttributeError):
        raise InvalidArgumentError(
            "the schema is not in Spark's JSON form; pass StructType.jsonValue() or DDL such as 'order_id string'",
            schema=schema,
        ) from None
    names = [f["name"] for f in struct["fields"]]
    reserved = [n for n in names if n.lower() in RESERVED]
    if reserved:
        raise InvalidArgumentError(
            f"columns {reserved} have names that every queue uses itself ({', '.join(sorted(RESERVED))}); rename them",
            columns=reserved,
        )
    for column in key:
        if column not in names:
            raise InvalidArgumentError(
                f"key column {column!r} is not in the schema; its columns are {names}", key=column, columns=names
            )
        type_ = next(f["type"] for f in struct["fields"] if f["name"] == column)
        if not is_hashable(type_):
            raise InvalidArgumentError(
                f"key column {column!r} holds a map, which Spark cannot hash; choose another key", key=column
            )
    if len(set(key)) != len(key):
        raise InvalidArgumentError(f"the key names a column twice: {list(key)}", key=list(key))
    return struct


def new_columns(schema: str | Struct, key: Sequence[str] = ()) -> Struct:
    """As `payload_schema`, for columns that a queue does not have yet.

    Raises
    ------
    InvalidArgumentError
        Also if a name has control characters, which a terminal may obey, or a column is nested more than `MAX_NEW_DEPTH` levels deep. Queues
        of earlier releases may have such columns.
    """
    struct = payload_schema(schema, key, MAX_NEW_DEPTH)
    for name in _names(struct):
        if any(unicodedata.category(c) == "Cc" for c in name):
            raise InvalidArgumentError(f"column name {name!r} has control characters; choose another name", column=name)
    return struct


def _names(type_: Any) -> Iterator[str]:
    """Of a type's fields, at any depth."""
    if isinstance(type_, dict):
        for field in type_.get("fields", ()):
            yield field["name"]
            yield from _names(field["type"])
        for part in ("elementType", "keyType", "valueType"):
            yield from _names(type_.get(part))


def normalized(struct: Struct) -> Struct:
    """Each column nullable and without metadata.

    Raises
    ------
    InvalidArgumentError
        If a column's name or type cannot be kept in a Delta table as this package writes it.
    """
    return _normalized_struct(struct, (), 1, MAX_DEPTH)


def is_readable_as(schema: Struct, added: Collection[str], payload: Struct) -> bool:
    """Whether messages of a queue can be read as this payload: it lacks at most columns that the queue `added` later. The order does not matter."""
    there, read = ({field["name"]: field["type"] for field in struct["fields"]} for struct in (schema, payload))
    return all(there.get(name) == type_ for name, type_ in read.items()) and there.keys() - read.keys() <= set(added)


def is_hashable(type_: Any) -> bool:
    """Whether Spark's ``xxhash64`` takes values of this type."""
    if not isinstance(type_, dict):
        return True
    if type_["type"] == "struct":
        return all(is_hashable(f["type"]) for f in type_["fields"])
    return type_["type"] == "array" and is_hashable(type_["elementType"])


def check_same_columns(
    expected: Struct,
    given: Struct,
    what: str,
    where: str,
    next_step: str = "Select and cast the columns of the queue",
    *,
    may_lack: Collection[str] = (),
    may_add: Collection[str] = (),
) -> None:
    """Compare by name and type; neither the order of columns nor nullability matters.

    Parameters
    ----------
    what, where : str
        Who has the given columns, and who has the expected ones.
    may_lack, may_add : collection of str
        Of the expected columns those that need not be given, and of the given ones those that need not be expected.
    next_step : str
        What somebody does about it.

    Raises
    ------
    SchemaMismatchError
        Naming each missing, extra and differently typed column.
    """
    want = {f["name"]: f["type"] for f in expected["fields"]}
    have = {f["name"]: f["type"] for f in stripped(given)["fields"]}
    faults = [f"missing {n} {type_name(t)}" for n, t in want.items() if n not in have and n not in may_lack]
    faults += [f"extra {n} {type_name(t)}" for n, t in have.items() if n not in want and n not in may_add]
    faults += [
        f"{n} is {type_name(have[n])}, not {type_name(t)}" for n, t in want.items() if n in have and have[n] != t
    ]
    if len(given["fields"]) != len(have):
        faults.append("a column name occurs twice")
    if faults:
        raise SchemaMismatchError(
            f"{what} does not have the columns of {where}: {'; '.join(faults)}. {next_step}",
            faults="; ".join(faults),
            where=where,
        )


def type_name(type_: Any) -> str:
    """The type as Spark's DDL writes it; the name of a field that is no plain word is quoted."""
    return _ddl(type_, str, _field_name)


def sql_type(type_: Any) -> str:
    """The type for a cast, as SQL reads it in any session: there `timestamp` alone may mean another type, and a plain word may be a reserved one."""
    return _ddl(type_, lambda plain: "timestamp_ltz" if plain == "timestamp" else str(plain), quoted)


def _ddl(type_: Any, plain: Callable[[Any], str], field_name: Callable[[str], str]) -> str:
    """The type as DDL; the two functions write a type without parts, and the name of a field."""

    def written(one: Any) -> str:
        if not isinstance(one, dict) or one.get("type") not in ("array", "map", "struct"):
            return plain(one)
        if one["type"] == "array":
            return f"array<{written(one['elementType'])}>"
        if one["type"] == "map":
            return f"map<{written(one['keyType'])},{written(one['valueType'])}>"
        return "struct<" + ",".join(f"{field_name(f['name'])}:{written(f['type'])}" for f in one["fields"]) + ">"

    return written(type_)


def _field_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """How SQL writes exactly this name, whatever characters the name contains."""
    return "`" + name.replace("`", "``") + "`"


def types_of(struct: Struct, columns: Sequence[str]) -> list[Any]:
    """The types of these columns, which are there."""
    types = {field["name"]: field["type"] for field in struct["fields"]}
    return [types[name] for name in columns]


def with_columns(struct: Struct, *more: tuple[str, str]) -> Struct:
    """`struct` followed by further nullable columns (name, type)."""
    extra = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in more]
    return {"type": "struct", "fields": [*struct["fields"], *extra]}


def message_schema(payload: Struct) -> Struct:
    """The payload's columns, then `MESSAGE_COLUMNS`: what the source delivers."""
    return {"type": "struct", "fields": [*payload["fields"], *MESSAGE_COLUMNS["fields"]]}


def payload_of(messages: Struct) -> Struct:
    """The payload of what the source delivers."""
    return {**messages, "fields": messages["fields"][: -len(MESSAGE_COLUMNS["fields"])]}


def _normalized_struct(struct: Struct, path: tuple[str, ...], depth: int, max_depth: int) -> Struct:
    if not struct["fields"]:
        raise InvalidArgumentError(f"column {'.'.join(path)} is a struct without fields", column=".".join(path))
    names = [f["name"] for f in struct["fields"]]
    folded = [n.lower() for n in names]
    twice = sorted({n for n in folded if folded.count(n) > 1})
    if twice:
        raise InvalidArgumentError(f"column names occur twice (case does not count): {twice}", columns=twice)
    for name in names:
        if not name or any(c in " ,;{}()\n\t=" for c in name):
            raise InvalidArgumentError(
                f"column name {name!r}: Delta tables have no names with spaces or any of ,;{{}}()=", column=name
            )
    fields = []
    for field in struct["fields"]:
        where = (*path, field["name"])
        if (field.get("metadata") or {}).get("__COLLATIONS"):
            raise InvalidArgumentError(
                f"column {'.'.join(where)} has a collation; equal keys could then have different hashes. Use a plain string",
                column=".".join(where),
            )
        fields.append(
            {
                "name": field["name"],
                "type": _normalized_type(field["type"], where, depth, max_depth),
                "nullable": True,
                "metadata": {},
            }
        )
    return {"type": "struct", "fields": fields}


def _normalized_type(type_: Any, path: tuple[str, ...], depth: int, max_depth: int) -> Any:
    if isinstance(type_, dict):
        if depth == max_depth:
            raise InvalidArgumentError(
                f"column {path[0]} is nested more than {max_depth} levels deep; put what is inside into a text or other columns",
                column=path[0],
            )
        kind = type_.get("type")
        if kind == "struct":
            return _normalized_struct(type_, path, depth + 1, max_depth)
        if kind == "array":
            element = _normalized_type(type_["elementType"], path, depth + 1, max_depth)
            return {"type": "array", "elementType": element, "containsNull": True}
        if kind == "map":
            return {
                "type": "map",
                "keyType": _normalized_type(type_["keyType"], path, depth + 1, max_depth),
                "valueType": _normalized_type(type_["valueType"], path, depth + 1, max_depth),
                "valueContainsNull": True,
            }
    elif type_ in _ATOMIC:
        return type_
    elif isinstance(type_, str) and (digits := _DECIMAL.fullmatch(type_)):
        precision, scale = map(int, digits.groups())
        if 1 <= precision <= 38 and scale <= precision:
            return f"decimal({precision},{scale})"
    raise InvalidArgumentError(
        f"column {'.'.join(path)}: type {type_name(type_)} cannot be kept; use one of "
        f"{', '.join(sorted(_ATOMIC))}, decimal (up to 38 digits), array, map or struct of these",
        column=".".join(path),
    )


def stripped(struct: Struct) -> Struct:
    """Every column nullable, no metadata, nothing checked."""

    def strip(type_: Any) -> Any:
        if not isinstance(type_, dict):
            return type_.replace(" ", "") if isinstance(type_, str) else type_
        if type_["type"] == "struct":
            return stripped(type_)
        if type_["type"] == "array":
            return {"type": "array", "elementType": strip(type_["elementType"]), "containsNull": True}
        if type_["type"] == "map":
            key, value = strip(type_["keyType"]), strip(type_["valueType"])
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        return type_

    return {
        "type": "struct",
        "fields": [
            {"name": f["name"], "type": strip(f["type"]), "nullable": True, "metadata": {}} for f in struct["fields"]
        ],
    }


def forbids_nulls_inside(type_: Any) -> bool:
    """Whether a field of a struct, an element of an array or a value of a map in this type must not be null."""
    if not isinstance(type_, dict):
        return False
    if type_["type"] == "struct":
        return any(not field["nullable"] or forbids_nulls_inside(field["type"]) for field in type_["fields"])
    if type_["type"] == "array":
        return not type_["containsNull"] or forbids_nulls_inside(type_["elementType"])
    parts = [type_[part] for part in ("keyType", "valueType") if part in type_]
    return not type_.get("valueContainsNull", True) or any(map(forbids_nulls_inside, parts))


def to_json(struct: Struct) -> str:
    return json.dumps(struct, separators=(",", ":"))
