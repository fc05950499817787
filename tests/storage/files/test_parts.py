"""What `Files` promises of files that are read and written in parts, wherever a store lies."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_partq.storage.files import FileMissing, Files
from tests.storage.files.places import LARGE, at_once, names


def table(rows: int = 5_000) -> pa.Table:
    return pa.table({"n": range(rows), "text": [str(n) for n in range(rows)]})


def test_reading_parts(files: Files) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink, row_group_size=500)
    data = sink.getvalue().to_pybytes()
    files.put("a/n.parquet", data)
    with files.open_input("a/n.parquet") as source:
        assert source.size() == len(data)
        assert source.read_at(10, 100) == data[100:110]
        source.seek(-4, 2)
        assert (source.read(100), source.read(1)) == (b"PAR1", b"")
        source.seek(3)
        assert (source.read(5), source.tell()) == (data[3:8], 8)
    for pre_buffer in (False, True):
        with files.open_input("a/n.parquet") as source, pq.ParquetFile(source, pre_buffer=pre_buffer) as file:
            assert file.read_row_group(3, columns=["n"])["n"].to_pylist() == list(range(1_500, 2_000))
            assert file.read(use_threads=True).equals(table())


def test_what_was_opened_can_be_read_by_several_threads(files: Files) -> None:
    data = os.urandom(50_000)
    files.put("a/n", data)
    with files.open_input("a/n") as source:

        def read(numbers: Sequence[int]) -> None:
            for n in numbers:
                assert source.read_at(1_000, n * 1_000) == data[n * 1_000 : n * 1_000 + 1_000]

        at_once(*[partial(read, range(n, 50, 4)) for n in range(4)])


@pytest.mark.parametrize("size", [0, 10_000, LARGE])
def test_a_file_appears_when_it_is_closed(files: Files, size: int) -> None:
    data = os.urandom(size)
    output = files.open_output("a/n")
    for at in range(0, size, 1 << 20):
        output.sink.write(data[at : at + (1 << 20)])
    assert files.info("a/n") is None and names(files, "a") == []
    with pytest.raises(FileMissing):
        files.read("a/n")
    assert output.close() == size
    assert files.read("a/n") == data
    assert [(info.name, info.size) for info in files.list_files("a")] == [("n", size)]


def test_a_file_of_a_parquet_writer(files: Files) -> None:
    output = files.open_output("a/n.parquet")
    with pq.ParquetWriter(output.sink, table().schema) as writer:
        writer.write_table(table())
    assert names(files, "a") == []
    size, info = output.close(), files.info("a/n.parquet")
    assert info is not None and info.size == size
    assert pq.read_table(pa.BufferReader(files.read("a/n.parquet"))).equals(table())


def test_what_is_replaced_by_a_file_in_parts_stays_until_then(files: Files) -> None:
    files.put("a/n", b"before")
    output = files.open_output("a/n")
    output.sink.write(b"after")
    assert files.read("a/n") == b"before"
    output.close()
    assert files.read("a/n") == b"after"


@pytest.mark.parametrize("size", [0, 10_000, LARGE])
def test_what_is_discarded_leaves_nothing(files: Files, size: int) -> None:
    output = files.open_output("a/n")
    output.sink.write(b"x" * size)
    output.discard()
    assert files.list_files("a") == []
    del output
    gc.collect()  # an output that is forgotten does not appear, either
    assert files.list_files("a") == [] and files.info("a/n") is None
