"""What entries say of a table: what its readers must know, its files, and which command made it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log.entries import Metadata, protocol_of
from tests.storage.log.damage import ADD, INFO, PROTOCOL, REMOVE
from tests.storage.log.tables import entry_path, fresh, handle, made

PLAIN, NTZ = "timestamp", "timestamp_ntz"


def array(type_: Any) -> Any:
    return {"type": "array", "elementType": type_, "containsNull": True}


def of_key(type_: Any) -> Any:
    return {"type": "map", "keyType": type_, "valueType": "long", "valueContainsNull": True}


def of_value(type_: Any) -> Any:
    return {"type": "map", "keyType": "long", "valueType": type_, "valueContainsNull": True}


def struct(type_: Any) -> Any:
    fields = [
        {"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("a", "long"), ("b", type_))
    ]
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize("outer", [array, of_key, of_value, struct])
@pytest.mark.parametrize("inner", [array, of_key, of_value, struct])
def test_a_type_that_not_every_reader_knows(outer: Any, inner: Any) -> None:
    """At any depth. https://github.com/delta-io/delta/blob/master/PROTOCOL.md#timestamp-without-timezone-timestampntz"""
    plain, needs = (protocol_of(Metadata("x", json.dumps(struct(outer(inner(t)))), (), {}, 0)) for t in (PLAIN, NTZ))
    assert plain == PROTOCOL
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    assert needs == {"minReaderVersion": 3, "minWriterVersion": 7, **features}


def test_a_file_of_no_bytes(files: MemoryFiles) -> None:
    made(files)
    for version, actions in enumerate(({"add": {**ADD, "size": 0}}, {"remove": {**REMOVE, "size": 0}}), 1):
        files.put(entry_path(version), f"{INFO}{json.dumps(actions)}\n".encode())
        assert len(fresh(files).files) == (version == 1)


def test_a_removal_that_does_not_say_when(files: MemoryFiles) -> None:
    """Delta's protocol does not require it: the file was removed long ago."""
    made(files)
    removed = {name: value for name, value in REMOVE.items() if name != "deletionTimestamp"}
    files.put(entry_path(1), f"{INFO}{json.dumps({'remove': removed})}\n".encode())
    found = handle(files).log.load(tombstones=True).tombstones
    assert found is not None and [tombstone.deleted_ms for tombstone in found.values()] == [0]


def test_the_first_entry_says_that_the_table_was_created(files: MemoryFiles) -> None:
    """As Delta does, for people who read the history of the table."""
    made(files)
    first = json.loads(files.read(entry_path(0)).splitlines()[0])
    assert first["commitInfo"]["operation"] == "CREATE TABLE"
    created_ms = fresh(files).metadata.created_ms  # type: ignore[union-attr]
    assert created_ms is not None and abs(created_ms - first["commitInfo"]["timestamp"]) < 60_000
