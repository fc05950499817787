"""Values of keys, as people give them to a command: each is of the column's type, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest

import spark_partq as partq
from tests.helpers import opened
from tests.storage.procedures.test_added_columns import put


@pytest.mark.parametrize(
    ("type_", "there", "given"),
    [
        ("struct<a: int, b: string>", {"a": 1, "b": None}, {"a": 1, "B": "x"}),
        ("struct<a: int, b: string>", {"a": None, "b": None}, {}),
        ("struct<a: int, b: string>", {"a": 1, "b": "x"}, {"a": 1, "b": "x", "tenant": 7}),
        ("struct<a: int>", {"a": 1}, 1),
        ("string", "a", {"a": 1}),
        ("decimal(10, 2)", Decimal("1.00"), 1.004),
        ("date", dt.date(2026, 5, 1), dt.datetime(2026, 5, 1, 23, 59)),
        ("timestamp", dt.datetime(2026, 5, 1, tzinfo=dt.UTC), dt.date(2026, 5, 1)),
        ("string", "true", True),
        ("string", "1", 1.0),
        ("boolean", True, 5),
        ("bigint", 1, True),
        ("array<bigint>", [1], [True]),
    ],
)
def test_a_value_of_another_type_deletes_nothing(store: str, type_: str, there: object, given: object) -> None:
    """It would be rounded or cut, or would miss a field, and so become the key of other messages."""
    partq.create_queue(store, "q", f"k {type_}, v int", key="k", partitions=1)
    put(opened(store), 0, {"k": there, "v": 0})
    with pytest.raises(partq.InvalidArgumentError, match="is no value of column 'k' of queue 'q', which is a"):
        partq.delete_messages(store, "q", {"k": given})
    assert partq.delete_messages(store, "q", {"k": there}) == 1


@pytest.mark.parametrize(
    ("type_", "there", "given"),
    [
        ("decimal(10, 2)", Decimal("1.00"), 1),
        ("bigint", 1, np.int64(1)),
        ("double", 1.5, np.float64(1.5)),
        ("date", dt.date(2026, 5, 1), "2026-05-01"),
    ],
)
def test_a_value_of_the_type_in_another_form(store: str, type_: str, there: object, given: object) -> None:
    partq.create_queue(store, "q", f"k {type_}, v int", key="k", partitions=1)
    put(opened(store), 0, {"k": there, "v": 0})
    assert partq.delete_messages(store, "q", {"k": given}) == 1
