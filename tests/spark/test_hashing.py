"""Q2: Spark's expression and the plain Python hash agree, for every type; and the null key's place."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark_partq.core.payload.keys import KeyHash, key_hash, partition_of
from spark_partq.core.payload.murmur2 import murmur2
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue import decide
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState, replay
from spark_partq.spark.hashing import partition_column, selected
from tests.vectors import MURMUR2, VECTORS

text = st.text(st.characters(codec="utf-8"), max_size=40)
# datetime.timestamp() of local times is what PySpark sends; it cannot be computed for the first and last days of all
years = {"min_value": dt.datetime(2, 1, 1), "max_value": dt.datetime(9998, 1, 1)}
instants = st.datetimes(**years).map(lambda t: t.replace(tzinfo=dt.UTC))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return st.integers(-top, top).map(
        lambda n: Decimal(n).scaleb(-scale) if precision <= 18 else Decimal(f"{n}e-{scale}")
    )


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": text,
    "binary": st.binary(max_size=80).map(bytearray),
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32) | st.sampled_from([-0.0, 0.0]),
    "double": st.floats() | st.sampled_from([-0.0, 0.0]),
    "decimal(7,2)": decimals(7, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(19,4)": decimals(19, 4),
    "decimal(38,12)": decimals(38, 12),
    "date": st.dates(dt.date(1, 1, 1)),
    "timestamp": instants,
    "timestamp_ntz": st.datetimes(**years),
    "array<string>": st.lists(st.none() | text, max_size=4),
    "array<decimal(20,0)>": st.lists(st.none() | decimals(20, 0), max_size=4),
    "struct<x:bigint,y:array<date>>": st.fixed_dictionaries(
        {"x": st.none() | st.integers(-(2**63), 2**63 - 1), "y": st.none() | st.lists(st.dates(), max_size=3)}
    ),
}


@pytest.mark.parametrize("ddl", VALUES)
def test_any_value(spark: SparkSession, ddl: str) -> None:
    """Q2: the same hash in Python and in Spark, for 200 values of a type beside another column."""
    rows: list[tuple[Any, str | None]] = []

    @settings(max_examples=200, database=None, suppress_health_check=list(HealthCheck))
    @given(st.none() | VALUES[ddl], st.none() | text)
    def gather(value: Any, other: str | None) -> None:
        rows.append((value, other))

    gather()
    schema = payload_schema(f"a {ddl}, b string")
    types = [f["type"] for f in schema["fields"]]
    df = spark.createDataFrame(rows, StructType.fromJson(schema))
    # The values as Python got them, not as Spark rounds them (a NaN's bits, a float's width)
    hashes = [row.h for row in df.select(sf.xxhash64("a", "b").alias("h")).collect()]
    assert len(hashes) == len(rows) > 100
    wrong = [(row, h) for row, h in zip(rows, hashes, strict=True) if key_hash(row, types) != h]
    assert wrong == []


def test_golden_vectors(spark: SparkSession) -> None:
    """Q2: this Spark gives the pinned hashes too."""
    hashes = spark.sql("select " + ", ".join(f"xxhash64({v.sql})" for v in VECTORS)).first()
    assert {v.name: h for v, h in zip(VECTORS, hashes, strict=True)} == {v.name: v.hash for v in VECTORS}


def state(ddl: str, key: list[str], partitions: int, key_hash: KeyHash = "xxhash64") -> QueueState:
    schema = payload_schema(ddl, key)
    made = replay("q", decide.create("id", schema, key, partitions, QueueSettings.parse({}), key_hash))
    assert made is not None
    found = replay("q", decide.finish_creation(made), made)
    assert found is not None
    return found


@pytest.mark.parametrize("partitions", [1, 7, 4096])
def test_partition_of_each_row(spark: SparkSession, partitions: int) -> None:
    """Q2: the sink's expression is `partition_of` of the key's columns in the key's order."""
    queue = state("a string, b int, c string", ["c", "a"], partitions)
    rows = [(f"a{i % 5}" if i % 3 else None, i, f"c{i}" if i % 4 else None) for i in range(200)]
    df = spark.createDataFrame(rows, "a string, b int, c string")
    found = selected(df, [partition_column(queue, df.columns, "0")], ["p"]).collect()
    for (a, _, c), row in zip(rows, found, strict=True):
        assert 0 <= row.p < partitions
        if a is not None or c is not None:
            assert row.p == partition_of([c, a], ["string", "string"], partitions)


@pytest.mark.parametrize("type_", ["string", "binary"])
def test_partition_of_each_row_as_in_kafka(spark: SparkSession, type_: str) -> None:
    """Q2, Q3: with murmur2 Spark's column is `partition_of` of any key, Kafka's vectors among them; rows without a key are spread."""
    queue = state(f"v int, k {type_}", ["k"], 7, "murmur2")
    keys: list[str | None] = [key.decode() for key in MURMUR2]

    @settings(max_examples=200, database=None, suppress_health_check=list(HealthCheck))
    @given(text)
    def gather(key: str) -> None:
        keys.append(key)

    gather()
    keys += [None] * 100
    rows = [(i, None if key is None else key if type_ == "string" else key.encode()) for i, key in enumerate(keys)]
    df = spark.createDataFrame(rows, f"v int, k {type_}").repartition(3)
    place = partition_column(queue, df.columns, "0")
    found = {row.v: row.p for row in selected(df, ["v", place], ["v", "p"]).collect()}
    assert len(found) == len(keys) > 200
    wrong = [k for i, k in enumerate(keys) if k is not None and found[i] != (murmur2(k.encode()) & 0x7FFFFFFF) % 7]
    assert wrong == []
    assert all(found[i] == (hash_ & 0x7FFFFFFF) % 7 for i, hash_ in enumerate(MURMUR2.values()))
    spread = Counter(found[i] for i, key in enumerate(keys) if key is None)
    assert spread.keys() == set(range(7))


def test_null_keys_do_not_depend_on_the_order(spark: SparkSession) -> None:
    """Q3, Q5: a replay that sees its rows in another order puts each row where it was."""
    queue = state("k string, m map<string,int>, v int", ["k"], 5)
    df = spark.createDataFrame([(None, {"x": i, "y": -i}, i) for i in range(100)], "k string, m map<string,int>, v int")

    def places(rows: DataFrame, salt: str) -> dict[int, int]:
        place = partition_column(queue, df.columns, salt)
        return {row.v: row.p for row in selected(rows, ["v", place], ["v", "p"]).collect()}

    first, second = places(df, "7"), places(df.orderBy(sf.desc("v")).repartition(3), "7")
    other_batch = places(df, "8")
    assert first == second != other_batch
    assert min(Counter(first.values()).values()) > 8


def test_odd_column_names(spark: SparkSession) -> None:
    """Q2: dots, backticks and keywords in a key's name are just a name."""
    ddl = "`a.b` string, `c``d` string, `select` string"
    queue = state(ddl, ["a.b", "c`d", "select"], 9)
    df = spark.createDataFrame([("x", "y", "z")], ddl)
    (row,) = selected(df, [partition_column(queue, df.columns, "0")], ["p"]).collect()
    assert row.p == partition_of(["x", "y", "z"], ["string"] * 3, 9)


SETTINGS: list[dict[str, str]] = [
    {},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "Asia/Kolkata"},
    {"spark.sql.ansi.enforceReservedKeywords": "true"},
]


def test_no_setting_of_a_session_moves_a_key(spark: SparkSession) -> None:
    """Q2: neither what SQL takes `timestamp` for, nor the time zone, nor which words are reserved."""
    types = "k struct<`order`:string,t:timestamp>"
    queue, key = state(types, ["k"], 64), {"order": "x", "t": dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)}
    df = spark.createDataFrame([(key,)], types)
    found = set[int]()
    for given_settings in SETTINGS:
        before = {name: spark.conf.get(name) for name in given_settings}
        try:
            for name, value in given_settings.items():
                spark.conf.set(name, value)
            found |= {row.p for row in selected(df, [partition_column(queue, df.columns, "0")], ["p"]).collect()}
        finally:
            for name, value in before.items():
                spark.conf.set(name, value or "")
    assert found == {partition_of([key], queue.key_types, 64)}
