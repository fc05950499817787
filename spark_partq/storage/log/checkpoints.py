"""A snapshot as one Parquet file, so that a start need not read the whole log (Delta's classic checkpoint)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.storage.arrow import array_of
from spark_partq.storage.log.entries import (
    Add,
    ForeignEntry,
    Remove,
    Transaction,
    check_protocol,
    file_name,
    metadata_of,
    protocol_of,
)
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.parquet import Most, read_within

# From so many values on it pays to use the ways of PyArrow that load pandas, which takes as long as reading a thousand checkpoints.
_LONG = 1_000
_TEXTS = pa.map_(pa.string(), pa.string())
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_TRANSACTION = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXTS),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
    ]
)
_ONCE = "protocol", "metaData"
# Characters that mean only themselves in a URI.
_UNRESERVED = re.compile(r"[A-Za-z0-9._~/-]*")
# In the Parquet file's own metadata: of which version it is, and the token of that version's entry.
_VERSION, _TOKEN = b"partq.version", b"partq.token"


# Of one checkpoint: so many bytes, and so many actions. An action takes some 2,000 bytes of memory.
MAX_BYTES, MAX_ACTIONS = 1 << 30, 1_000_000
# A checkpoint of few bytes has few actions: so many, and one for each so many bytes of the file. No two name the same file, so each takes some
# bytes, however well they are compressed; with the names that this package gives, 40 and more.
_FREE_ACTIONS, _ACTION_BYTES = 50_000, 4
_ENTRIES = 4  # so many values and tags has an action on average
# What it may be decompressed: so many bytes, and so many for each byte of the file.
_FREE_BYTES, _COMPRESSED = 64 << 20, 500


class LastCheckpoint(NamedTuple):
    """The newest checkpoint of a table: of which version it is, and how many actions it holds (0 if that is not known)."""

    version: int
    actions: int = 0


NO_CHECKPOINT = LastCheckpoint(-1)


def most_of(size: int) -> Most:
    """What a checkpoint of so many bytes may hold."""
    actions = min(MAX_ACTIONS, _FREE_ACTIONS + size // _ACTION_BYTES)
    return Most(actions, _ENTRIES * actions, min(MAX_BYTES, _FREE_BYTES + _COMPRESSED * size))


def encode_checkpoint(snapshot: Snapshot) -> tuple[bytes, int]:
    """The file's bytes, and how many actions it holds; `snapshot` has tombstones and metadata."""
    metadata, tombstones = snapshot.metadata, snapshot.tombstones
    if metadata is None or tombstones is None:
        raise ValueError("a checkpoint needs the table's metadata and its tombstones")
    plain = {
        "id": metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": metadata.schema,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": metadata.configuration,
        "createdTime": metadata.created_ms,
    }
    actions = {
        "protocol": array_of([protocol_of(metadata)], _PROTOCOL),
        "metaData": array_of([plain], _METADATA),
        "txn": _transactions_array(snapshot.transactions),
        "add": _adds_array(list(snapshot.files.values())),
        "remove": _removes_array(list(tombstones.values())),
    }
    count = sum(map(len, actions.values()))
    columns, before = {}, 0
    for name, array in actions.items():
        after = count - before - len(array)
        columns[name] = pa.chunked_array([pa.nulls(before, array.type), array, pa.nulls(after, array.type)])
        before += len(array)
    about = {_VERSION: str(snapshot.version), **({_TOKEN: snapshot.token} if snapshot.token else {})}
    table = pa.table(columns).combine_chunks().replace_schema_metadata(about)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue().to_pybytes(), count


def decode_checkpoint(data: bytes, version: int, tombstones: bool, *, only_ours: bool = True) -> Snapshot:
    """The snapshot of a checkpoint file; with `only_ours` it must name no file in another folder than the table's.

    Raises
    ------
    ForeignEntry
        If it is cut short, damaged, of another version, or says what this package does not handle.
    """
    try:
        options = {"pre_buffer": False, "page_checksum_verification": True}
        file = pq.ParquetFile(pa.BufferReader(data), **options)
        about = file.metadata.metadata or {}
        told, token = about.get(_VERSION), about.get(_TOKEN)
        if told is not None and int(told) != version:
            raise ForeignEntry(f"it was written for version {int(told)}")
        columns = _columns(file.schema_arrow, tombstones)
        batches = read_within(data, file, columns, most_of(len(data)), **options)
        return _snapshot(batches, version, tombstones, None if token is None else token.decode(), only_ours)
    except ForeignEntry:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ForeignEntry(f"it is cut short or damaged ({' '.join(str(error).split())})") from None


def _columns(schema: pa.Schema, tombstones: bool) -> list[str]:
    """What is to be read: the parts that are used of what this package knows, and all that it does not know."""
    names = set(schema.names)
    if not {"protocol", "metaData", "add"} <= names:
        raise ForeignEntry("it has no protocol, metadata or files")
    columns = sorted(names - {"metaData", "add", "remove", "commitInfo"})
    wanted = {"metaData": {f.name for f in _METADATA} - {"name", "description"}, "add": {f.name for f in _ADD}}
    if tombstones and "remove" in names:
        wanted["remove"] = {f.name for f in _REMOVE}
    for kind, fields in wanted.items():
        columns += [f"{kind}.{f.name}" for f in schema.field(kind).type if f.name in fields | {"deletionVector"}]
    return columns


def _snapshot(
    batches: Iterable[pa.RecordBatch], version: int, tombstones: bool, token: str | None, only_ours: bool
) -> Snapshot:
    snapshot = Snapshot(version, tombstones={} if tombstones else None, token=token, base=version)
    counts = dict.fromkeys(_ONCE, 0)
    for batch in batches:  # one after another, so that lists of all columns never stand beside what is made of them
        # sidecar, checkpointMetadata: a version 2 checkpoint; domainMetadata: a table feature. Empty columns say nothing.
        unknown = set(batch.schema.names) - {"protocol", "metaData", "txn", "add", "remove"}
        foreign = sorted(name for name in unknown if len(_present(batch, name)))
        if foreign:
            raise ForeignEntry(f"it has the actions {', '.join(foreign)}")
        counts = {name: count + len(_present(batch, name)) for name, count in counts.items()}
        if max(counts.values()) > 1:
            break
        for protocol in _present(batch, "protocol").to_pylist():
            check_protocol(protocol)
        for plain in _present(batch, "metaData").to_pylist():
            plain["configuration"] = dict(plain["configuration"] or ())
            snapshot.metadata = metadata_of(plain)
        _take_in(snapshot, batch, only_ours)
    if set(counts.values()) != {1}:
        protocols, metadatas = counts.values()
        raise ForeignEntry(f"it has {protocols} protocols and {metadatas} table metadata instead of one each")
    return snapshot


def _take_in(snapshot: Snapshot, batch: pa.RecordBatch, only_ours: bool) -> None:
    found = _checked(batch, "txn", _TRANSACTION, "appId", "version")
    txns = _fields(found, "appId", "version", "lastUpdated")
    snapshot.transactions |= {app: Transaction(number, updated) for app, number, updated in txns}
    adds = _checked(batch, "add", _ADD, "path", "size", "modificationTime", "dataChange")
    names = "path", "size", "partitionValues", "stats", "modificationTime", "dataChange", "tags"
    known = len(snapshot.files) + len(adds)
    for path, size, values, stats, modified, change, tags in _fields(adds, *names):
        name = file_name(path, folders=not only_ours)
        snapshot.files[name] = Add(name, size, values or {}, stats, modified, change, tags or None)
    if len(snapshot.files) != known:
        raise ForeignEntry("it names a file twice")
    if snapshot.tombstones is not None:
        removes = _checked(batch, "remove", _REMOVE, "path")
        names = "path", "deletionTimestamp", "size", "partitionValues", "dataChange"  # type: ignore[assignment]
        for path, deleted, size, values, change in _fields(removes, *names):
            name = file_name(path, folders=not only_ours)
            snapshot.tombstones[name] = Remove(name, deleted or 0, size, values, bool(change))


def _checked(batch: pa.RecordBatch, kind: str, known: pa.StructType, *needed: str) -> pa.Array:
    """What is there of a kind of actions, if their fields have the types that this package knows, and each has those that are needed."""
    array = _present(batch, kind)
    _refuse_deletion_vectors(array)
    found = {f.name: f.type for f in array.type} if len(array) else {}
    for field in known:
        if field.name in found and not _is_like(found[field.name], field.type):
            raise ForeignEntry(f"{kind}.{field.name} is of type {found[field.name]}")
    for name in needed if len(array) else ():
        if name not in found or array.field(name).null_count:
            raise ForeignEntry(f"an action {kind} has no {name}")
    return array


def _is_like(found: pa.DataType, known: pa.DataType) -> bool:
    """The same, whatever the parts of a map are called; or none."""
    if not pa.types.is_map(known) or pa.types.is_null(found):
        return bool(found == known or pa.types.is_null(found))
    return bool(pa.types.is_map(found) and (found.key_type, found.item_type) == (known.key_type, known.item_type))


def _present(batch: pa.RecordBatch, name: str) -> pa.Array:
    """What is there of a kind of actions; nothing if there is no such column."""
    return _without_nulls(batch.column(name)) if name in batch.schema.names else pa.nulls(0, pa.struct([]))


def _without_nulls(array: pa.Array) -> pa.Array:
    """As `drop_null`, but without a copy where the others stand together, as they do in the checkpoints of this package."""
    count = len(array) - array.null_count
    if not count:
        return array.slice(0, 0)
    together = array.slice(_first_valid(array), count)
    return array.drop_null() if together.null_count else together


def _first_valid(array: pa.Array) -> int:
    """From the bits themselves: PyArrow's functions load pandas."""
    bits = array.buffers()[0]
    if bits is None:
        return 0
    valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return int(valid[array.offset : array.offset + len(array)].argmax())


def _fields(array: pa.StructArray, *names: str) -> Any:
    """Tuples of these fields of each struct; None for a field that there is not."""
    have = {f.name for f in array.type}
    columns = [_values(array.field(n)) if n in have else [None] * len(array) for n in names]
    return zip(*columns, strict=True)


def _values(array: pa.Array) -> list[Any]:
    """As `to_pylist`, but many times faster for long arrays without nulls; a map becomes a dictionary."""
    if pa.types.is_map(array.type):
        keys, items, ends = _values(array.keys), _values(array.items), array.offsets.to_pylist()
        maps = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in itertools.pairwise(ends)]
        return (
            maps
            if not array.null_count
            else [m if v else None for m, v in zip(maps, array.is_valid().to_pylist(), strict=True)]
        )
    if array.null_count or len(array) < _LONG or pa.types.is_nested(array.type):
        return list(array.to_pylist())
    return list(array.to_numpy(zero_copy_only=False).tolist())


def _refuse_deletion_vectors(array: pa.StructArray) -> None:
    if "deletionVector" in {f.name for f in array.type}:
        vectors = array.field("deletionVector")
        if vectors.null_count != len(vectors):
            raise ForeignEntry("a file has a deletion vector")


def _transactions_array(transactions: Mapping[str, Transaction]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [
            array_of(list(transactions), pa.string()),
            array_of([txn.version for txn in transactions.values()], pa.int64()),
            array_of([txn.updated_ms for txn in transactions.values()], pa.int64()),
        ],
        fields=list(_TRANSACTION),
    )


def _adds_array(adds: Sequence[Add]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [
            array_of(_quoted([add.path for add in adds]), pa.string()),
            array_of([add.partition_values for add in adds], _TEXTS),
            array_of([add.size for add in adds], pa.int64()),
            array_of([add.modified_ms for add in adds], pa.int64()),
            array_of([False] * len(adds), pa.bool_()),  # Delta: what a checkpoint holds is no news
            array_of([add.stats for add in adds], pa.string()),
            array_of([add.tags or {} for add in adds], _TEXTS),
        ],
        fields=list(_ADD),
    )


def _quoted(paths: list[str]) -> list[str]:
    """As URIs have them. The names that this package gives are the same there, and need only one look."""
    return paths if _UNRESERVED.fullmatch("".join(paths)) else [quote(path) for path in paths]


def _removes_array(removes: Sequence[Remove]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [
            array_of(_quoted([remove.path for remove in removes]), pa.string()),
            array_of([remove.deleted_ms for remove in removes], pa.int64()),
            array_of([False] * len(removes), pa.bool_()),
            array_of(
                [remove.partition_values is not None and remove.size is not None for remove in removes], pa.bool_()
            ),
            array_of([remove.partition_values or {} for remove in removes], _TEXTS),
            array_of([remove.size for remove in removes], pa.int64()),
        ],
        fields=list(_REMOVE),
    )
