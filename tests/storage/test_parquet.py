"""Parquet files whose metadata is damaged: pyarrow would end the process."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_partq.storage.parquet import read_columns, repeated_columns

ROWS = pa.table({"n": pa.array([1, None, 3]), "l": pa.array([[1, 2], [], None], pa.list_(pa.int64()))})


@pytest.fixture(scope="module")
def whole() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink)
    return sink.getvalue().to_pybytes()


def read(data: bytes) -> pa.Table | None:
    """None if it is refused."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        for group in range(file.metadata.num_row_groups):
            values = [column.num_values for column in repeated_columns(file, group, ["n", "l"])]
            assert len(values) <= 1
        return read_columns(file, ["n", "l"])
    except (pa.ArrowException, OSError, ValueError):
        return None


def test_a_whole_file(whole: bytes) -> None:
    file = pq.ParquetFile(pa.BufferReader(whole))
    assert [column.num_values for column in repeated_columns(file, 0, ["n", "l"])] == [4]
    assert repeated_columns(file, 0, ["n"]) == []
    assert read(whole) == ROWS


@pytest.mark.parametrize("change", [0x01, 0x10, 0x80, 0xFF])
def test_each_byte_of_the_metadata(whole: bytes, change: int) -> None:
    """Bad input: it is read or refused, and the process goes on."""
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for at in range(begin, len(whole)):
        data = bytearray(whole)
        data[at] ^= change
        refused += read(bytes(data)) is None
    assert refused > 20
