"""What one process of a world has decoded, the others need not: they all share a process here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest import mock

import pyarrow as pa

from spark_partq.storage import rows
from spark_partq.storage.log import checkpoints, entries, folder
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.rows import Row


@contextmanager
def decoding_once() -> Iterator[None]:
    """No bytes are decoded twice, and rows that were encoded here not once: the oracle reads those files by itself."""
    write_rows, read_rows, read_checkpoint = rows.encode_rows, rows.decode_rows, cache(checkpoints.decode_checkpoint)
    found: dict[tuple[bytes, ...], list[Row]] = {}

    def encode_rows(given: Sequence[Row], schema: pa.Schema) -> tuple[bytes, list[Row]]:
        data, written = write_rows(given, schema)
        found[(data, *schema.names)] = written
        return data, written

    def decode_rows(data: bytes, schema: pa.Schema, most: int) -> list[Row]:
        key = data, *schema.names  # to hash a schema takes longer than to decode a few rows
        if key not in found:
            found[key] = read_rows(data, schema, most)
        return found[key]

    def decode_checkpoint(data: bytes, version: int, tombstones: bool, *, only_ours: bool = True) -> Snapshot:
        return _copy(read_checkpoint(data, version, tombstones, only_ours=only_ours))

    with (
        mock.patch.object(rows, "encode_rows", encode_rows),
        mock.patch.object(rows, "decode_rows", decode_rows),
        mock.patch.object(folder, "decode", cache(entries.decode)),
        mock.patch.object(folder, "decode_checkpoint", decode_checkpoint),
    ):
        yield


def _copy(snapshot: Snapshot) -> Snapshot:
    """One that goes on by itself."""
    tombstones = None if snapshot.tombstones is None else dict(snapshot.tombstones)
    return replace(
        snapshot, files=dict(snapshot.files), transactions=dict(snapshot.transactions), tombstones=tombstones
    )
