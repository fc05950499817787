"""Decisions that change what a queue was created with. They are made like those of `core.queue.decide`."""

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
    """Those of the settings whose values differ from the queue's."""
    return {name: value for name, value in wanted.items() if getattr(state.settings, name) != value}


def lowers_grace(state: QueueState, wanted: Mapping[str, Any]) -> bool:
    return bool(wanted.get(GRACE, state.settings.vacuum_grace_ms) < state.settings.vacuum_grace_ms)


def alter_settings(state: QueueState, wanted: Mapping[str, Any], store_ms: int) -> Facts:
    """Change settings. Settings that have the wanted value already are left out of the fact. If none is left, there is no fact.

    Parameters
    ----------
    wanted : dict
        Checked settings, by name.
    store_ms : int
        The store's time, milliseconds since 1970. If `vacuum_grace_ms` is lowered, the former value still counts for as long as it
        says: a process that began to write under it relies on it.

    Raises
    ------
    InvalidArgumentError
        If the settings contradict each other after the change.
    """
    changed = changed_settings(state, wanted)
    if not state.usable or state.fenced_by is not None or not changed:
        return ()
    new = state.settings.model_copy(update=changed).check_together().check_columns(state.schema)
    raised = require_features(state, *new.features)
    until = {"grace_until_ms": store_ms + state.settings.vacuum_grace_ms} if lowers_grace(state, changed) else {}
    return [*raised, QueueFact(Kind.QUEUE_ALTERED, {"settings": changed, **until})]


def new_columns(state: QueueState, wanted: Struct) -> list[Any]:
    """Those of the columns that the queue does not have yet.

    Raises
    ------
    SchemaMismatchError
        If the queue has one of them with another type.
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
    """Add columns to a queue. Columns that it has already stay as they are.

    The queue's older messages have null in the new columns. From then on, programs that do not know added columns may not use the
    queue.

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
    """Keep programs away from the queue that do not know these features of the format. No fact if they are kept away already."""
    raised = state.format.with_features(*features)
    return () if raised == state.format else [QueueFact(Kind.FORMAT_RAISED, raised.body())]
