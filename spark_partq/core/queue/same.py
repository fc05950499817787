"""Whether an existing queue is the one that a caller wants to create."""

from __future__ import annotations

from spark_partq.core.payload.schema import is_readable_as, type_name
from spark_partq.core.queue.state import QueueState


def differences(there: QueueState, wanted: QueueState) -> list[str]:
    """How a queue differs from the one that a caller would create, in words for people; empty if it does not."""
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
    """The difference of the columns. The caller may leave out columns that were added later."""
    if is_readable_as(there.schema, there.added, wanted.schema):
        return []
    return [("schema", type_name(there.schema)[len("struct<") : -1], type_name(wanted.schema)[len("struct<") : -1])]


def _settings(there: QueueState, wanted: QueueState) -> list[tuple[str, object, object]]:
    settings, others = there.settings.model_dump(), wanted.settings.model_dump()
    return [(name, settings[name], others[name]) for name in settings]


def _plain(value: object) -> str:
    return "none" if value in (None, "") else str(value)
