"""Checkpoints of few bytes that would take much memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_partq.core.errors import CommitFailedError
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import Add, checkpoints
from spark_partq.storage.log.checkpoints import decode_checkpoint, encode_checkpoint
from tests.storage.bombs import one_text, packed, refused_for_little
from tests.storage.log.damage import busy
from tests.storage.log.tables import FOLDER, checkpoint_path, fresh, made

READ = """
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.store import Store
DeltaLog(Store.at(sys.argv[1]), "whole", "the table").refresh()
"""
_ADD = checkpoints._ADD


def with_adds(whole: pa.Table, **given: pa.Array) -> pa.Table:
    """A checkpoint and, behind it, files of which nothing but this is told."""
    n = len(next(iter(given.values())))
    adds = pa.StructArray.from_arrays(
        [given.get(f.name, pa.nulls(n, f.type)) for f in _ADD],
        fields=[f.with_type(given[f.name].type) if f.name in given else f for f in _ADD],
    )
    columns = {}
    for name in whole.schema.names:
        first = whole[name].combine_chunks()
        if name == "add":
            columns[name] = pa.concat_arrays([pa.nulls(whole.num_rows, adds.type), adds])
        else:
            columns[name] = pa.concat_arrays([first, pa.nulls(n, first.type)])
    return pa.table(columns)


def maps(rows: int, entries: int, values: pa.Array) -> pa.MapArray:
    offsets = pa.array([i * entries for i in range(rows + 1)], pa.int32())
    return pa.MapArray.from_arrays(offsets, one_text("base_offset", rows * entries), values)


@pytest.mark.parametrize(
    ("adds", "said"),
    [
        (lambda: {"path": one_text("a.parquet", 1_000_000)}, r"it declares 1,000,0\d\d rows"),
        (lambda: {"stats": one_text("x" * 1_000_000, 1_500)}, "it holds more than"),
        (lambda: {"partitionValues": maps(20_000, 200, one_text("0", 4_000_000))}, "it declares 4,000,00. entries"),
        (lambda: {"tags": maps(3_000, 1, one_text("x" * 500_000, 3_000))}, "it holds more than"),
    ],
    ids=["rows", "texts", "entries", "texts in maps"],
)
def test_small_checkpoint_of_much(tmp_path: Path, adds: Callable[[], dict[str, pa.Array]], said: str) -> None:
    """Bad input: it is refused before it takes memory."""
    files = MemoryFiles()
    busy(files).checkpoint()
    data = files.read(checkpoint_path(4))
    large = packed(with_adds(pq.read_table(pa.BufferReader(data)), **adds()))
    for name, content in (("whole", data), (FOLDER, large)):
        path = tmp_path / name / "_delta_log" / f"{4:020d}.checkpoint.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    act = f'DeltaLog(Store.at(sys.argv[1]), "{FOLDER}", "the table").refresh()'
    error = refused_for_little(READ, act, tmp_path)
    assert error.startswith("[CORRUPT_TABLE] the Delta log of the table")
    assert re.search(rf"{4:020d}\.checkpoint\.parquet: .*{said}", error), error


def test_nobody_puts_a_checkpoint_that_readers_refuse(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays, and is read."""
    writer = busy(files)
    monkeypatch.setattr(checkpoints, "MAX_ACTIONS", 3)
    with pytest.raises(
        CommitFailedError, match=r"a checkpoint of t/_delta_log has \d actions, more than the 3 that readers take"
    ):
        writer.checkpoint()
    assert files.info(checkpoint_path(4)) is None and fresh(files).version == 4


def test_checkpoint_of_many_files(files: MemoryFiles) -> None:
    """P1: so many live files as a partition has that was never put together: they are read whatever else is in the checkpoint."""
    writer = made(files)
    snapshot = writer.log.load(tombstones=True)
    for n in range(150_000):
        path = f"part-{n:032x}.parquet"
        values = {"base_offset": str(n), "_enqueued_at": "2026-11-22T00:29:57.086350Z"}
        snapshot.files[path] = Add(path, 1, values, '{"numRecords":1}', 1, False)
    data, count = encode_checkpoint(snapshot)
    assert count == 150_002 and decode_checkpoint(data, snapshot.version, True).files == snapshot.files
