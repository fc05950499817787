"""Logs that are damaged, foreign or put back: each is one clear error that changes nothing, and never a wrong table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.storage.files import Files, MemoryFiles, open_files
from spark_partq.storage.log import Add, Conflict, DeltaLog, Remove, Snapshot, table
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.queue.file_index import GrowingIndex, IrregularFiles
from spark_partq.storage.runtime import SYSTEM
from tests.storage.log.tables import (
    FOLDER,
    HINT_PATH,
    HOUR_MS,
    Watched,
    age,
    checkpoint_path,
    count,
    entry_path,
    everything,
    fresh,
    handle,
    made,
    put_back,
    spec,
    stored_files,
)

# What makes an entry one of this package's.
INFO = '{"commitInfo":{"engineInfo":"spark_partq","operation":"WRITE"}}\n'
YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def always_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is one after which the handle asks whether it was left behind."""
    monkeypatch.setattr(table, "_CHECK_EVERY_S", -1.0)


def refused(look: Callable[[], object], *said: str) -> None:
    """It ends with the one error, which names the table and these things, and tells nobody to delete anything."""
    with pytest.raises(partq.CorruptTableError) as caught:
        look()
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


# ---- entries
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


@pytest.mark.parametrize("maintain", ["checkpoint", "vacuum"])
def test_maintenance_of_a_damaged_table(files: MemoryFiles, maintain: str) -> None:
    """A warm handle need not read what is damaged to commit; where it must, it says so as always."""
    old = made(files, 2)
    old.checkpoint()
    count(old)
    whole = files.read(checkpoint_path(2))
    files.put(checkpoint_path(2), whole[:-10])
    act = old.checkpoint if maintain == "checkpoint" else lambda: old.vacuum(0)
    refused(act, r"0002\.checkpoint\.parquet")


# ---- versions that are missing or other ones
def test_missing_entry(files: MemoryFiles, always_checks: None) -> None:
    """A gap in front of an entry: for a new handle, and for an old one when it checks."""
    old = made(files, 2)
    count(handle(files), 3)
    files.delete(entry_path(3))
    refused_by_all(files, [old], "version 3 is missing, though there is version 4")


def test_missing_entry_behind_a_checkpoint(files: MemoryFiles, always_checks: None) -> None:
    """The same for a table with a checkpoint: the old handle must not commit into the gap."""
    old = made(files, 2)
    old.checkpoint()
    count(handle(files), 3)
    files.delete(entry_path(3))
    refused_by_all(files, [old], "version 3 is missing, though there is version 4")


def test_first_entries_are_missing(files: MemoryFiles) -> None:
    made(files, 4)
    for version in range(3):
        files.delete(entry_path(version))
    refused_by_all(files, [], "version 0 is missing, though there is version 3")


def test_first_entry_makes_no_table(files: MemoryFiles) -> None:
    """The first entry of a log has the table's metadata and protocol."""
    for content in (INFO, INFO + json.dumps({"protocol": PROTOCOL}), INFO + json.dumps({"metaData": METADATA})):
        files.put(entry_path(0), content.encode())
        refused_by_all(files, [], r"0000\.json: the table's first entry has no protocol and metadata")


@pytest.mark.parametrize("is_local", [True, False])
def test_two_entries_of_one_version(files: MemoryFiles, is_local: bool) -> None:
    """Where two commits had one number, whoever read the one notices when he meets what follows the other."""
    made(files, 2)
    twin = MemoryFiles()
    put_back(twin, stored_files(files))
    count(handle(files))
    old = handle(Watched(files, is_local=is_local))
    old.refresh()
    count(handle(twin))
    files.put(entry_path(3), twin.read(entry_path(3)))
    if is_local:
        refused(old.refresh, "another version 3 than was read before")
    count(handle(files))
    if not is_local:
        refused(old.refresh, "another version 4 than was read before")
    assert fresh(files).version == 4


@pytest.mark.parametrize("versions", [0, 1, 2, 5])
@pytest.mark.parametrize("is_local", [True, False])
def test_table_made_anew(files: MemoryFiles, always_checks: None, versions: int, is_local: bool) -> None:
    """Another table of the same name is not taken for the one before, whether it is shorter, as long or longer."""
    made(files, 2)
    old = handle(Watched(files, is_local=is_local))
    old.refresh()
    files.delete_folder(FOLDER)
    made(files, versions)
    if not is_local and versions == 2:
        count(handle(files))  # what is replaced by as many versions shows there with the next one
    before = everything(files)
    for _ in range(2):
        with pytest.raises(partq.CorruptTableError, match=r"the table at /store/t (is another table|went back)"):
            old.refresh()
    assert everything(files) == before


def test_table_deleted(files: MemoryFiles) -> None:
    old = made(files, 2)
    files.delete_folder(FOLDER)
    for one in (old, handle(files)):
        with pytest.raises(partq.CorruptTableError, match="the table has no Delta log at /store/t; it was removed"):
            one.refresh()
    assert everything(files) == {}


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("since", [0, 2, 3, 5])
def test_older_state_put_back(files: MemoryFiles, always_checks: None, is_local: bool, since: int) -> None:
    """A backup under a running handle: noticed at the next look, or, if as much was written since, from what follows."""
    made(files, 2)
    backup = stored_files(files)
    count(handle(files), 3)
    old = handle(Watched(files, is_local=is_local))
    assert old.snapshot.version == 5
    put_back(files, backup)
    count(handle(files), since)
    if not is_local and since == 3:
        count(handle(files))
    with pytest.raises(partq.CorruptTableError, match=r"the table at /store/t (went back|has another version)"):
        old.refresh()
    assert fresh(files).version == 2 + since + (not is_local and since == 3)


# ---- checkpoints
def test_checkpoint_that_is_cut_short(files: MemoryFiles) -> None:
    writer = busy(files)
    writer.checkpoint()
    whole = files.read(checkpoint_path(4))
    for length in [*range(0, len(whole), 97), *range(len(whole) - 20, len(whole))]:
        files.put(checkpoint_path(4), whole[:length])
        refused(handle(files).refresh, r"0004\.checkpoint\.parquet: it is cut short or damaged")
        assert files.read(checkpoint_path(4)) == whole[:length]
    refused_by_all(files, [], r"0004\.checkpoint\.parquet: it is cut short or damaged")
    files.put(checkpoint_path(4), whole)
    assert fresh(files).version == 4


def test_checkpoint_of_another_version(files: MemoryFiles) -> None:
    """A checkpoint under a wrong name."""
    writer = busy(files)
    writer.checkpoint()
    files.put(checkpoint_path(3), files.read(checkpoint_path(4)))
    files.delete(checkpoint_path(4))
    refused_by_all(files, [], r"0003\.checkpoint\.parquet: it was written for version 4")


def rewritten(files: MemoryFiles, change: Callable[[pa.Table], pa.Table]) -> None:
    whole = pq.read_table(pa.BufferReader(files.read(checkpoint_path(4))))
    sink = pa.BufferOutputStream()
    pq.write_table(change(whole), sink)
    files.put(checkpoint_path(4), sink.getvalue().to_pybytes())


def _without(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(whole: pa.Table) -> pa.Table:
        at = whole.schema.get_field_index(name)
        return whole.set_column(at, whole.schema.field(name), pa.nulls(whole.num_rows, whole.schema.field(name).type))

    return change


def _with(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda whole: whole.append_column(name, pa.array([{"path": "x"}] + [None] * (whole.num_rows - 1)))


def _with_deletion_vector(whole: pa.Table) -> pa.Table:
    rows = whole["add"].to_pylist()
    live = [{**row, "partitionValues": None, "deletionVector": {"storageType": "u"}} if row else None for row in rows]
    return whole.set_column(whole.schema.get_field_index("add"), "add", pa.array(live))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without("protocol"), "it has 0 protocols and 1 table metadata"),
        (_without("metaData"), "it has 1 protocols and 0 table metadata"),
        (lambda whole: pa.concat_tables([whole, whole]), "it has 2 protocols and 2 table metadata"),
        (lambda whole: whole.drop_columns(["protocol"]), "it has no protocol, metadata or files"),
        (lambda whole: whole.drop_columns(["add"]), "it has no protocol, metadata or files"),
        (lambda whole: whole.slice(0, 0), "it has 0 protocols and 0 table metadata"),
        (lambda whole: pa.concat_tables([whole, whole.filter(whole["add"].is_valid())]), "it names a file twice"),
        (_with("sidecar"), "it has the actions sidecar"),
        (_with("checkpointMetadata"), "it has the actions checkpointMetadata"),
        (_with("domainMetadata"), "it has the actions domainMetadata"),
        (_with_deletion_vector, "deletion vector"),
        (lambda _: pa.table({"n": [1, 2]}), "it has no protocol, metadata or files"),
    ],
)
def test_checkpoint_of_something_else(files: MemoryFiles, change: Callable[[pa.Table], pa.Table], reason: str) -> None:
    """Bad input: whole Parquet files that are no checkpoints of this package."""
    busy(files).checkpoint()
    rewritten(files, change)
    refused_by_all(files, [], rf"0004\.checkpoint\.parquet: .*{reason}")


def test_checkpoint_that_names_a_file_twice(files: MemoryFiles) -> None:
    """Also by two spellings of its name."""
    writer = busy(files)
    snapshot = writer.log.load(tombstones=True)
    snapshot.files["x"] = next(iter(snapshot.files.values()))
    files.put(checkpoint_path(4), encode_checkpoint(snapshot)[0])
    refused_by_all(files, [], r"0004\.checkpoint\.parquet: it names a file twice")


@pytest.mark.parametrize(
    "name", ["checkpoint.{}.json", "checkpoint.{}.parquet", "checkpoint.0000000001.0000000002.parquet"]
)
def test_checkpoint_of_another_kind(files: MemoryFiles, name: str) -> None:
    """Version 2 checkpoints and those of several parts are not read; they are named where nothing else tells the table."""
    made(files, 4)
    path = f"{FOLDER}/_delta_log/{3:020d}.{name.format('0f6b7c1e-16b9-4a3d-8ed0-1f54ae9c2f0a')}"
    files.put(path, b"{}")
    assert fresh(files).version == 4  # the entries tell all
    for version in range(3):
        files.delete(entry_path(version))
    refused_by_all(files, [], re.escape(path.rpartition("/")[2]), "a kind that spark_partq does not write")


# ---- other writers
def test_commit_of_another_writer(store: str) -> None:
    """What delta-rs committed is named, with the program and the operation."""
    disk = open_files(store, {})
    made(disk, 1)
    old = handle(disk)
    old.refresh()
    write_deltalake(Path(store) / FOLDER, pa.table({"n": [1], "base_offset": [1]}), mode="append")
    for one in (old, handle(disk)):
        refused(
            one.refresh, r"0002\.json: it was committed by delta-rs.* \(WRITE\), and only spark_partq may write here"
        )
    DeltaTable(Path(store) / FOLDER).create_checkpoint()
    assert handle(disk).snapshot.version == 2  # only the entry tells who wrote it


def test_metadata_of_another_writer(store: str) -> None:
    """A feature that another writer has switched on."""
    disk = open_files(store, {})
    made(disk, 1)
    other = DeltaTable(Path(store) / FOLDER)
    other.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    refused(handle(disk).refresh, r"0002\.json: ")


# ---- clocks
@pytest.mark.parametrize("by_ms", [-YEAR_MS, YEAR_MS])
def test_wrong_clock(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """A process whose clock is wrong, or set back, goes on; what is young by the store's clock stays."""
    writer = made(files, 3)
    wall, seconds = SYSTEM.time_ns, SYSTEM.monotonic_s
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: wall() + by_ms * 1_000_000)
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: seconds() + by_ms / 1000)
    wrong = handle(files)
    for one in (writer, wrong, writer):
        count(one, 2)
        one.checkpoint()
    monkeypatch.undo()
    right = handle(files)
    for one in (right, wrong, writer):
        count(one)
        assert not one.refresh()
    right.checkpoint()
    assert right.log.names().entries == list(range(13))
    assert fresh(files).transactions["next"].version == 12
    age(files, 2 * HOUR_MS)
    count(right)
    right.checkpoint()
    assert right.log.names().entries == [13]


@pytest.mark.parametrize(
    "by_ms",
    [
        -YEAR_MS,
        pytest.param(YEAR_MS),
    ],
)
def test_vacuum_with_a_wrong_clock(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """A file that somebody has just written, and is about to commit, is young whatever the clock of who cleans up says."""
    writer = made(files, 1)
    files.put(f"{FOLDER}/about-to-be-committed", b"x")
    wall = SYSTEM.time_ns
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: wall() + by_ms * 1_000_000)
    assert writer.vacuum(24 * HOUR_MS) == 0


# ---- anything
def _damaged(whole: bytes, changes: Iterable[tuple[float, str, bytes]]) -> bytes:
    data = bytearray(whole)
    for where, how, new in changes:
        at = int(where * len(data))
        end = at if how == "insert" else at + len(new)
        data[at:end] = b"" if how == "delete" else new
    return bytes(data)


CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["insert", "delete", "replace"]),
        st.binary(min_size=1, max_size=4) | st.sampled_from([b"\n", b"0", b"null", b"{", b'"', b",", b"%"]),
    ),
    min_size=1,
    max_size=4,
)


def _read(files: Files) -> Snapshot | None:
    """The table, or None if it is refused; nothing else may happen."""
    try:
        return fresh(files)
    except partq.CorruptTableError:
        return None


@pytest.fixture(scope="module")
def whole() -> MemoryFiles:
    files = MemoryFiles()
    busy(files)
    return files


def _copy(files: MemoryFiles) -> MemoryFiles:
    copy = MemoryFiles()
    put_back(copy, stored_files(files))
    return copy


@settings(max_examples=300)
@given(changes=CHANGES, version=st.sampled_from([0, 4]))
def test_damaged_entry(whole: MemoryFiles, changes: list[tuple[float, str, bytes]], version: int) -> None:
    """Whatever happened to the bytes of an entry, it is read or refused."""
    files = _copy(whole)
    data = _damaged(files.read(entry_path(version)), changes)
    files.put(entry_path(version), data)
    _read(files)
    assert files.read(entry_path(version)) == data


@settings(max_examples=300)
@given(changes=CHANGES)
def test_damaged_checkpoint(whole: MemoryFiles, changes: list[tuple[float, str, bytes]]) -> None:
    """Whatever happened to the bytes of a checkpoint, it is read or refused."""
    files = _copy(whole)
    handle(files).checkpoint()
    data = _damaged(files.read(checkpoint_path(4)), changes)
    files.put(checkpoint_path(4), data)
    _read(files)
    assert files.read(checkpoint_path(4)) == data


@given(st.binary(max_size=60), st.sampled_from([HINT_PATH, entry_path(5), checkpoint_path(5)]))
def test_any_file(whole: MemoryFiles, data: bytes, path: str) -> None:
    """A file of any content under a name of the log."""
    files = _copy(whole)
    files.put(path, data)
    found = _read(files)
    assert found is None or found.version == 4


def test_made_by_this_package(files: MemoryFiles) -> None:
    """The actions of the tests above are such as are read when nothing is wrong with them."""
    made(files, 2)
    lines = [{"add": {**ADD, "path": "b"}}, {"remove": REMOVE}, {"txn": TXN}, {"protocol": PROTOCOL}]
    files.put(entry_path(3), (INFO + "".join(f"{json.dumps(line)}\n" for line in lines)).encode())
    found = fresh(files)
    assert found.version == 3 and list(found.files) == ["b"] and found.transactions["a"].version == 1
    assert spec().configuration["delta.enableExpiredLogCleanup"] == "true"
