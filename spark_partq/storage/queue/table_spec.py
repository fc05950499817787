"""What the table of a partition is made as."""

from __future__ import annotations

import json
from dataclasses import replace

from spark_partq.core.payload.schema import Struct, to_json, with_columns
from spark_partq.storage.log import LONG_LOG, Metadata


def table_schema(payload: Struct) -> Struct:
    """The payload's columns and those that say which offset a message has."""
    return with_columns(payload, ("_row", "long"), ("base_offset", "long"), ("_enqueued_at", "timestamp"))


def together(known: Struct, wanted: Struct) -> Struct:
    """The columns that a table is known to have, and then those that it lacks: whoever wants fewer comes late."""
    fields = {field["name"]: field for field in wanted["fields"]}
    return {**known, "fields": [fields.pop(field["name"], field) for field in known["fields"]] + list(fields.values())}


def as_asked(known: Metadata | None, vacuum_grace_ms: int, payload: Struct) -> Metadata | None:
    """What a table shall be, that is this now, by the queue's grace and columns."""
    if known is None:
        return None
    schema = together(json.loads(known.schema), table_schema(payload))
    return replace(known, configuration=table_settings(vacuum_grace_ms), schema=to_json(schema))


def table_settings(vacuum_grace_ms: int) -> dict[str, str]:
    """What is removed is remembered until its file may be deleted."""
    hours = -(-vacuum_grace_ms // 3_600_000) + 1
    return {**LONG_LOG, "delta.deletedFileRetentionDuration": f"interval {hours} hours"}
