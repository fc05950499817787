"""Entries that are damaged or of something else: each is one clear error that changes nothing, and never a wrong table."""

from __future__ import annotations

import json
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import Add, commit, folder, vacuum
from spark_partq.storage.queue.file_index import GrowingIndex, IrregularFiles
from tests.storage.log.damage import ADD, INFO, METADATA, PROTOCOL, REMOVE, TXN, busy, refused, refused_by_all
from tests.storage.log.tables import (
    HINT_PATH,
    checkpoint_path,
    count,
    entries,
    entry_path,
    fresh,
    handle,
    made,
    put_back,
    refreshed,
    spec,
    stored_files,
)


def test_entry_that_is_cut_short(files: MemoryFiles) -> None:
    """At whatever byte."""
    busy(files)
    whole, expected = files.read(entry_path(4)), fresh(files)
    old = MemoryFiles()
    put_back(old, stored_files(files))
    old.delete(entry_path(4))
    for length in range(len(whole)):
        old_handle = handle(old)
        old_handle.refresh()
        part = whole[:length]
        old.put(entry_path(4), part)
        if length == len(whole) - 1:  # only the last line break is missing
            assert fresh(old) == expected
        elif whole[length : length + 1] != b"\n" and part[-1:] != b"\n":
            for one in (handle(old), old_handle):
                refused(one.refresh, r"0004\.json: it is (cut short|empty)")
            assert old.read(entry_path(4)) == part
        old.delete(entry_path(4))


def test_entry_that_is_cut_short_between_two_lines(files: MemoryFiles) -> None:
    """What is left is well-formed, but not the commit that was made."""
    busy(files)
    lines = files.read(entry_path(4)).splitlines(keepends=True)
    for left in range(1, len(lines)):
        files.put(entry_path(4), b"".join(lines[:left]))
        refused(handle(files).refresh, r"0004\.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty|no JSON"),
        (b"hello", "no JSON"),
        (b"\x00" * 200, "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b"PAR1", "no JSON"),
        (INFO.encode() + b'{"txn":{"appId":"a","version":1}},{"txn":{"appId":"b","version":1}}\n', "several actions"),
        (INFO.encode() + b"{}\n", "no action"),
        (INFO.encode() + b"[]\n", "no action"),
        (INFO.encode() + b"7\n", "no action"),
        (INFO.encode() + b'{"txn":{"appId":"a","version":1},"add":{}}\n', "no action"),
        (INFO.encode() + b'{"txn":[]}\n', "'txn' is damaged"),
        (INFO.encode() + b'{"cdc":{"path":"a"}}\n', "the action 'cdc'"),
        (INFO.encode() + b'{"domainMetadata":{"domain":"a"}}\n', "the action 'domainMetadata'"),
        (INFO.encode() + b'{"\xc3\xa4":{}}\n', "the action 'ä'"),
    ],
)
def test_entry_of_something_else(files: MemoryFiles, content: bytes, reason: str) -> None:
    """Bad input: an entry that holds none of the actions of this package."""
    old = made(files, 2)
    files.put(entry_path(3), content)
    refused_by_all(files, [old], rf"0003\.json: .*{reason}")


@pytest.mark.parametrize(
    ("action", "body", "reason"),
    [
        (
            "protocol",
            {**PROTOCOL, "minReaderVersion": 3, "readerFeatures": ["deletionVectors"]},
            "features deletionVectors",
        ),
        ("protocol", {**PROTOCOL, "minWriterVersion": 7, "writerFeatures": ["b", "a"]}, "features a, b"),
        ("protocol", {**PROTOCOL, "minReaderVersion": 3}, "reader version 3 and writer version 2"),
        ("protocol", {**PROTOCOL, "minWriterVersion": 7}, "reader version 1 and writer version 7"),
        ("protocol", {**PROTOCOL, "readerFeatures": 5}, "'protocol' is damaged"),
        ("protocol", {**PROTOCOL, "minReaderVersion": "one"}, "'protocol' is damaged"),
        ("protocol", {**PROTOCOL, "minReaderVersion": None}, "'protocol' is damaged"),
        ("protocol", {**PROTOCOL, "minReaderVersion": float("nan")}, "'protocol' is damaged"),
        ("protocol", {}, "'protocol' is damaged"),
        ("metaData", {**METADATA, "id": 5}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "schemaString": None}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "schemaString": "no JSON"}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "schemaString": "[" * 100_000}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "partitionColumns": 5}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "partitionColumns": [5]}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "configuration": [5]}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "format": "parquet"}, "'metaData' is damaged"),
        ("metaData", {**METADATA, "format": {"provider": "orc"}}, "files are orc"),
        ("metaData", {**METADATA, "configuration": {"delta.columnMapping.mode": "name"}}, "column mapping"),
        ("metaData", METADATA, "gives the table another id"),
        ("add", {**ADD, "deletionVector": {"storageType": "u"}}, "deletion vector"),
        ("remove", {**REMOVE, "deletionVector": {"storageType": "u"}}, "deletion vector"),
        ("add", {**ADD, "path": None}, "'add' is damaged"),
        ("add", {**ADD, "path": 5}, "'add' is damaged"),
        ("add", {**ADD, "size": "1"}, "'add' is damaged"),
        ("add", {**ADD, "size": 1.5}, "'add' is damaged"),
        ("add", {**ADD, "size": True}, "'add' is damaged"),
        ("add", {**ADD, "modificationTime": None}, "'add' is damaged"),
        ("add", {**ADD, "partitionValues": 5}, "'add' is damaged"),
        ("add", {**ADD, "partitionValues": ["a"]}, "'add' is damaged"),
        ("add", {**ADD, "partitionValues": None}, "'add' is damaged"),
        ("add", {}, "'add' is damaged"),
        ("remove", {**REMOVE, "path": []}, "'remove' is damaged"),
        ("remove", {**REMOVE, "deletionTimestamp": "1"}, "'remove' is damaged"),
        ("remove", {**REMOVE, "size": "1"}, "'remove' is damaged"),
        ("txn", {**TXN, "version": "1"}, "'txn' is damaged"),
        ("txn", {**TXN, "version": 1e300}, "'txn' is damaged"),
        ("txn", {**TXN, "version": True}, "'txn' is damaged"),
        ("txn", {**TXN, "appId": None}, "'txn' is damaged"),
        ("txn", {**TXN, "lastUpdated": "now"}, "'txn' is damaged"),
    ],
)
def test_action_that_is_damaged_or_foreign(files: MemoryFiles, action: str, body: dict[str, Any], reason: str) -> None:
    """Bad input: fields of another type, and features that this package does not handle."""
    old = made(files, 2)
    files.put(entry_path(3), f"{INFO}{json.dumps({action: body})}\n".encode())
    refused_by_all(files, [old], rf"0003\.json: .*{reason}")


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"add":['])
def test_deep_nesting(files: MemoryFiles, opening: str) -> None:
    """100,000 levels end no process."""
    old = made(files, 2)
    files.put(entry_path(3), f"{INFO}{opening * 100_000}".encode())
    refused_by_all(files, [old], r"0003\.json: it is cut short or is no JSON")


def test_number_of_many_digits(files: MemoryFiles) -> None:
    old = made(files, 2)
    files.put(entry_path(3), f'{INFO}{{"txn":{{"appId":"a","version":{"9" * 5000}}}}}\n'.encode())
    refused_by_all(files, [old], r"0003\.json: ")


def test_endless_number(files: MemoryFiles) -> None:
    old = made(files, 2)
    files.put(entry_path(3), f'{INFO}{{"protocol":{{"minReaderVersion":1e999,"minWriterVersion":2}}}}\n'.encode())
    refused_by_all(files, [old], r"0003\.json: its action 'protocol' is damaged")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("add", {**ADD, "stats": 5}),
        ("add", {**ADD, "size": 10**30}),
        ("add", {**ADD, "partitionValues": {"base_offset": 5}}),
        ("add", {**ADD, "path": "\ud800"}),
        ("txn", {**TXN, "version": 10**30}),
        ("txn", {**TXN, "appId": "\ud800"}),
        ("remove", {**REMOVE, "deletionTimestamp": 10**15, "size": 1, "partitionValues": ["a"]}),
        ("remove", {**REMOVE, "deletionTimestamp": 10**30}),
        ("metaData", {**METADATA, "createdTime": "now"}),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[-40:],
)
def test_action_that_no_checkpoint_can_hold(files: MemoryFiles, action: str, body: dict[str, Any]) -> None:
    """Bad input: it is refused at once, or else checkpoints are written all the same; no other error comes up later."""
    old = made(files, 2)
    table_id = old.snapshot.metadata
    if action == "metaData" and table_id is not None:
        body = {**body, "id": table_id.id}
    files.put(entry_path(3), f"{INFO}{json.dumps({action: body})}\n".encode())
    for one in (old, handle(files)):
        try:
            one.checkpoint()
        except partq.CorruptTableError:
            refused(one.refresh, r"0003\.json: .*damaged")
        else:
            assert fresh(files).base == 3


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "5",
        "[]",
        "{}",
        '{"numRecords":"many"}',
        '{"numRecords":null}',
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"numRecords":1e999}'),
        pytest.param('{"numRecords":1' + "0" * 30 + "}"),
    ],
)
def test_statistics_that_tell_no_row_count(stats: str | None) -> None:
    """Bad input: a partition's file without a row count is none of the protocol's."""
    values = {"base_offset": "0", "_enqueued_at": "2024-01-01T00:00:00.000000Z"}
    with pytest.raises(IrregularFiles):
        GrowingIndex([Add("a", 1, values, stats)])


@pytest.mark.parametrize(
    "base",
    [
        None,
        "",
        "x",
        "1.5",
        "9" * 5000,
        pytest.param("9" * 30),
    ],
    ids=lambda base: str(base)[:10],
)
def test_offset_that_is_none(base: str | None) -> None:
    values = {"base_offset": base, "_enqueued_at": "2024-01-01T00:00:00.000000Z"}
    with pytest.raises(IrregularFiles):
        GrowingIndex([Add("a", 1, values, '{"numRecords":1}')])


def test_entry_that_is_too_large(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither read nor, by us, written."""
    busy(files)
    old = refreshed(files)
    files.put(entry_path(5), b" " * 3_000)
    monkeypatch.setattr(folder, "MAX_ENTRY_BYTES", 2_999)
    for one in (handle(files), old):
        refused(one.refresh, r"0005\.json: it has 3,000 bytes, more than 2,999")
    files.delete(entry_path(5))
    monkeypatch.setattr(commit, "MAX_ENTRY_BYTES", 100)
    with pytest.raises(partq.CommitFailedError, match="more than the 100 that readers take; nothing was changed"):
        count(refreshed(files))
    assert entries(files)[-1] == 4


def test_checkpoint_that_is_too_large(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(files)
    refreshed(files).checkpoint()
    monkeypatch.setattr(folder, "MAX_BYTES", 99)
    refused(handle(files).refresh, r"0004\.checkpoint\.parquet: it has [\d,]+ bytes, more than 99")


def test_hint_that_is_too_large(files: MemoryFiles) -> None:
    """It is as good as none."""
    busy(files)
    refreshed(files).checkpoint()
    expected = fresh(files)
    files.put(HINT_PATH, files.read(HINT_PATH) + b" " * folder.MAX_HINT_BYTES)
    assert handle(files).log.hint() is None
    assert fresh(files) == expected


@pytest.mark.parametrize("maintain", ["checkpoint", "vacuum"])
def test_maintenance_of_a_damaged_table(files: MemoryFiles, maintain: str) -> None:
    """A warm handle need not read what is damaged to commit; where it must, it says so as always."""
    old = made(files, 2)
    old.checkpoint()
    count(old)
    whole = files.read(checkpoint_path(2))
    files.put(checkpoint_path(2), whole[:-10])
    act = old.checkpoint if maintain == "checkpoint" else lambda: vacuum(old, 0)
    refused(act, r"0002\.checkpoint\.parquet")


def test_made_by_this_package(files: MemoryFiles) -> None:
    """The actions of the tests above are such as are read when nothing is wrong with them."""
    made(files, 2)
    lines = [{"add": {**ADD, "path": "b"}}, {"remove": REMOVE}, {"txn": TXN}, {"protocol": PROTOCOL}]
    files.put(entry_path(3), (INFO + "".join(f"{json.dumps(line)}\n" for line in lines)).encode())
    found = fresh(files)
    assert found.version == 3 and list(found.files) == ["b"] and found.transactions["a"].version == 1
    assert spec().configuration["delta.enableExpiredLogCleanup"] == "true"
