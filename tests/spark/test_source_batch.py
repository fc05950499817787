"""A queue as a plain DataFrame: ranges, filters, types (Q6, U2)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.core.payload.schema import MESSAGE_COLUMNS
from spark_partq.spark.batch_reader import BatchReader, PushdownBatchReader
from spark_partq.spark.compat import PUSHDOWN_CONF
from spark_partq.spark.options import Options
from tests.clocks import wall_clock
from tests.helpers import driver, finished, new_file, opened, places, put, read

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 3 partitions: 20, 10 and 0 messages in files of 5, a minute apart from noon on."""
    partq.create_queue(store, "q", "v bigint", partitions=3)
    for partition, files in ((0, 4), (1, 2)):
        for n in range(files):
            put(store, partition, range(n * 5, n * 5 + 5), at=NOON + dt.timedelta(minutes=n))
    return store


@pytest.fixture(params=["true", "false"], ids=["pushdown", "plain"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """With filter push-down on and off."""
    spark.conf.set(PUSHDOWN_CONF, request.param)
    yield
    spark.conf.set(PUSHDOWN_CONF, "true")


def everything() -> list[tuple[int, int]]:
    return [(0, i) for i in range(20)] + [(1, i) for i in range(10)]


# ---- rows and ranges
def test_rows(spark: SparkSession, queue: str) -> None:
    """Q6: payload, then the message columns; `_flow` and `_epoch` are null in a batch."""
    df = read(spark, queue)
    assert df.columns == ["v", *(f["name"] for f in MESSAGE_COLUMNS["fields"])]
    assert df.schema == StructType.fromJson(
        {**MESSAGE_COLUMNS, "fields": [{**df.schema["v"].jsonValue()}, *MESSAGE_COLUMNS["fields"]]}
    )
    rows = df.collect()
    assert places(rows) == everything()
    for row in rows:
        assert row.v == row._offset
        assert (row._queue, row._redelivered, row._flow, row._epoch) == ("q", False, None, None)
    micros = {r.us for r in df.where("_partition = 0").selectExpr("unix_micros(_enqueued_at) us").collect()}
    assert micros == {int((NOON.timestamp() + 60 * n) * 1e6) for n in range(4)}


def test_order_in_a_partition(spark: SparkSession, queue: str) -> None:
    """Q4: rows of a partition come in the order of their offsets."""
    offsets = [r._offset for r in read(spark, queue).where("_partition = 0").collect()]
    assert offsets == list(range(20))


def test_empty_queue(spark: SparkSession, store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    assert read(spark, store).count() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, everything()),
        ({"startingOffsets": '{"q": {"0": 13}}'}, [(0, i) for i in range(13, 20)] + [(1, i) for i in range(10)]),
        ({"endingOffsets": '{"q": {"0": 3, "1": 0}}'}, [(0, 0), (0, 1), (0, 2)]),
        (
            {"startingOffsets": '{"q": {"0": 4, "1": -1}}', "endingOffsets": '{"q": {"0": 6, "1": -1}}'},
            [(0, 4), (0, 5)],
        ),
        ({"startingOffsets": '{"q": {"0": -2, "1": 9}}', "endingOffsets": '{"q": {"0": -2}}'}, [(1, 9)]),
        ({"startingOffsets": "latest"}, []),
        ({"endingOffsets": "earliest"}, []),
        ({"startingOffsets": '{"q": {"0": 20, "1": 10, "2": 0}}'}, []),
        ({"startingoffsets": '{"q": {"0": 19}}', "ENDINGOFFSETS": '{"q": {"1": 0}}'}, [(0, 19)]),
    ],
    ids=str,
)
def test_offset_ranges(
    spark: SparkSession, queue: str, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    """Q6: JSON offsets with -2 and -1; ends are exclusive; what is left out starts at earliest and ends at latest."""
    assert places(read(spark, queue, **options).collect()) == expected


def millis(minutes: float) -> int:
    return int((NOON.timestamp() + 60 * minutes) * 1000)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, everything()),
        (1, None, [(0, i) for i in range(5, 20)] + [(1, i) for i in range(5, 10)]),
        (0.5, 1.5, [(0, i) for i in range(5, 10)] + [(1, i) for i in range(5, 10)]),
        (None, 1, [(0, i) for i in range(5)] + [(1, i) for i in range(5)]),
        (3, None, [(0, i) for i in range(15, 20)]),
        (9, None, []),
        (None, 9, everything()),
        (None, -1, []),
    ],
    ids=str,
)
def test_time_ranges(
    spark: SparkSession, queue: str, start: float | None, end: float | None, expected: list[tuple[int, int]]
) -> None:
    """Q6: startingTimestamp is inclusive, endingTimestamp exclusive, both in milliseconds since 1970."""
    options: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest"}
    options |= {} if start is None else {"startingTimestamp": millis(start)}
    options |= {} if end is None else {"endingTimestamp": millis(end)}
    assert places(read(spark, queue, **options).collect()) == expected


def test_time_beyond_the_end(spark: SparkSession, queue: str) -> None:
    """Q6: as in Spark's Kafka source, a starting time that nothing follows is an error unless told otherwise."""
    with pytest.raises(Exception, match=r"\[OFFSET_OUT_OF_RANGE\].*startingOffsetsByTimestampStrategy=latest"):
        read(spark, queue, startingTimestamp=millis(60)).collect()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingOffsets": '{"q": {"0": 21}}'}, "OFFSET_OUT_OF_RANGE"),
        ({"endingOffsets": '{"q": {"0": 21}}'}, "OFFSET_OUT_OF_RANGE"),
        ({"endingOffsets": '{"q": {"7": 1}}'}, "INVALID_ARGUMENT"),
        ({"endingOffsets": '{"p": {"0": 1}}'}, "INVALID_ARGUMENT"),
        ({"endingTimestamp": "-5"}, "INVALID_ARGUMENT"),
        ({"queue": "p"}, "QUEUE_NOT_FOUND"),
        ({"startOffsets": "earliest"}, "INVALID_ARGUMENT"),
    ],
    ids=str,
)
def test_wrong_options(spark: SparkSession, queue: str, options: dict[str, str], error: str) -> None:
    """Bad input: one error of a stable class."""
    with pytest.raises(Exception, match=rf"\[{error}\]"):
        spark.read.format("partq").options(**{"path": queue, "queue": "q"} | options).load().collect()


def test_removed_messages(spark: SparkSession, queue: str) -> None:
    """Q8: earliest is the first message that is left; an offset before it is an error or passed over."""
    opened(queue).partitions[0].remove(lambda _: 2)
    assert places(read(spark, queue).collect()) == everything()[10:]
    options = {"startingOffsets": '{"q": {"0": 3}}'}
    with pytest.raises(Exception, match=r"\[OFFSET_OUT_OF_RANGE\].*messages 3 to 9"):
        read(spark, queue, **options).collect()
    assert places(read(spark, queue, **options, failOnDataLoss="false").collect()) == everything()[10:]


def test_several_queues(spark: SparkSession, queue: str) -> None:
    """Q6: several queues of the same columns in one DataFrame."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, [7, 8], queue="p")
    df = read(spark, queue, "q,p", startingOffsets='{"p": {"0": 1}, "q": {"0": 20}}')
    assert sorted((r._queue, r.v) for r in df.collect()) == [("p", 8)] + [("q", i) for i in range(10)]


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


def test_load_with_a_path(spark: SparkSession, queue: str) -> None:
    """U2: the store may be given to load()."""
    assert spark.read.format("partq").option("queue", "q").load(queue).count() == 30
    assert spark.read.format("PartQ").option("QUEUE", "q").load(Path(queue).as_uri()).count() == 30


def test_writing_is_not_supported(spark: SparkSession, queue: str) -> None:
    """U2: `df.write.format("partq")` is refused, not half done."""
    with pytest.raises(Exception, match=r"(?i)partq|not.*implement|unsupported"):
        spark.range(1).selectExpr("id v").write.format("partq").option("queue", "q").mode("append").save(queue)
    assert read(spark, queue).count() == 30


# ---- filters
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
    "_offset = 3",
    "_offset in (1, 19)",
    "_offset > 100",
    "not (_offset = 3)",
    "_offset = 3 or _partition = 1",
    "_enqueued_at >= timestamp'2024-01-01 12:02:00Z'",
    "_enqueued_at < timestamp'2024-01-01 07:01:00 America/New_York'",
    "_enqueued_at = timestamp'2024-01-01 12:03:00Z'",
    "v > 8 and _partition = 0",
    "_redelivered",
    "_flow is null and _epoch is null",
]


@pytest.mark.parametrize("condition", FILTERS)
@pytest.mark.usefixtures("pushdown")
def test_filters(spark: SparkSession, queue: str, condition: str) -> None:
    """Q6: a filter gives the same rows with push-down and without."""
    expected = list(
        spark.createDataFrame(read(spark, queue).collect(), read(spark, queue).schema).where(condition).collect()
    )
    assert sorted(read(spark, queue).where(condition).collect()) == sorted(expected)


def planned(
    store: str, *filters: ds.Filter, reader: type[BatchReader] = PushdownBatchReader
) -> list[tuple[int, int, int]]:
    """(partition, first offset, end) of each slice that would be read."""
    options = Options.parse({"path": store, "queue": "q"})
    made = reader(options, StructType())
    if filters:
        assert list(made.pushFilters(list(filters))) == list(filters), "Spark still applies all of them"
    slices = [piece.slice for task in made.partitions() for piece in task.pieces]
    return [(s.partition, s.base_offset + s.first_row, s.base_offset + s.last_row) for s in slices]


def test_a_store_is_no_option() -> None:
    """Spark makes text of it, without its storage options."""
    store = partq.Store("s3://bucket/queues", {"aws_region": "eu-west-1"})
    with pytest.raises(partq.InvalidArgumentError, match=r"'path', store.uri.*storageOptions.NAME"):
        Options.parse({"path": str(store), "queue": "q"})


ALL = [(0, 0, 5), (0, 5, 10), (0, 10, 15), (0, 15, 20), (1, 0, 5), (1, 5, 10)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        ([ds.EqualTo(("_partition",), 1)], ALL[4:]),
        ([ds.EqualNullSafe(("_partition",), 1)], ALL[4:]),
        ([ds.In(("_partition",), (1, 2))], ALL[4:]),
        ([ds.GreaterThan(("_partition",), 0)], ALL[4:]),
        ([ds.EqualTo(("_queue",), "x")], []),
        ([ds.GreaterThanOrEqual(("_offset",), 7), ds.LessThan(("_offset",), 10)], [(0, 5, 10), (1, 5, 10)]),
        ([ds.LessThanOrEqual(("_offset",), 4)], [(0, 0, 5), (1, 0, 5)]),
        ([ds.GreaterThan(("_offset",), 14), ds.EqualTo(("_partition",), 0)], [(0, 15, 20)]),
        ([ds.In(("_offset",), (12, 99))], [(0, 10, 15)]),
        ([ds.EqualTo(("_enqueued_at",), NOON + dt.timedelta(minutes=2))], [(0, 10, 15)]),
        ([ds.GreaterThan(("_enqueued_at",), NOON)], [ALL[1], ALL[2], ALL[3], ALL[5]]),
        # without a zone the instant is not known: nothing is left out
        ([ds.GreaterThan(("_enqueued_at",), dt.datetime(2030, 1, 1))], ALL),
        ([ds.Not(ds.EqualTo(("_partition",), 1))], ALL),
        ([ds.IsNull(("_flow",))], ALL),
        ([ds.EqualNullSafe(("_offset",), None)], ALL),
        ([ds.In(("_offset",), (None, 3))], ALL),
        ([ds.EqualTo(("v",), 3), ds.EqualTo(("s", "_offset"), 3)], ALL),
    ],
    ids=str,
)
def test_filters_leave_out_files(queue: str, filters: list[ds.Filter], expected: list[tuple[int, int, int]]) -> None:
    """Q6: files that cannot hold a row of the result are not read at all."""
    assert planned(queue, *filters) == expected


def test_pushdown_reaches_the_reader(spark: SparkSession, queue: str) -> None:
    """Q6: with the setting on, a damaged file that the filter rules out does not matter; with it off, it does."""
    table = opened(queue).partitions[0]
    (Path(queue) / table.folder / table.index.path(3)).write_bytes(b"x")
    assert read(spark, queue).where("_partition = 1").count() == 10
    assert read(spark, queue).where("_partition = 0 and _offset < 15").count() == 15
    assert read(spark, queue).where("_enqueued_at < timestamp'2024-01-01 12:02:30Z'").count() == 25
    with pytest.raises(Exception, match=r"\[CORRUPT_TABLE\].*offsets 15 to 19 of partition 0"):
        read(spark, queue).where("_offset >= 15").collect()


def test_tasks_are_bounded(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: a large partition is read by several tasks."""
    from spark_partq.spark import batch_reader

    partq.create_queue(store, "q", "v bigint", partitions=1)
    for _ in range(4):
        put(store, 0, range(5))
    size = int(opened(store).partitions[0].index.size[0])
    monkeypatch.setattr(batch_reader, "_TASK_BYTES", 2 * size)
    tasks = BatchReader(Options.parse({"path": store, "queue": "q"}), StructType()).partitions()
    assert [len(t.pieces) for t in tasks] == [2, 2]


PLAIN = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
df = spark.read.format("partq").option("path", sys.argv[1]).option("queue", "q").load()
print(df.where("_partition = 0 and _offset >= 18").count(), df.count())
"""


def test_session_of_somebody_else(queue: str) -> None:
    """U2, Q6: in a plain session, with nothing registered and without Delta, format("partq") is simply there."""
    assert finished(driver(PLAIN, queue)).split() == ["2", "30"]


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
    from tests.helpers import consume, flat

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
