"""Decisions that change what a queue was created with; as those of `core.queue.decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_partq.core import format
from spark_partq.core.errors import SchemaMismatchError
from spark_partq.core.payload.dead_letters import with_origin
from spark_partq.core.payload.schema import Struct, payload_schema, type_name
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.state import QueueState

GRACE = "vacuum_grace_ms"


def changed_settings(state: QueueState, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that are not so yet."""
    return {name: value for name, value in wanted.items() if getattr(state.settings, name) != value}


def lowers_grace(state: QueueState, wanted: Mapping[str, Any]) -> bool:
    return bool(wanted.get(GRACE, state.settings.vacuum_grace_ms) < state.settings.vacuum_grace_ms)


def alter_settings(state: QueueState, wanted: Mapping[str, Any], store_ms: int) -> Facts:
    """Change settings; those that are so already stay out of the fact, and with none left there is none.

    Parameters
    ----------
    wanted : dict
        Checked settings, by name.
    store_ms : int
        The store's time, milliseconds since 1970. While `vacuum_grace_ms` is lowered, the former one still counts for as long as it is:
        who began to write under it relies on it.

    Raises
    ------
    InvalidArgumentError
        If the settings do not go together then.
    """
    changed = changed_settings(state, wanted)
    if not state.usable or state.fenced_by is not None or not changed:
        return ()
    new = state.settings.model_copy(update=changed).check_together().check_columns(state.schema)
    raised = require_features(state, *new.features)
    until = {"grace_until_ms": store_ms + state.settings.vacuum_grace_ms} if lowers_grace(state, changed) else {}
    return [*raised, QueueFact(Kind.QUEUE_ALTERED, {"settings": changed, **until})]


def new_columns(state: QueueState, wanted: Struct) -> list[Any]:
    """Those of the columns that are not there yet.

    Raises
    ------
    SchemaMismatchError
        If one is there, and of another type.
    InvalidArgumentError
        If the queue can have no column of that name.
    """
    there = {column["name"]: column["type"] for column in state.schema["fields"]}
    for column in wanted["fields"]:
        name, type_ = column["name"], column["type"]
        if there.get(name, type_) != type_:
            raise SchemaMismatchError(
                f"queue {state.name!r} has a column {name!r}, which is {type_name(there[name])} and not {type_name(type_)}; choose another name",
                faults=f"{name} is {type_name(there[name])}, not {type_name(type_)}",
                where=f"queue {state.name!r}",
            )
    new = [column for column in wanted["fields"] if column["name"] not in there]
    schema = payload_schema({**state.schema, "fields": [*state.schema["fields"], *new]}, state.key)
    if state.settings.dead_letter_queue is not None:
        with_origin(schema)
    return new


def add_columns(state: QueueState, wanted: Struct) -> Facts:
    """Let a queue have further columns; those that are there already stay as they are.

    Its older messages have null there. Programs that know nothing of that may not use the queue from there on.

    Raises
    ------
    SchemaMismatchError, InvalidArgumentError
        As `new_columns`.
    """
    new = new_columns(state, wanted)
    if not state.usable or state.fenced_by is not None or not new:
        return ()
    return [*require_features(state, format.ADDED_COLUMNS), QueueFact(Kind.COLUMNS_ADDED, {"columns": new})]


def require_features(state: QueueState, *features: str) -> Facts:
    """Keep programs away from the queue that do not know these features of the format, unless they are already."""
    raised = state.format.with_features(*features)
    return () if raised == state.format else [QueueFact(Kind.FORMAT_RAISED, raised.body())]
