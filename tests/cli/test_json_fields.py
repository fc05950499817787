"""The fields of ``describe-group --json`` are those that the documents list, with the types that they say."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import spark_partq as partq
from tests.cli.outcome import Command
from tests.groups import Consumer
from tests.helpers import ROOT

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "array of strings": (list,),
    "null": (type(None),),
}


def documented() -> dict[str, str]:
    """Each field with its type."""
    text = (
        (ROOT / "docs" / "operations.md").read_text().split("### Fields of describe-group --json")[1].split("\n## ")[0]
    )
    found: dict[str, str] = {}
    for names, types in re.findall(r"^\| (`.+?`) \| ([^|]*) \|", text, re.MULTILINE):
        fields = re.findall(r"`([^`]+)`", names)
        each = types.strip().split(", ")
        found |= dict(zip(fields, each * len(fields) if len(each) == 1 else each, strict=False))
    return found


def fields(of: type, prefix: str = "") -> Iterator[str]:
    nested = {"members": partq.MemberDescription, "partitions": partq.GroupPartition, "flows": partq.FlowDescription}
    for field in dataclasses.fields(of):
        yield f"{prefix}{field.name}"
        if "Description, ..." in str(field.type) or "GroupPartition, ..." in str(field.type):
            yield from fields(nested[field.name], f"{prefix}{field.name}[].")


def values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        at = f"{path}{name}"
        yield at, item
        if isinstance(item, list) and item and isinstance(item[0], dict):
            for one in item:
                yield from values(one, f"{at}[].")


def test_each_field_is_documented() -> None:
    assert set(documented()) == set(fields(partq.GroupDescription))


@pytest.mark.parametrize("state", ["Rebalancing", "Empty", "Dead"])
def test_types(command: Command, store: str, living: Consumer, state: str) -> None:
    """In a group with members and a handoff, in an empty one, and in one that was deleted."""
    if state == "Rebalancing":
        Consumer(store, "b", session_timeout_ms=600_000, pattern=".*")
        living.end_holddown()
    else:
        living.leave()
    if state == "Dead":
        partq.delete_group(store, "g")
    found = json.loads(command("describe-group", "g", "--json").out)
    assert found["state"] == state
    types = documented()
    for path, value in values(found):
        allowed = tuple(t for name in types[path].split(" or ") for t in TYPES[name])
        assert isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)), (path, value)
