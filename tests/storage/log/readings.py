"""A table as one reader sees it: delta-rs, or a handle of this package."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from spark_partq.storage.log import DeltaLog, Snapshot

# The second one is what the writers let a checkpoint forget.
APPS = ["partq:next", "expired", "partq:sink/s one/0", "é%20/ü"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class File:
    """What the log tells of one live file."""

    size: int
    rows: int | None
    partition: Mapping[str, int | str | None]


@dataclass(frozen=True)
class Reading:
    """A table as one reader sees it."""

    version: int
    files: Mapping[str, File]
    transactions: Mapping[str, int | None]
    table_id: str
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    schema: Any


def theirs(uri: str, apps: Sequence[str] = APPS) -> Reading | None:
    """The table as delta-rs reads it; None if it finds none."""
    try:
        table = DeltaTable(uri)
    except TableNotFoundError:
        return None
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = {
        unquote(action["path"]): File(
            action["size_bytes"],
            action.get("num_records"),
            {
                name.removeprefix("partition."): comparable(value)
                for name, value in action.items()
                if name.startswith("partition.")
            },
        )
        for action in actions
    }
    assert len(files) == len(actions), "delta-rs lists a file twice"
    metadata = table.metadata()
    return Reading(
        table.version(),
        files,
        {app: table.transaction_version(app) for app in apps},
        str(metadata.id),
        list(metadata.partition_columns),
        dict(metadata.configuration),
        json.loads(table.schema().to_json()),
    )


def ours(log: DeltaLog, apps: Sequence[str] = APPS) -> Reading | None:
    """The table as a handle of this package sees it."""
    if not log.exists():
        return None
    log.refresh()
    snapshot = log.snapshot
    assert snapshot.version == log.version
    return reading_of(snapshot, apps)


def reading_of(snapshot: Snapshot, apps: Sequence[str] = APPS) -> Reading:
    """The snapshot as a reading."""
    metadata = snapshot.metadata
    assert metadata is not None
    types = {field["name"]: field["type"] for field in json.loads(metadata.schema)["fields"]}
    files = {}
    for name, add in snapshot.files.items():
        values = {column: typed(value, types[column]) for column, value in add.partition_values.items()}
        assert name == add.path
        files[name] = File(add.size, add.rows, values)
    versions = {app: txn.version for app, txn in snapshot.transactions.items()}
    return Reading(
        snapshot.version,
        files,
        {app: versions.get(app) for app in apps},
        metadata.id,
        list(metadata.partition_columns),
        dict(metadata.configuration),
        json.loads(metadata.schema),
    )


def comparable(value: Any) -> int | str | None:
    """A partition value of delta-rs; a time as microseconds, a date as text."""
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(microseconds=1)
    return value.isoformat() if isinstance(value, dt.date) else value


def typed(text: str | None, type_: str) -> int | str | None:
    """A partition value of the log, which is text, as `comparable` has it."""
    if text is None:
        return None
    if type_ == "timestamp":
        return comparable(dt.datetime.fromisoformat(text))
    if type_ == "date":
        return comparable(dt.date.fromisoformat(text))
    return int(text) if type_ == "long" else text
