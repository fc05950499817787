"""Q2: the key's hash and the partition that follows from it, in plain Python."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.payload.keys import key_hash, partition_of
from tests.vectors import LONGS, PLACE, VECTORS, Vector


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_golden_vectors(vector: Vector) -> None:
    """Q2: the hash of each supported type is pinned."""
    assert key_hash(vector.values, vector.types) == vector.hash


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
@pytest.mark.parametrize("partitions", [1, 7, 64, 4096])
def test_partition_is_the_positive_remainder(vector: Vector, partitions: int) -> None:
    """Q2, Q3: a key's partition lies in 0..N-1; only a key of nothing but nulls has none."""
    partition = partq.partition_of(vector.values, vector.types, partitions)
    if all(v is None for v in vector.values):
        assert partition is None
    else:
        assert partition == (vector.hash % partitions + partitions) % partitions
        assert 0 <= partition < partitions


def test_same_in_another_process() -> None:
    """Q2: no per-process seed gets into the hash."""
    program = "from spark_partq.core.payload.keys import key_hash; print(key_hash(['N14228', 7], ['string', 'long']))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {str(key_hash(["N14228", 7], ["string", "long"]))}


def test_equal_instants_hash_alike() -> None:
    """Q2: an instant's hash does not depend on the zone it is given in."""
    utc = dt.datetime(2013, 7, 4, 12, 0, tzinfo=dt.UTC)
    other = utc.astimezone(dt.timezone(dt.timedelta(hours=-9, minutes=-30)))
    assert key_hash([utc], ["timestamp"]) == key_hash([other], ["timestamp"])


def test_decimal_scale_is_the_columns() -> None:
    """Q2: 1.5 and 1.50 are the same key of one column."""
    for type_ in ("decimal(10,2)", "decimal(38,2)"):
        assert key_hash([Decimal("1.5")], [type_]) == key_hash([Decimal("1.50")], [type_])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("x", "long"),
        (1, "string"),
        (2**31, "integer"),
        (2**63, "long"),
        ("\ud800", "string"),
        (Decimal("1.005"), "decimal(10,2)"),
        (Decimal("NaN"), "decimal(10,2)"),
        ("x", "decimal(10,2)"),
        (Decimal(10**10), "decimal(12,2)"),
        (Decimal(10**38), "decimal(38,0)"),
        (dt.date(2020, 1, 1), "timestamp"),
        ("2020-01-01", "date"),
        (1.5, "integer"),
        (3, "interval"),
        ({"a": 1}, {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}),
    ],
    ids=repr,
)
def test_value_that_does_not_fit(value: Any, type_: Any) -> None:
    """A wrong value is an error of this package."""
    with pytest.raises(partq.InvalidArgumentError):
        key_hash([value], [type_])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (5, LONGS),
        ({"city": "Bern"}, PLACE),
        ("Bern", PLACE),
    ],
    ids=repr,
)
def test_nested_value_that_does_not_fit(value: Any, type_: Any) -> None:
    """A wrong nested value is an error of this package too."""
    with pytest.raises(partq.InvalidArgumentError):
        key_hash([value], [type_])


def test_wrong_number_of_values() -> None:
    with pytest.raises(partq.InvalidArgumentError, match="2 columns"):
        key_hash(["a"], ["string", "string"])


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=200, max_size=200, unique=True))
def test_keys_reach_all_partitions(keys: list[str]) -> None:
    """Q2: distinct keys spread (200 keys over 4 partitions never leave one empty)."""
    assert {partition_of([k], ["string"], 4) for k in keys} == {0, 1, 2, 3}
