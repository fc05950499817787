"""Targets: Parquet files of facts, acknowledgements and checkpoints, as bytes."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.errors import PartqError
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group import ack_table, control
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.log import Add, DeltaLog, Remove
from spark_partq.storage.log.checkpoints import decode_checkpoint, encode_checkpoint
from spark_partq.storage.log.entries import ForeignEntry
from spark_partq.storage.rows import RowFiles, encode_rows
from spark_partq.storage.store import Store
from tests.fuzz import values
from tests.fuzz.change import changed, damaged
from tests.fuzz.run import Target
from tests.fuzz.runtime import Repeatable
from tests.storage.log.tables import spec

_store = Store("memory:/files", runtime=Repeatable())
_FACTS = RowFiles(_store, "facts", "the facts", control.COLUMNS, control.MOST_FACTS)
_ACKS = RowFiles(_store, "acks", "the acknowledgements", ack_table.COLUMNS, ack_table.MOST_ROWS)
_AT = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def _facts_file() -> bytes:
    return encode_rows([{**row, "at": _AT} for row in values.stored(values.group_rows())], _FACTS.arrow)[0]


def _acks_file() -> bytes:
    return encode_rows([{**row, "at": _AT} for row in values.ACKS], _ACKS.arrow)[0]


def _checkpoint_file() -> bytes:
    log = DeltaLog(Store("memory:/", runtime=Repeatable()), "t", "the table")
    log.create(spec())
    log.commit([Add("a b", 10, {"base_offset": "0"}, '{"numRecords":2}'), Add("c", 10, {"base_offset": "2"})])
    log.commit(
        [Add("d", 10, {"base_offset": "2"})], [Remove("c", 1, 10, {"base_offset": "2"})], {"next": 3, "other": 1}
    )
    return encode_checkpoint(log.log.load(tombstones=True))[0]


def _file_changed(valid: bytes, chance: random.Random) -> bytes:
    """Other bytes, or a whole file of other rows, whose columns may have other names and types."""
    if chance.random() < 0.5:
        return damaged(valid, chance)
    table = pq.read_table(io.BytesIO(valid))
    about = dict(table.schema.metadata or {})
    while True:
        rows = [row for row in changed(table.to_pylist(), chance) if isinstance(row, dict)]
        if chance.random() < 0.2:
            about = {name: damaged(value, chance) for name, value in about.items() if value}
        with contextlib.suppress(pa.ArrowException, TypeError, OverflowError, ValueError):  # no file can have these
            sink = pa.BufferOutputStream()
            pq.write_table(_table(rows, table.schema, chance).replace_schema_metadata(about), sink)
            return bytes(sink.getvalue().to_pybytes())


def _table(rows: list[Any], schema: pa.Schema, chance: random.Random) -> pa.Table:
    """With the types of before, or with those that fit."""
    return pa.Table.from_pylist(rows, schema if chance.random() < 0.3 else None)


def _reads(files: RowFiles, then: Callable[[Any], object]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        _store.files.put(f"{files._folder}/file", data)
        files.read_table("file", 0)
        then(files.read("file", 0))

    return read


def _replay(rows: Any) -> None:
    ControlTable(_store, "g")._replay(GroupState(), rows)


def _acks(rows: Any) -> None:
    table = AckTable(_store, "g", 0)
    for row in rows:
        table._row(row)


def _checkpoint(data: bytes) -> None:
    decode_checkpoint(data, 2, tombstones=True)
    decode_checkpoint(data, 2, tombstones=False, only_ours=False)


TARGETS = {
    "facts-file": Target(_facts_file, _file_changed, _reads(_FACTS, _replay), (PartqError,), one_of=10),
    "acks-file": Target(_acks_file, _file_changed, _reads(_ACKS, _acks), (PartqError,), one_of=10),
    "checkpoint": Target(_checkpoint_file, _file_changed, _checkpoint, (ForeignEntry,), one_of=10),
}
