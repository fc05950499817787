"""Arrays that are made without pandas are those that Arrow makes with it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.storage.arrow import array_of, repeated

_TEXT = st.text(max_size=4)
_VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), _TEXT),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
]


def _around(inner: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A type that holds another one, and its values."""
    type_, values = inner[0], st.none() | inner[1]
    struct = pa.struct([("a", type_), ("b", pa.string())])
    return st.sampled_from(
        [
            (pa.list_(type_), st.lists(values, max_size=3)),
            (pa.map_(pa.string(), type_), st.dictionaries(_TEXT, values, max_size=3)),
            (struct, st.fixed_dictionaries({}, optional={"a": values, "b": _TEXT})),
        ]
    )


_TYPES = st.recursive(st.sampled_from(_VALUES), lambda inner: inner.flatmap(_around), max_leaves=3)


@given(_TYPES.flatmap(lambda pair: st.tuples(st.just(pair[0]), st.lists(st.none() | pair[1], max_size=12))))
def test_any_values(given: tuple[pa.DataType, list[Any]]) -> None:
    type_, values = given
    made = array_of(values, type_)
    made.validate(full=True)
    wanted = pa.array([_pairs(value, type_) for value in values], type_)
    assert made.type == type_ and made.null_count == wanted.null_count
    assert made.equals(wanted)


def _pairs(value: Any, type_: pa.DataType) -> Any:
    """With maps as Arrow wants them."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return [(key, _pairs(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_list(type_):
        return [_pairs(one, type_.value_type) for one in value]
    return {k: _pairs(one, type_.field(k).type) for k, one in value.items()} if pa.types.is_struct(type_) else value


@pytest.mark.parametrize(
    ("value", "type_"),
    [(1.5, pa.int64()), ("1", pa.int32()), (2**31, pa.int32()), (2**63, pa.int64()), (b"a", pa.string())],
)
def test_a_value_of_another_type_is_refused(value: Any, type_: pa.DataType) -> None:
    with pytest.raises((TypeError, OverflowError, AttributeError)):
        array_of([None, value], type_)


@pytest.mark.parametrize(
    ("value", "type_"), [(7, pa.int32()), ("a", pa.string()), (True, pa.bool_()), (None, pa.int64())]
)
def test_repeated(value: Any, type_: pa.DataType) -> None:
    assert repeated(value, type_, 3).equals(pa.array([value] * 3, type_))
