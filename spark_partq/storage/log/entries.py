"""One entry of a Delta log: the actions of a commit, as lines of JSON.

What is written is a small part of what Delta knows, and what is read is that part and nothing else: whoever committed with
features that this package does not handle must not be misread. An unknown action or feature is a `ForeignEntry`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from spark_partq.core.stored import MAX_NAME_BYTES, is_plain

_VERSIONS = 1, 2  # of reader and writer
# Delta has one type of column that needs a table feature, and tables with features have these versions.
_FEATURES = {"timestamp_ntz": "timestampNtz"}
_VERSIONS_WITH_FEATURES = 3, 7
# Statistics as this package writes them, whole. To read them as JSON takes a tenth of the time of opening a queue with many files.
_BOUNDS = r'\{(?:"[^"\\\x00-\x1f]*": (?:-?(?:0|[1-9][0-9]{0,18})|"[0-9-]*")(?:, (?=")|(?=\})))*\}'
_STATS = re.compile(rf'\{{"numRecords": (0|[1-9][0-9]{{0,17}})(?:, "minValues": {_BOUNDS}, "maxValues": {_BOUNDS})?\}}')
MOST = 2**63 - 1  # the greatest number that a column of a checkpoint holds
# Begins the `engineInfo` of every commit of this package.
ENGINE = "spark_partq"
# Where the identity of a commit stands in its `commitInfo`, and that of the commit before it.
TOKEN, PREVIOUS_TOKEN = "txnId", "previousTxnId"
# The id of the table that the commit was made for.
TABLE = "tableId"
# How many lines the entry has, so that one that is cut off between two of them is noticed.
ACTIONS = "actionCount"

_BREAK = "\n"
_ACTIONS = {"commitInfo", "protocol", "metaData", "add", "remove", "txn"}
_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ForeignEntry(ValueError):
    """The log holds what this package never writes, or is damaged; the text says what."""


class Add(NamedTuple):
    """A live file of the table. `path` is its name in the table's folder; `partition_values` and `tags` are text, `stats` is JSON."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    stats: str | None = None
    modified_ms: int = 0
    data_change: bool = True
    tags: Mapping[str, str | None] | None = None

    @property
    def rows(self) -> int | None:
        """The row count that the statistics tell."""
        if self.stats and (found := _STATS.fullmatch(self.stats)):
            return int(found[1])
        try:
            count = json.loads(self.stats)["numRecords"] if self.stats else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return count if type(count) is int and 0 <= count <= MOST else None


class Remove(NamedTuple):
    """A file that is not live any more. In a checkpoint it is a tombstone, until `deleted_ms` is long ago."""

    path: str
    deleted_ms: int
    size: int | None = None
    partition_values: Mapping[str, str | None] | None = None
    data_change: bool = True


class Transaction(NamedTuple):
    """The last version of an application transaction, and when that was."""

    version: int
    updated_ms: int | None = None


@dataclass(frozen=True)
class Metadata:
    """The table's id, schema (Spark's JSON form) and settings."""

    id: str
    schema: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    created_ms: int | None = None


@dataclass(frozen=True)
class Entry:
    """What one commit says."""

    info: Mapping[str, Any] | None = None
    protocol: bool = False  # there is one, and it is ours
    metadata: Metadata | None = None
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    transactions: Mapping[str, Transaction] = field(default_factory=dict)

    @property
    def token(self) -> str | None:
        """Identifies the commit; None if another program made it."""
        return self._info(TOKEN)

    @property
    def previous_token(self) -> str | None:
        return self._info(PREVIOUS_TOKEN)

    def is_of(self, metadata: Metadata | None) -> bool:
        """False if it says that it was made for another table than the one with this metadata."""
        told = self._info(TABLE)
        return None in (told, metadata) or (metadata is not None and told == metadata.id)

    def is_stranger(self, other: Entry) -> bool:
        """Whether the other one says that it was made for another table than this one."""
        mine, theirs = self._info(TABLE), other._info(TABLE)
        return None not in (mine, theirs) and mine != theirs

    @property
    def operation(self) -> str:
        return self._info("operation") or "an unknown operation"

    @property
    def engine(self) -> str:
        return self._info("engineInfo") or "an unknown program"

    def _info(self, name: str) -> str | None:
        value = (self.info or {}).get(name)
        return value if isinstance(value, str) else None


# ---- writing
def encode(entry: Entry) -> bytes:
    """The entry as the bytes of its file."""
    lines: list[dict[str, Any]] = []
    if entry.protocol:
        lines.append({"protocol": protocol_of(entry.metadata)})
    if entry.metadata is not None:
        lines.append({"metaData": _metadata_json(entry.metadata)})
    lines += ({"txn": _transaction_json(app, txn)} for app, txn in entry.transactions.items())
    lines += ({"remove": _remove_json(remove)} for remove in entry.removes)
    lines += ({"add": _add_json(add)} for add in entry.adds)
    if entry.info is not None:
        lines.insert(0, {"commitInfo": {**entry.info, ACTIONS: len(lines) + 1}})
    return ("\n".join(map(_dumps, lines)) + "\n").encode()


def protocol_of(metadata: Metadata | None) -> dict[str, Any]:
    """What readers and writers of a table with these columns must know."""
    types = set() if metadata is None else set(_types(json.loads(metadata.schema)))
    features = sorted(feature for type_, feature in _FEATURES.items() if type_ in types)
    reader, writer = _VERSIONS_WITH_FEATURES if features else _VERSIONS
    versions = {"minReaderVersion": reader, "minWriterVersion": writer}
    return {**versions, "readerFeatures": features, "writerFeatures": features} if features else versions


def _types(type_: Any) -> Iterator[str]:
    """The types of all columns, and of what is in them."""
    if not isinstance(type_, dict):
        yield str(type_)
        return
    inner = [type_.get(part) for part in ("elementType", "keyType", "valueType")]
    for part in [*inner, *(column["type"] for column in type_.get("fields", ()))]:
        if part is not None:
            yield from _types(part)


def _metadata_json(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": metadata.schema,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_ms,
    }


def _transaction_json(app: str, txn: Transaction) -> dict[str, Any]:
    return {"appId": app, "version": txn.version, **({} if txn.updated_ms is None else {"lastUpdated": txn.updated_ms})}


def _add_json(add: Add) -> dict[str, Any]:
    return {
        "path": quote(add.path),
        "partitionValues": add.partition_values,
        "size": add.size,
        "modificationTime": add.modified_ms,
        "dataChange": add.data_change,
        "stats": add.stats,
    } | ({"tags": add.tags} if add.tags else {})


def _remove_json(remove: Remove) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "path": quote(remove.path),
        "deletionTimestamp": remove.deleted_ms,
        "dataChange": remove.data_change,
    }
    if remove.partition_values is not None and remove.size is not None:
        plain |= {"extendedFileMetadata": True, "partitionValues": remove.partition_values, "size": remove.size}
    return plain


# ---- reading
def decode(data: bytes, *, only_ours: bool = True) -> Entry:
    """The entry of a log file.

    Parameters
    ----------
    only_ours : bool
        Refuse entries of other programs, and files that do not lie directly in the table's folder.

    Raises
    ------
    ForeignEntry
        If it is cut short, damaged, or says what this package does not handle.
    """
    actions = list(_actions(data))
    info = next((body for action, body in actions if action == "commitInfo"), None)
    entry = Entry(info)
    if only_ours and not entry.engine.startswith(ENGINE):
        raise ForeignEntry(
            f"it was committed by {entry.engine} ({entry.operation}), and only spark_partq may write here"
        )
    protocol, metadata = False, None
    adds: list[Add] = []
    removes: list[Remove] = []
    transactions: dict[str, Transaction] = {}
    count = 0
    for action, body in actions:
        try:
            match action:
                case "add":
                    adds.append(_add(body, folders=not only_ours))
                case "txn":
                    app, txn = _transaction(body)
                    transactions[app] = txn
                case "commitInfo":
                    pass
                case "remove":
                    removes.append(_remove(body, folders=not only_ours))
                case "protocol":
                    check_protocol(body)
                    protocol = True
                case "metaData":
                    metadata = metadata_of(body)
        except ForeignEntry:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ForeignEntry(f"its action {action!r} is damaged ({type(error).__name__}: {error})") from None
        count += 1
    told = (info or {}).get(ACTIONS, count)
    if told != count:
        raise ForeignEntry(f"it is cut short: {count} of {told} actions are there")
    return Entry(info, protocol, metadata, tuple(adds), tuple(removes), transactions)


def _actions(data: bytes) -> Iterable[tuple[str, Any]]:
    try:
        text = data.decode().strip()
        # No value holds a bare line break, so this makes one list of all lines, read in one go.
        actions = json.loads(f"[{text.replace(_BREAK, ',')}]")
    except (ValueError, RecursionError) as error:
        raise ForeignEntry(f"it is cut short or is no JSON ({error})") from None
    if not actions:
        raise ForeignEntry("it is empty")
    if len(actions) != text.count(_BREAK) + 1:
        raise ForeignEntry("a line holds several actions")
    for action in actions:
        if type(action) is not dict or len(action) != 1:
            raise ForeignEntry("a line is no action")
        (item,) = action.items()
        if item[0] not in _ACTIONS:
            raise ForeignEntry(f"it has the action {item[0]!r}")
        if type(item[1]) is not dict:
            raise ForeignEntry(f"its action {item[0]!r} is damaged")
        yield item


def check_protocol(body: Mapping[str, Any]) -> None:
    """Refuse a table whose readers or writers must know more than this package."""
    features = {str(name) for side in ("readerFeatures", "writerFeatures") for name in body.get(side) or ()}
    foreign = sorted(features - set(_FEATURES.values()))
    if foreign:
        raise ForeignEntry(f"the table uses the Delta features {', '.join(foreign)}")
    reader, writer = _number(body["minReaderVersion"]), _number(body["minWriterVersion"])
    known = _VERSIONS_WITH_FEATURES if features else _VERSIONS
    if reader > known[0] or writer > known[1]:
        raise ForeignEntry(f"the table asks for Delta's reader version {reader} and writer version {writer}")


def metadata_of(body: Mapping[str, Any]) -> Metadata:
    configuration = {str(name): str(value) for name, value in (body.get("configuration") or {}).items()}
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ForeignEntry("the table uses column mapping")
    if (body.get("format") or {}).get("provider", "parquet") != "parquet":
        raise ForeignEntry(f"the table's files are {body['format']['provider']}")
    columns, created = tuple(map(_text, body["partitionColumns"])), _number_or_none(body.get("createdTime"))
    found = Metadata(_text(body["id"]), _text(body["schemaString"]), columns, configuration, created)
    protocol_of(found)  # its schema can be read
    return found


def _add(body: Mapping[str, Any], folders: bool) -> Add:
    if body.get("deletionVector") is not None:
        raise ForeignEntry("a file has a deletion vector")
    stats, tags = body.get("stats"), body.get("tags")
    return Add(
        file_name(_text(body["path"]), folders=folders),
        _size(body["size"]),
        _texts(body["partitionValues"]),
        None if stats is None else _text(stats),
        _number(body["modificationTime"]),
        bool(body["dataChange"]),
        None if tags is None else _texts(tags),
    )


def _remove(body: Mapping[str, Any], folders: bool) -> Remove:
    if body.get("deletionVector") is not None:
        raise ForeignEntry("a file has a deletion vector")
    values = body.get("partitionValues")
    return Remove(
        file_name(_text(body["path"]), folders=folders),
        _number(body.get("deletionTimestamp") or 0),
        _number_or_none(body.get("size")),
        None if values is None else _texts(values),
        bool(body["dataChange"]),
    )


def _transaction(body: Mapping[str, Any]) -> tuple[str, Transaction]:
    return _text(body["appId"]), Transaction(_number(body["version"]), _number_or_none(body.get("lastUpdated")))


def file_name(path: str, *, folders: bool = False) -> str:
    """The name of a file in the table's folder, from the `path` of an action.

    Parameters
    ----------
    folders : bool
        It may lie in folders of the table's folder.

    Raises
    ------
    ForeignEntry
        If it is anything but a plain name: whoever may write a log must not reach files outside of its table.
    """
    name = unquote(path) if "%" in path else path
    for part in name.split("/") if folders else [name]:
        if not is_plain(part):
            raise ForeignEntry(
                f"it names the file {path[:MAX_NAME_BYTES]!r}, which is no plain name in the table's folder"
            )
    return name


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    if not value.isascii():
        value.encode()  # half of a surrogate pair is no text either
    return value


def _texts(value: Any) -> Mapping[str, str | None]:
    if type(value) is not dict:
        raise TypeError(f"{value!r} is no object")
    for key, text in value.items():
        _text(key)
        if text is not None:
            _text(text)
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not -MOST <= value <= MOST:
        raise TypeError(f"{value!r} is no whole number of 64 bits")
    return value


def _size(value: Any) -> int:
    if _number(value) < 0:
        raise ValueError(f"a file cannot have {value} bytes")
    return int(value)


def _number_or_none(value: Any) -> int | None:
    return None if value is None else _number(value)
