"""The bodies of a queue's facts, read from plain values. A field of a wrong type or outside its range is a `ValueError`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_partq.core import stored
from spark_partq.core.errors import PartqError
from spark_partq.core.payload.keys import DEFAULT_HASH, check_hash
from spark_partq.core.payload.schema import Struct, payload_schema, types_of
from spark_partq.core.queue.facts import MODES, Kind
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.stored import MAX_PARTITIONS

_NUMBERS = range(PARENT, MAX_PARTITIONS)


def _count(value: object, what: str) -> None:
    stored.whole(value, what, 0, MAX_PARTITIONS)


def _offsets(value: object, what: str) -> None:
    stored.offsets_by_partition(value, what, _NUMBERS)


def _mode(value: object, what: str) -> None:
    if value not in MODES:
        raise ValueError(f"there is no {what} {stored.text(value, what)!r}")


def _settings(value: object, what: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    QueueSettings.stored(value)


def _columns(value: object, what: str) -> None:
    _schema({"type": "struct", "fields": value}, what)


def _schema(value: object, what: str, key: Sequence[str] = ()) -> Struct:
    try:
        return payload_schema(value if isinstance(value, dict) else {}, key)
    except PartqError as error:
        raise ValueError(f"{what}: {error.message}") from error
    except RecursionError:
        raise ValueError(f"{what}: it is nested too deeply") from None


# For each kind, the fields that its body must have, and those that it may have. It may have others, which a newer
# program knows.
_Fields = dict[str, Callable[[object, str], object]]
_FORMAT: _Fields = {
    "min_reader": stored.whole,
    "min_writer": stored.whole,
    "features": stored.texts,
    "made_by": stored.text,
}
_FIELDS: dict[Kind, tuple[_Fields, _Fields]] = {
    Kind.QUEUE_CREATED: (
        {
            "queue_id": stored.name,
            "schema": lambda *_: None,
            "key": stored.texts,
            "partitions": _count,
            "settings": _settings,
            **_FORMAT,
        },
        {"key_hash": stored.text},
    ),
    Kind.PARTITIONS_CREATED: ({"partitions": _count}, {}),
    Kind.SCALING_STARTED: ({"partitions": _count, "mode": _mode}, {"confirmed": stored.whole_or_none}),
    Kind.GENERATION_OPENED: ({"partitions": _count, "cuts": _offsets}, {}),
    Kind.PARTITIONS_REMOVED: ({"ends": _offsets, "lost": stored.whole}, {}),
    Kind.STUCK_COPY_STARTED: ({"start": stored.whole}, {}),
    Kind.STUCK_COPIED: ({"end": stored.whole}, {}),
    Kind.GROUP_ATTACHED: ({"group": stored.name, "deletions": stored.whole}, {}),
    Kind.GROUP_DETACHED: ({"group": stored.name, "deletions": stored.whole}, {}),
    Kind.GROUP_RESETTING: ({"group": stored.name, "number": stored.whole}, {}),
    Kind.REPLICA_ADDED: ({"location": stored.text}, {"replica_id": stored.text}),
    Kind.REPLICA_REMOVED: ({"location": stored.text}, {}),
    Kind.QUEUE_FENCED: ({"location": stored.text_or_none}, {}),
    Kind.PROMOTED: ({"incarnation": stored.text, "ends": _offsets}, {}),
    Kind.QUEUE_ALTERED: ({"settings": _settings}, {"grace_until_ms": stored.whole}),
    Kind.COLUMNS_ADDED: ({"columns": _columns}, {}),
    Kind.MESSAGES_DELETED: ({"messages": stored.whole}, {}),
    Kind.FORMAT_RAISED: (_FORMAT, {}),
}


def check_body(kind: Kind, body: Mapping[str, Any]) -> None:
    """Refuse a body in which a field is missing or not what it should be."""
    needed, optional = _FIELDS.get(kind, ({}, {}))
    for name, check in {**needed, **optional}.items():
        if name in body:
            check(body[name], name)
        elif name in needed:
            raise ValueError(f"fact {kind} has no {name}")
    if kind is Kind.QUEUE_CREATED:
        _check_created(body)


def _check_created(body: Mapping[str, Any]) -> None:
    schema = _schema(_schema(body["schema"], "schema"), "key", body["key"])
    try:
        check_hash(body.get("key_hash", DEFAULT_HASH), types_of(schema, body["key"]), body["key"])
    except PartqError as error:
        raise ValueError(error.message) from error
