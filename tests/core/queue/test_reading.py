"""Whoever reads a damaged fact is told which of its fields cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.reading import check_columns
from spark_partq.core.queue.decide import create
from spark_partq.core.queue.facts import Kind
from spark_partq.core.queue.reading import _FIELDS, check_body
from spark_partq.core.queue.settings import QueueSettings
from tests.core.queue.queues import SCHEMA

LONG = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
FITTING: dict[str, Any] = {
    **create("id", SCHEMA, ["k"], 4, QueueSettings())[0].body,
    **dict.fromkeys(("confirmed", "lost", "start", "end", "deletions", "number", "grace_until_ms", "messages"), 0),
    **dict.fromkeys(("group", "location", "replica_id", "incarnation"), "a"),
    **{"cuts": {"0": 0}, "ends": {"0": 0}, "mode": "live", "columns": [LONG], "key_hash": "xxhash64"},
}
WRONG: list[Any] = [None, True, -2, 2**70, 1.5, "", "a/b", "x" * 20_000, ["gone"], [3], {"0": -1}, {"x": 0}]


def refusals(field: str, check: Callable[[Any], object]) -> list[str]:
    """What is said of the values that a field cannot have."""
    said: list[str] = []
    for value in WRONG:
        try:
            check(value)
        except ValueError as error:
            said.append(str(error))
    assert said, field
    return said


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, known in _FIELDS.items() for field in {**known[0], **known[1]}]
)
def test_a_field_of_a_queue_s_fact(kind: Kind, field: str) -> None:
    body = {name: FITTING[name] for known in _FIELDS[kind] for name in known}
    check_body(kind, body)
    for said in refusals(field, lambda value: check_body(kind, {**body, field: value})):
        assert re.search(rf"\b{field}\b", said), said
    if field in _FIELDS[kind][0]:
        with pytest.raises(ValueError, match=rf"fact {kind} has no {field}"):
            check_body(kind, {name: value for name, value in body.items() if name != field})


@pytest.mark.parametrize("column", sorted(set(vars(GroupFact(""))) - {"kind", "body", "cause", "by"}))
def test_a_column_of_a_group_s_fact(column: str) -> None:
    check_columns(GroupFact("Granted"))
    for said in refusals(column, lambda value: check_columns(GroupFact("Granted", **{column: value}))):
        assert re.search(rf"\b{column}\b", said), said
