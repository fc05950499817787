"""Which messages have given values, as those of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_partq.storage.arrow import exact_values


def having(types: Mapping[str, Any], wanted: Mapping[str, Any]) -> Callable[[pa.RecordBatch], Any]:
    """A function that says which rows of a batch have these values: a truth value for each row.

    Parameters
    ----------
    types : mapping
        The types of at least these columns.
    wanted : mapping
        By column, at least one value as from `key_value`, or None for null. A NaN equals any NaN, and -0.0 equals 0.0, also inside of a value.
    """
    matches = [_match(name, types[name], value) for name, value in wanted.items()]
    return lambda batch: np.logical_and.reduce([match(batch) for match in matches])


def _match(name: str, type_: Any, value: object) -> Callable[[pa.RecordBatch], Any]:
    def match(batch: pa.RecordBatch) -> Any:
        values = batch.column(name)
        if value is None:
            return values.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_nested(values.type) or value != value:  # Arrow cannot compare these, and no NaN equals another
            (exact,) = exact_values(pa.array([value], values.type), type_)
            found = exact_values(values, type_)
            return np.fromiter((repr(_plain(one)) == repr(_plain(exact)) for one in found), np.bool_, len(found))
        return pc.equal(values, pa.scalar(value, values.type)).fill_null(False).to_numpy(zero_copy_only=False)

    return match


def _plain(value: Any) -> Any:
    """The value with a single zero: -0.0 and 0.0 are one key."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value + 0.0 if isinstance(value, float) else value
