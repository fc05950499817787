"""Decisions that change what a queue was created with; as those of `core.queue.decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    state.settings.model_copy(update=changed).check_together().check_columns(state.schema)
    until = {"grace_until_ms": store_ms + state.settings.vacuum_grace_ms} if lowers_grace(state, changed) else {}
    return [QueueFact(Kind.QUEUE_ALTERED, {"settings": changed, **until})]
