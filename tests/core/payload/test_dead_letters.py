"""The columns of a dead-message queue."""

from __future__ import annotations

from copy import deepcopy

import pytest

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.dead_letters import ORIGIN, with_origin, without_origin
from spark_partq.core.payload.schema import MESSAGE_COLUMNS, message_schema, payload_schema

PAYLOAD = payload_schema("k string, v array<int>")


def test_they_are_those_of_the_queue_and_the_origin() -> None:
    """And back. Columns that only resemble them are a payload of their own."""
    columns = with_origin(PAYLOAD)
    assert columns == payload_schema(
        "k string, v array<int>, origin_queue string, origin_partition int, origin_offset bigint, origin_enqueued_at timestamp, "
        "origin_group string, delivery_count bigint, dead_reason string, dead_at timestamp"
    )
    assert without_origin(columns) == PAYLOAD
    assert without_origin(PAYLOAD) is None and without_origin(payload_schema("v int")) is None
    for name, value in (("name", "other"), ("type", "binary")):
        for at in (-1, -len(ORIGIN["fields"])):
            others = deepcopy(columns)
            others["fields"][at][name] = value
            assert without_origin(others) is None
    assert without_origin({"type": "struct", "fields": columns["fields"][:-1]}) is None


def test_a_payload_with_a_column_of_these_has_none() -> None:
    with pytest.raises(InvalidArgumentError, match="with column Dead_At, origin_queue can have no") as caught:
        with_origin(payload_schema("v int, origin_queue string, Dead_At date"))
    assert caught.value.params["columns"] == "['Dead_At', 'origin_queue']"


def test_what_the_source_delivers() -> None:
    assert message_schema(PAYLOAD) == {"type": "struct", "fields": PAYLOAD["fields"] + MESSAGE_COLUMNS["fields"]}
