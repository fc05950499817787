"""What a sink's files say of their columns: readers skip files by it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_partq.storage.store import Store
from spark_partq.target.files import TableWriter


def stats(tmp_path: Path, rows: pa.Table) -> Any:
    writer = TableWriter(Store(tmp_path), rows.schema, [])
    for batch in rows.to_batches():
        writer.write(batch)
    (file,) = writer.finish()
    return json.loads(file.stats)


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()])
def test_a_column_with_the_name_of_a_field(tmp_path: Path, type_: pa.DataType) -> None:
    """Both have one path in the file. What is said is of the column."""
    nested = pa.array([{"b": None}, {"b": None if type_ == pa.string() else 1}], pa.struct([("b", type_)]))
    rows = pa.table({"a": nested, "a.b": pa.array([7, None], pa.int64())})
    told = {"numRecords": 2, "minValues": {"a.b": 7}, "maxValues": {"a.b": 7}, "nullCount": {"a.b": 1}}
    assert stats(tmp_path, rows) == told


@pytest.mark.parametrize("days", [-719_529, 2_932_897])  # 0000-12-31 and 10000-01-01
def test_a_date_that_python_has_not(tmp_path: Path, days: int) -> None:
    """It has no bounds then."""
    dates = pa.array([days, 0], pa.int32()).cast(pa.date32())
    assert stats(tmp_path, pa.table({"d": dates})) == {
        "numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"d": 0},
    }  # fmt: skip


def test_bounds(tmp_path: Path) -> None:
    dates = pa.array([dt.date(2026, 5, 1), None, dt.date(2020, 1, 1)])
    assert stats(tmp_path, pa.table({"d": dates, "n": pa.array([3, 1, 2])})) == {
        "numRecords": 3, "minValues": {"d": "2020-01-01", "n": 1}, "maxValues": {"d": "2026-05-01", "n": 3},
        "nullCount": {"d": 1, "n": 0},
    }  # fmt: skip
