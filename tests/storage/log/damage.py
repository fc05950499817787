"""What is damaged in tests, and what must come of it: one clear error that changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest

import spark_partq as partq
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import Add, Conflict, DeltaLog, Remove
from spark_partq.storage.runtime import SYSTEM
from tests.storage.log.tables import everything, handle, made

# What makes an entry one of this package's.
INFO = '{"commitInfo":{"engineInfo":"spark_partq","operation":"WRITE"}}\n'
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {
    "id": "x",
    "schemaString": "{}",
    "partitionColumns": [],
    "format": {"provider": "parquet"},
    "configuration": {},
}
ADD = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, "stats": "{}"}
REMOVE = {"path": "a", "deletionTimestamp": 1, "dataChange": True}
TXN = {"appId": "a", "version": 1}


def refused(act: Callable[[], object], *said: str) -> None:
    """It ends with the one error, which names the table and these things, and tells nobody to delete anything."""
    with pytest.raises(partq.CorruptTableError) as caught:
        act()
    text = str(caught.value)
    assert text.startswith("[CORRUPT_TABLE] ") and "the table" in text and "/store/t" in text
    for pattern in said:
        assert re.search(pattern, text), text
    assert not re.search(r"\bdelete\b", text), text


def refused_by_all(files: MemoryFiles, handles: Iterable[DeltaLog], *said: str) -> None:
    """New handles and old ones refuse to read, to commit and to write checkpoints, and change nothing."""
    before = everything(files)
    for one in (*handles, handle(files)):
        refused(one.refresh, *said)
        refused(one.refresh, *said)  # not only once
        refused(lambda one=one: one.snapshot, *said)
        refused(one.checkpoint, *said)
        with pytest.raises((partq.CorruptTableError, Conflict)):
            one.commit()
    assert everything(files) == before


def busy(files: MemoryFiles) -> DeltaLog:
    """A table whose last entry, version 4, has every action that a later entry has."""
    writer = made(files, 2)
    writer.commit([Add("a b", 10, {"base_offset": "0"}, '{"numRecords":2}'), Add("c", 10, {"base_offset": "2"})])
    removes = [Remove("c", SYSTEM.time_ns() // 1_000_000, 10, {"base_offset": "2"})]
    writer.commit([Add("d", 10, {"base_offset": "2"}, '{"numRecords":1}')], removes, {"next": 3, "other": 1})
    return writer
