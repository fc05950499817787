"""A queue as a plain DataFrame: rows, filters, types (Q1, Q4, Q6, Q7, U2). What the options mean is shown by test_batch_reader."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.core.payload.schema import MESSAGE_COLUMNS
from tests.clocks import no_grace, wall_clock
from tests.helpers import consume, flat, new_file, opened, places, put, read
from tests.spark.messages import NOON, everything, make_queue


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store, minutes_apart=True)


# ---- rows
def test_rows(spark: SparkSession, queue: str) -> None:
    """Q4, Q6: payload, then the message columns, in the order of the offsets; `_flow` and `_epoch` are null in a batch."""
    df = read(spark, queue)
    assert df.columns == ["v", *(f["name"] for f in MESSAGE_COLUMNS["fields"])]
    assert df.schema == StructType.fromJson(
        {**MESSAGE_COLUMNS, "fields": [{**df.schema["v"].jsonValue()}, *MESSAGE_COLUMNS["fields"]]}
    )
    rows = df.collect()
    assert places(rows) == everything()
    assert [r._offset for r in rows if r._partition == 0] == list(range(20))
    for row in rows:
        assert row.v == row._offset
        assert (row._queue, row._redelivered, row._flow, row._epoch) == ("q", False, None, None)
    micros = {r.us for r in df.selectExpr("unix_micros(_enqueued_at) us").collect()}
    assert micros == {int((NOON.timestamp() + 60 * n) * 1e6) for n in range(4)}


def test_options(spark: SparkSession, queue: str) -> None:
    """Q6, U2: they reach the reader, and what it refuses comes back with its class; the store may be given to load()."""
    options = {"startingoffsets": '{"q": {"0": 19}}', "ENDINGOFFSETS": '{"q": {"1": 0}}'}
    assert places(read(spark, queue, **options).collect()) == [(0, 19)]
    assert spark.read.format("PartQ").option("QUEUE", "q").load(Path(queue).as_uri()).count() == 30
    with pytest.raises(Exception, match=r"\[OFFSET_OUT_OF_RANGE\].*ends at offset 20"):
        read(spark, queue, endingOffsets='{"q": {"0": 21}}').collect()


@pytest.mark.long
def test_a_dataframe_that_is_used_after_its_files_were_removed(spark: SparkSession, queue: str) -> None:
    """Q6: Spark plans a DataFrame once. Nothing is damaged when maintenance has removed what it planned to read."""
    partq.alter_queue(queue, "q", max_bytes=1)
    df = read(spark, queue)
    assert df.count() == 30
    with no_grace():
        partq.maintain(queue)
    with pytest.raises(Exception, match=r"\[OFFSET_OUT_OF_RANGE\].*Nothing is damaged\. Load the DataFrame again"):
        df.collect()
    partq.delete_queue(queue, "q")
    with pytest.raises(Exception, match=r"\[QUEUE_NOT_FOUND\]"):
        df.collect()
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    with pytest.raises(Exception, match=r"\[QUEUE_NOT_FOUND\].*deleted and created again"):
        df.collect()


def test_two_actions_see_their_own_present(spark: SparkSession, queue: str) -> None:
    """Q6: a DataFrame is planned when it is used, as with any other table."""
    df = read(spark, queue)
    assert df.count() == 30
    put(queue, 2, [1])
    assert read(spark, queue).count() == 31


def test_joined_with_itself(spark: SparkSession, queue: str) -> None:
    """U2: an ordinary DataFrame in SQL."""
    read(spark, queue).createOrReplaceTempView("messages")
    (row,) = spark.sql(
        "select count(*) n, max(a.v) top from messages a join messages b using (_partition, _offset) where a._partition = 1"
    ).collect()
    assert (row.n, row.top) == (10, 9)


def test_writing_is_not_supported(spark: SparkSession, queue: str) -> None:
    """U2: `df.write.format("partq")` is refused, not half done."""
    with pytest.raises(Exception, match=r"(?i)partq|not.*implement|unsupported"):
        spark.range(1).selectExpr("id v").write.format("partq").option("queue", "q").mode("append").save(queue)
    assert read(spark, queue).count() == 30


# ---- filters
# Every second one is in the short test: together they are of every kind.
FILTERS = [
    "_partition = 1",
    "_partition in (0, 2)",
    "_partition > 0 and _partition < 2",
    "_partition <=> 1",
    "_partition is null",
    "_queue = 'q'",
    "_queue = 'other'",
    "_offset >= 7 and _offset < 12",
    "_offset between 18 and 30",
    "not (_offset = 3)",
    "_offset = 3",
    "_offset = 3 or _partition = 1",
    "_offset in (1, 19)",
    "_enqueued_at >= timestamp'2024-01-01 12:02:00Z'",
    "_offset > 100",
    "_enqueued_at < timestamp'2024-01-01 07:01:00 America/New_York'",
    "_enqueued_at = timestamp'2024-01-01 12:03:00Z'",
    "v > 8 and _partition = 0",
    "_redelivered",
    "_flow is null and _epoch is null",
]


@pytest.mark.parametrize(
    ("pushdown", "conditions"),
    [
        ("true", FILTERS[1::8]),
        ("false", FILTERS[1::2]),
        pytest.param("true", FILTERS, marks=pytest.mark.long),
        pytest.param("false", FILTERS, marks=pytest.mark.long),
    ],
    ids=["pushdown", "plain", "pushdown of all", "plain of all"],
)
def test_filters(spark: SparkSession, queue: str, pushdown: str, conditions: list[str]) -> None:
    """Q6: a filter gives the same rows with push-down and without."""

    def filtered(df: DataFrame) -> dict[str, list[Row]]:
        parts = [df.where(condition).withColumn("condition", sf.lit(condition)) for condition in conditions]
        rows = reduce(DataFrame.unionAll, parts).collect()
        return {condition: sorted(r for r in rows if r.condition == condition) for condition in conditions}

    df = read(spark, queue)
    expected = filtered(spark.createDataFrame(df.collect(), df.schema))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        assert filtered(read(spark, queue)) == expected
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_filter_changes_nothing_else(spark: SparkSession, queue: str, pushdown: str) -> None:
    """U2: a DataFrame that was filtered once is still whole, and may be joined with its filtered self."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        df = read(spark, queue)
        first = df.where("_offset < 5")
        assert (first.count(), df.count(), df.union(first).count()) == (10, 30, 40)
        both = df.select("_partition", "_offset").join(
            first.select("_partition", "_offset", "v"), ["_partition", "_offset"], "left"
        )
        assert (both.count(), both.where("v is null").count()) == (30, 20)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


# ---- types
TYPES = {
    "a_string": ("string", "concat('ä東 ', id)"),
    "a_byte": ("tinyint", "cast(id - 60 as tinyint)"),
    "a_short": ("smallint", "cast(id * -300 as smallint)"),
    "an_int": ("int", "cast(id * 10000000 as int)"),
    "a_long": ("bigint", "id * 100000000000000000"),
    "a_float": ("float", "if(id = 3, float('NaN'), cast(id / 3 as float))"),
    "a_double": ("double", "if(id = 4, double('-Infinity'), if(id = 5, -0.0D, id / 3))"),
    "a_boolean": ("boolean", "id % 2 = 0"),
    "a_binary": ("binary", "unhex(hex(concat('x', id)))"),
    "a_date": ("date", "date_add(date'0001-01-01', cast(id * 90000 as int))"),
    "an_instant": ("timestamp", "timestamp'1900-01-01 00:00:00.000001' + make_dt_interval(cast(id * 11000 as int), 5)"),
    "a_local_time": (
        "timestamp_ntz",
        "timestamp_ntz'2024-03-10 01:30:00' + make_dt_interval(0, cast(id as int), 15, 0.5)",
    ),
    "a_decimal": ("decimal(10,2)", "cast(id - 3.25 as decimal(10,2))"),
    "a_wide_decimal": ("decimal(38,18)", "cast(concat('-12345678901234567890.', id) as decimal(38,18))"),
    "an_array": ("array<string>", "if(id = 6, array(), array('x', null, concat(id)))"),
    "a_struct": ("struct<x:bigint,y:array<date>>", "named_struct('x', id, 'y', array(date'2024-02-29', null))"),
    "a_map": (
        "map<string,struct<z:decimal(20,3)>>",
        "map(concat('k', id), named_struct('z', cast(id as decimal(20,3))))",
    ),
    "deep": (
        "array<map<int,array<struct<at:timestamp,l:timestamp_ntz>>>>",
        "array(map(1, array(named_struct('at', timestamp'2024-11-03 05:30:00Z', 'l', timestamp_ntz'2024-11-03 01:30:00'))))",
    ),
}


def typed(spark: SparkSession) -> DataFrame:
    """Eight rows of every payload type, one of them all null."""
    schema = StructType.fromDDL(", ".join(f"{name} {type_}" for name, (type_, _) in TYPES.items()))
    columns = [f"if(id = 7, null, cast({sql} as {type_})) {name}" for name, (type_, sql) in TYPES.items()]
    df = spark.range(8).selectExpr(*columns)
    return df.select(*(sf.col(f.name).cast(f.dataType) for f in schema))


@pytest.mark.usefixtures("written_by")
@pytest.mark.parametrize("large", [False, True], ids=["arrow", "large arrow types"])
def test_every_type_in_and_out(spark: SparkSession, store: str, large: bool) -> None:
    """Q6: what was written is what is read, for every payload type, in a session zone that is not UTC."""
    df = typed(spark)
    conf = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(conf, str(large).lower())
    try:
        partq.create_queue(store, "q", df.schema, key=["a_long", "a_struct"], partitions=3)
        assert partq.append(df, store, "q") == 8
        found = read(spark, store).select(df.columns)
        assert_df_equality(
            found.drop("a_map"), df.drop("a_map"), ignore_row_order=False, ignore_nullable=True, allow_nan_equality=True,
            transforms=[lambda d: d.orderBy(sf.col("a_long").asc_nulls_last())],
        )  # fmt: skip
        text = [sf.to_json(sf.struct("a_long", "a_map")).alias("m")]
        assert sorted(found.select(text).collect()) == sorted(df.select(text).collect())
        assert found.select("a_map").schema.simpleString() == df.select("a_map").schema.simpleString()
    finally:
        spark.conf.unset(conf)


def test_every_type_as_a_stream(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q7: the same by the streaming source."""
    df = typed(spark)
    partq.create_queue(store, "q", df.schema, partitions=2)
    partq.append(df, store, "q")
    batch = {str(r.asDict()) for r in read(spark, store).drop("_flow", "_epoch").collect()}
    rows = flat(consume(spark, store, tmp_path / "cp", group="g"))
    assert {str({k: v for k, v in r.asDict().items() if k not in ("_flow", "_epoch")}) for r in rows} == batch


def test_odd_column_names(spark: SparkSession, store: str) -> None:
    """Q1, Q6: dots, backticks, keywords and other letters in names, also as the key and in order_by."""
    ddl = "`a.b` bigint, `c``d` string, `select` int, `ä東` string"
    partq.create_queue(store, "q", ddl, key=["a.b", "c`d"], partitions=2)
    df = spark.createDataFrame([(i, f"x{i}", 20 - i, "z") for i in range(20)], ddl)
    assert partq.append(df, store, "q", order_by=["select", "c`d"]) == 20
    found = read(spark, store)
    assert found.columns[:4] == ["a.b", "c`d", "select", "ä東"]
    assert sorted(tuple(r)[:4] for r in found.collect()) == sorted(tuple(r) for r in df.collect())
    for partition in range(2):
        order = [r["select"] for r in found.where(f"_partition = {partition}").collect()]
        assert order == sorted(order)


def test_files_of_spark_itself(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q6: Parquet in another physical form (nanoseconds, large strings) is given in the queue's types."""
    partq.create_queue(store, "q", "at timestamp, s string, n bigint", partitions=1)
    columns = {
        "at": pa.array([1_700_000_000_123_456_000], pa.timestamp("ns", tz="UTC")),
        "s": pa.array(["x"], pa.large_string()),
        "n": pa.array([5], pa.int32()),
    }
    with wall_clock(NOON):
        opened(store).partitions[0].append([new_file(store, "q", 0, columns)], None)
    (row,) = read(spark, store).selectExpr("unix_micros(at) at", "s", "n").collect()
    assert row == Row(at=1_700_000_000_123_456, s="x", n=5)
