"""Q2: Kafka's hash of many keys at once is that of one, and Kafka's own."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.payload.murmur2 import POSITIVE, murmur2, positive_murmur2
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.murmur2 import positive_murmur2s
from spark_partq.storage.procedures.place import identities, key_hashes
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from tests.vectors import MURMUR2


@pytest.mark.parametrize("key", MURMUR2, ids=lambda key: key.decode() or "empty")
def test_golden_vectors(key: bytes) -> None:
    """Q2: Kafka's published vectors, one by one and at once, and the partition that follows."""
    assert murmur2(key) == MURMUR2[key] % 2**32
    expected = MURMUR2[key] & POSITIVE
    assert positive_murmur2(key) == expected
    assert positive_murmur2s(pa.array([key] * 40)).tolist() == [expected] * 40
    for partitions in (1, 7, 64, 4096):
        assert partq.partition_of([key.decode()], ["string"], partitions, "murmur2") == expected % partitions
        assert partq.partition_of([key], ["binary"], partitions, "murmur2") == expected % partitions
    assert partq.partition_of([None], ["string"], 7, "murmur2") is None


TYPES = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])


@settings(max_examples=300, database=None)
@given(st.lists(st.none() | st.binary(max_size=70), max_size=60), st.integers(0, 9), TYPES)
def test_at_once_is_one_by_one(keys: list[bytes | None], before: int, type_: pa.DataType) -> None:
    """Q2: any bytes, also in a part of an array and beside nulls."""
    array = pa.array([b"skipped", None, b""] * 3 + keys, type_)[before:]
    found = positive_murmur2s(array).tolist()
    expected = [None if key is None else positive_murmur2(key) for key in array.to_pylist()]
    assert [None if key is None else hash_ for key, hash_ in zip(array.to_pylist(), found, strict=True)] == expected


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=60))
def test_a_string_is_its_utf_8(keys: list[str]) -> None:
    """Q2: a key of type string lies where the binary one with its bytes does."""
    expected = [positive_murmur2(key.encode()) for key in keys]
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        assert positive_murmur2s(pa.array(keys, type_)).tolist() == expected


def test_a_few_long_keys() -> None:
    """A key of a megabyte among short ones is hashed, too, and in no time."""
    keys = [b"k%d" % i for i in range(1000)] + [b"x" * 1_000_003, b"y" * 999_998]
    assert positive_murmur2s(pa.array(keys)).tolist() == [positive_murmur2(key) for key in keys]


@pytest.mark.parametrize("column", ["string", "binary"])
def test_rows_of_a_queue(store: str, column: str) -> None:
    """Q2, Q3: what has no key goes where it is told; a held key is known by more bits than those that place it."""
    partq.create_queue(store, "q", f"k {column}, v int", "k", partitions=5, key_hash="murmur2")
    state = open_queue(Store.at(store), "q").state
    keys = [f"k{i}" for i in range(200)]
    values = keys if column == "string" else [key.encode() for key in keys]
    rows = pa.RecordBatch.from_pydict({"k": [*values, None], "v": list(range(201))}, arrow_schema(state.schema))
    hashes = key_hashes(state, rows, [-7] * 201)
    assert hashes == [*(positive_murmur2(key.encode()) for key in keys), -7]
    assert min(Counter(hash_ % 5 for hash_ in hashes).values()) > 20
    known = identities(state, rows, [-7] * 201)
    assert known[-1] == -7 and max(map(abs, known)) > 2**40
