"""Facts as rows, and rows as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa

_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
_TIMES = ("at", "began", "ended", "last_seen", "gone", "reowned")


def rows_of(frame: pd.DataFrame) -> Iterator[SimpleNamespace]:
    """Rows with None for null and with whole numbers, whichever library made the frame (pandas, Arrow, Spark)."""
    columns = []
    for name in frame.columns:
        values = frame[name].astype(object).where(frame[name].notna(), None).tolist()
        columns.append([int(v) if isinstance(v, float) else v for v in values])
    for values in zip(*columns, strict=True):
        yield SimpleNamespace(**dict(zip(frame.columns, values, strict=True)))


def commits_of(facts: pd.DataFrame) -> Iterator[list[SimpleNamespace]]:
    """Facts that were decided together: the facts of one commit have the same time."""
    for _, commit in groupby(rows_of(facts), key=lambda fact: fact.at):
        yield list(commit)


def milliseconds(began: Any, ended: Any) -> float | None:
    return None if began is None or ended is None else (ended - began).total_seconds() * 1000


def nullable_frame(rows: pa.Table) -> pd.DataFrame:
    """The rows of a group's table; whole numbers and booleans keep their types in a column that has nulls."""
    found: pd.DataFrame = rows.to_pandas(types_mapper=_NULLABLE.get)
    return found


def frame_of(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(columns))
    for name in columns:
        if name in _TIMES:
            frame[name] = pd.to_datetime(frame[name], utc=True)
        elif name.endswith("_ms"):
            frame[name] = frame[name].astype(float)
        elif name in ("partition", "end", "delivered", "redelivered", "start", "first", "position"):
            frame[name] = frame[name].astype("Int64")
    return frame
