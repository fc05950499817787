"""A log names files of its own folder and no others, whoever wrote it."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

import spark_partq as partq
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import Add, Remove, vacuum
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.log.entries import ForeignEntry, file_name
from tests.storage.log.tables import checkpoint_path, entry_path, fresh, handle, made

INFO = '{"commitInfo":{"engineInfo":"spark_partq","operation":"WRITE"}}\n'
ADD = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, "stats": None}
REMOVE = {"deletionTimestamp": 1, "dataChange": True}
EVIL = [
    "..", ".", "", "../x", "../../../x.parquet", "a/../b", "a/b", "/etc/passwd", "a/", "_delta_log/00000000000000000000.json",
    "%2e%2e", "%2e%2e%2fx", "..%2Fx", "a%2Fb", "%2Fetc%2Fpasswd",
    "..\\x", "a\\b", "C:\\x", "%5C%5Chost%5Cx", "a%5cb",
    "a\0b", "a%00b", "%00", "a\nb", "a%0Ab", "a%7f", "%1b[31m",
    "file:x", "file:///x", "s3://bucket/x", "FILE:x", "file%3A%2F%2F%2Fx", "http:x", "data:,x",
    ".hidden", ".x.tmp", "%2ehidden", "a" * 256, "é" * 128,
]  # fmt: skip
PLAIN = [
    "part-0123.parquet",
    "a b",
    "a%20b",
    "a%2520b",
    "é",
    "a..b",
    "a=b",
    "a:b",
    "_x",
    "a" * 255,
    "é" * 127,
    "%252e%252e",
]


@pytest.mark.parametrize("path", PLAIN)
def test_plain_names(path: str) -> None:
    assert "/" not in file_name(path)
    assert file_name(quote(file_name(path))) == file_name(path)


@pytest.mark.parametrize("path", EVIL)
def test_other_names(path: str) -> None:
    with pytest.raises(ForeignEntry, match="no plain name"):
        file_name(path)


@pytest.mark.parametrize("path", EVIL)
@pytest.mark.parametrize("action", ["add", "remove"])
def test_entries(path: str, action: str) -> None:
    """Read on or from the beginning, the table is refused, with the entry's name."""
    files = MemoryFiles()
    made(files, 1)
    old = handle(files)
    old.refresh()
    body = {"path": path, **(ADD if action == "add" else REMOVE)}
    files.put(entry_path(2), f"{INFO}{json.dumps({action: body})}\n".encode())
    for table in (old, handle(files)):
        with pytest.raises(partq.CorruptTableError, match=r"the table at /store/t .*0{19}2\.json: .*no plain name"):
            table.refresh()


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("path", ["../../x", "a/b", "a\0b", "..", ".hidden"])
def test_checkpoints(path: str, removed: bool) -> None:
    """A name that a checkpoint has; of a removed file it matters to who deletes files."""
    files = MemoryFiles()
    table = made(files, 1)
    snapshot = handle(files).log.load(tombstones=True)
    snapshot.tombstones = {path: Remove(path, 1)} if removed else {}
    snapshot.files = {} if removed else {path: Add(path, 1, {})}
    files.put(checkpoint_path(1), encode_checkpoint(snapshot)[0])
    files.delete(entry_path(0))
    with pytest.raises(partq.CorruptTableError, match=r"0{19}1\.checkpoint\.parquet: .*no plain name"):
        vacuum(table, 0) if removed else fresh(files)
