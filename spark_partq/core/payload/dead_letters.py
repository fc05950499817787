"""What a dead-message queue holds: the message as it was, where it came from, and why it is there."""

from __future__ import annotations

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.schema import Struct

ORIGIN: Struct = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (
            ("origin_queue", "string"),
            ("origin_partition", "integer"),
            ("origin_offset", "long"),
            ("origin_enqueued_at", "timestamp"),
            ("origin_group", "string"),
            ("delivery_count", "long"),
            ("dead_reason", "string"),
            ("dead_at", "timestamp"),
        )
    ],
}
_NAMES = [field["name"] for field in ORIGIN["fields"]]


def with_origin(payload: Struct) -> Struct:
    """The columns of the dead-message queue of a queue with this payload.

    Raises
    ------
    InvalidArgumentError
        If the payload has one of these names, whatever its case.
    """
    taken = sorted(field["name"] for field in payload["fields"] if field["name"].lower() in _NAMES)
    if taken:
        raise InvalidArgumentError(
            f"a queue with column {', '.join(taken)} can have no dead_letter_queue, because a dead-message queue has columns of that "
            "name itself; rename the column",
            columns=taken,
        )
    return {"type": "struct", "fields": [*payload["fields"], *ORIGIN["fields"]]}


def without_origin(columns: Struct) -> Struct | None:
    """The payload of the queue from which messages came; None if these are not the columns of a dead-message queue."""
    types = {field["name"]: field["type"] for field in columns["fields"]}
    is_one = all(types.get(field["name"]) == field["type"] for field in ORIGIN["fields"])
    return {"type": "struct", "fields": [f for f in columns["fields"] if f["name"] not in _NAMES]} if is_one else None
