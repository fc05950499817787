"""Values of a queue's key that people give as text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.schema import Struct, type_name
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.arrow import arrow_schema


def key_value(state: QueueState, name: str, given: object) -> Any:
    """A value of a column of the key, from itself or from text.

    Raises
    ------
    InvalidArgumentError
        If the column is none of the key's, or the value is none of its type.
    """
    if name not in state.key:
        raise InvalidArgumentError(
            f"{name!r} is no column of the key of queue {state.name!r}; its key: {', '.join(state.key) or 'none'}",
            queue=state.name,
            column=name,
        )
    field = next(f for f in state.schema["fields"] if f["name"] == name)
    if _is_of_another_zone(given, field["type"]):
        raise InvalidArgumentError(
            f"{given!r} is no value of column {name!r} of queue {state.name!r}: give a moment of a timestamp with its time zone, as "
            "2026-05-01T12:00:00Z, and of a timestamp_ntz without one",
            queue=state.name,
            column=name,
        )
    column: Struct = {"type": "struct", "fields": [field]}
    try:
        return pa.scalar(_of_type(given, field["type"])).cast(arrow_schema(column).field(0).type).as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(
            f"{given!r} is no value of column {name!r} of queue {state.name!r}, which is a {type_name(field['type'])}",
            queue=state.name,
            column=name,
        ) from None


# By the type of a column, the classes of its values. Any value may be given as text, too.
_CLASSES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (Integral,)),
    **dict.fromkeys(("float", "double"), (Real,)),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), (dt.datetime,)),
    "decimal": (Integral, Decimal),
    "boolean": (bool,),
    "date": (dt.date,),
    "string": (),
    "binary": (bytes, bytearray),
}


def _of_type(given: Any, type_: Any) -> Any:
    """The value, if it is of the class of the column's type; another class would be rounded, cut or otherwise become another key.

    Raises
    ------
    TypeError
    """
    if given is None:
        return None
    if isinstance(type_, Mapping) and type_["type"] == "struct":
        types = {field["name"]: field["type"] for field in type_["fields"]}
        if not isinstance(given, Mapping) or given.keys() != types.keys():
            raise TypeError(f"it has not the fields {', '.join(types)}")
        return {name: _of_type(given[name], of) for name, of in types.items()}
    if isinstance(type_, Mapping) and type_["type"] == "array":
        if not isinstance(given, (list, tuple)):
            raise TypeError("it is no list")
        return [_of_type(value, type_["elementType"]) for value in given]
    name = str(type_).partition("(")[0]
    if isinstance(given, str) or name not in _CLASSES:
        return given
    # For Python a truth value is a number, and a moment is a day.
    other = isinstance(given, bool) != (name == "boolean") or (name == "date" and isinstance(given, dt.datetime))
    if other or not isinstance(given, _CLASSES[name]):
        raise TypeError(f"it is a {type(given).__name__}")
    return Decimal(str(given)) if name == "decimal" else given


def _is_of_another_zone(given: object, type_: Any) -> bool:
    """Whether a moment in it has a time zone and should not, or the other way round: nobody knows which moment is meant."""
    if isinstance(given, dt.datetime):
        return {"timestamp": given.tzinfo is None, "timestamp_ntz": given.tzinfo is not None}.get(str(type_), False)
    if isinstance(given, Mapping) and isinstance(type_, Mapping) and "fields" in type_:
        types = {field["name"]: field["type"] for field in type_["fields"]}
        return any(_is_of_another_zone(value, types.get(name)) for name, value in given.items())
    if isinstance(given, (list, tuple)) and isinstance(type_, Mapping):
        return any(_is_of_another_zone(value, type_.get("elementType")) for value in given)
    return False


def key_values(state: QueueState, given: Mapping[str, object]) -> dict[str, Any]:
    """A value of each column of the key; None is null.

    Raises
    ------
    InvalidArgumentError
        As `key_value`, or if a column is missing, or the queue has no key.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"key={given!r} gives no columns with their values, such as {{'customer': 'c-7'}}", queue=state.name
        )
    values = {name: None if value is None else key_value(state, name, value) for name, value in given.items()}
    missing = [name for name in state.key if name not in values]
    if missing or not values:
        raise InvalidArgumentError(
            f"the key of queue {state.name!r} has the columns {', '.join(state.key) or 'none'}; give a value of each"
            if state.key
            else f"queue {state.name!r} has no key, so its messages belong to no key",
            queue=state.name,
        )
    return values
