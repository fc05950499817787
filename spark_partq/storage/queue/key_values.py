"""Values of a queue's key that people give as text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.schema import Struct
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
    if _is_of_another_zone(given, next(f["type"] for f in state.schema["fields"] if f["name"] == name)):
        raise InvalidArgumentError(
            f"{given!r} is no value of column {name!r} of queue {state.name!r}: give a moment of a timestamp with its time zone, as "
            "2026-05-01T12:00:00Z, and of a timestamp_ntz without one",
            queue=state.name,
            column=name,
        )
    column: Struct = {"type": "struct", "fields": [f for f in state.schema["fields"] if f["name"] == name]}
    type_ = arrow_schema(column).field(0).type
    try:
        return pa.scalar(given).cast(type_).as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(
            f"{given!r} is no value of column {name!r} of queue {state.name!r}, which is a {type_}",
            queue=state.name,
            column=name,
        ) from None


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
