"""Whether a queue that is there is the one that somebody wants to create."""

from __future__ import annotations

from spark_partq.core.payload.schema import is_readable_as, type_name
from spark_partq.core.queue.state import QueueState


def differences(there: QueueState, wanted: QueueState) -> list[str]:
    """In what a queue differs from the one that somebody would create, for people; empty if in nothing."""
    found = [
        f"its {what} is {_plain(is_)}, not {_plain(not_)}"
        for what, is_, not_ in (
            *_columns(there, wanted),
            ("key", ", ".join(there.key), ", ".join(wanted.key)),
            ("key_hash", there.key_hash, wanted.key_hash),
            ("partition count", there.configured_partitions, wanted.configured_partitions),
            *_settings(there, wanted),
        )
        if is_ != not_
    ]
    return ["it is being deleted", *found] if there.deleted else found


def _columns(there: QueueState, wanted: QueueState) -> list[tuple[str, object, object]]:
    """Columns that were added later may be left out."""
    if is_readable_as(there.schema, there.added, wanted.schema):
        return []
    return [("schema", type_name(there.schema)[len("struct<") : -1], type_name(wanted.schema)[len("struct<") : -1])]


def _settings(there: QueueState, wanted: QueueState) -> list[tuple[str, object, object]]:
    settings, others = there.settings.model_dump(), wanted.settings.model_dump()
    return [(name, settings[name], others[name]) for name in settings]


def _plain(value: object) -> str:
    return "none" if value in (None, "") else str(value)
