"""Q6: what our log says, judged by delta-spark, delta-rs and DuckDB; and what delta-spark's log says, read by ours."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from spark_partq.core.errors import CorruptTableError
from spark_partq.core.payload.schema import payload_schema, with_columns
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.queue.partition_table import CLOCK, NEXT
from spark_partq.storage.store import Store
from tests.helpers import opened, read
from tests.storage.log.readings import ours, theirs

PARTITIONS = 2
# Every type that a queue takes, but timestamp_ntz: see `test_times_without_a_zone`. The expressions make values of a number `id`.
COLUMNS = {
    "s string": "if(id % 5 = 0, null, concat('Zürich % 東京 🚀', id))",
    "i int": "if(id % 5 = 1, null, cast(-2147483648 + id as int))",
    "l bigint": "if(id % 5 = 2, null, 9223372036854775807L - id)",
    "h smallint": "cast(-32768 + id as smallint)",
    "b tinyint": "cast(-128 + id as tinyint)",
    "f float": "if(id % 5 = 3, float('NaN'), cast(0.1 * id as float))",
    "d double": "if(id % 5 = 4, double('-Infinity'), 1e300 * id)",
    "o boolean": "if(id % 3 = 0, null, id % 2 = 0)",
    "x binary": "if(id % 4 = 0, null, unhex('00FF10'))",
    "day date": "if(id % 4 = 1, null, date_add(date'1500-02-28', cast(id as int)))",
    "t timestamp": "if(id % 4 = 2, null, timestamp'1850-01-01 00:00:00.000001Z' + make_dt_interval(1000 * id))",
    "small decimal(10,2)": "cast(-12345678.90 + id as decimal(10,2))",
    "large decimal(38,18)": "cast(cast('12345678901234567890.123456789012345678' as decimal(38,18)) + id as decimal(38,18))",
    "a array<string>": "if(id % 4 = 3, null, array('a', null, cast(id as string)))",
    "deep array<struct<n:decimal(20,0),at:timestamp,inner:array<date>>>": (
        "array(named_struct('n', cast(id as decimal(20,0)), 'at', timestamp'2024-03-10 07:00:00Z', 'inner', array(date'2024-02-29')))"
    ),
    "r struct<y:int,z:struct<w:array<float>,v:boolean>>": (
        "named_struct('y', cast(id as int), 'z', if(id % 2 = 0, null, named_struct("
        "'w', if(id % 3 = 0, null, array(float(1.5))), 'v', if(id % 3 = 1, null, true))))"
    ),
    "m map<string,array<decimal(38,10)>>": "map('k', array(cast(id as decimal(38,10)), null), 'none', null)",
}
DDL = ", ".join(COLUMNS)
PAYLOAD = payload_schema(DDL)
NAMES = [field["name"] for field in PAYLOAD["fields"]]
KEY = [name for name in NAMES if name != "m"]
READ = with_columns(PAYLOAD, ("_enqueued_at", "timestamp"))

Message = tuple[Any, ...]  # offset, the payload's columns, _enqueued_at


# ---- messages that can be compared
def comparable(value: Any, type_: Any) -> Any:
    """A value of whatever reader in one form."""
    if value is None:
        return None
    if isinstance(type_, dict):
        if type_["type"] == "array":
            return [comparable(v, type_["elementType"]) for v in value]
        if type_["type"] == "map":
            pairs = value.items() if isinstance(value, dict) else value
            return {comparable(k, type_["keyType"]): comparable(v, type_["valueType"]) for k, v in pairs}
        return {f["name"]: comparable(value[f["name"]], f["type"]) for f in type_["fields"]}
    match type_:
        case "timestamp":  # without a zone it is local, as PySpark gives it
            return (value.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case "timestamp_ntz":
            return value.replace(tzinfo=None)
        case "binary":
            return bytes(value)
        case "float" | "double" if math.isnan(value):
            return "NaN"
    return value


def messages_of(rows: list[Row] | list[dict[str, Any]], read_as: Mapping[str, Any] = READ) -> list[Message]:
    fields = [(field["name"], field["type"]) for field in read_as["fields"]]
    found = [(row["offset"], *(comparable(row[name], type_) for name, type_ in fields)) for row in rows]
    return sorted(found, key=lambda message: int(message[0]))


def of_partq(spark: SparkSession, store: str, partition: int) -> list[Message]:
    df = read(spark, store).where(f"_partition = {partition}").withColumnRenamed("_offset", "offset")
    return messages_of(df.collect())


def of_delta_spark(spark: SparkSession, uri: str, read_as: Mapping[str, Any] = READ) -> list[Message]:
    return messages_of(offsets(spark.read.format("delta").load(uri)).collect(), read_as)


def of_a_stream(spark: SparkSession, uri: str, read_as: Mapping[str, Any] = READ) -> list[Message]:
    rows: list[Row] = []
    query = (
        spark.readStream.format("delta")
        .load(uri)
        .writeStream.foreachBatch(lambda df, _: rows.extend(offsets(df).collect()))
        .option("checkpointLocation", f"{uri}-stream")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
        shutil.rmtree(f"{uri}-stream")
    return messages_of(rows, read_as)


def of_delta_rs(_: SparkSession, uri: str, read_as: Mapping[str, Any] = READ) -> list[Message]:
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return messages_of([{**row, "offset": row["base_offset"] + row["_row"]} for row in rows], read_as)


def of_duckdb(_: SparkSession, uri: str, read_as: Mapping[str, Any] = READ) -> list[Message]:
    connection = duckdb.connect()
    try:
        duckdb_extensions.import_extension("delta", con=connection)
        connection.execute("load delta; set timezone = 'UTC'")
        found = connection.execute(f"select *, base_offset + _row as \"offset\" from delta_scan('{uri}')")
        table: pa.Table = found.to_arrow_table()
    finally:
        connection.close()
    return messages_of(table.to_pylist(), read_as)


def offsets(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "base_offset + _row as offset")


READERS = [of_delta_spark, of_a_stream, of_delta_rs, of_duckdb]


# ---- logs that can be compared
@dataclass(frozen=True)
class State:
    """A table as its log tells it; a file is its size, row count and partition values."""

    version: int
    files: Mapping[str, tuple[int, int | None, Mapping[str, str | None]]]
    transactions: Mapping[str, int]
    table_id: str
    partition_columns: list[str]
    configuration: Mapping[str, str]


def state_of_delta_spark(spark: SparkSession, uri: str) -> State:
    jvm: Any = spark._jvm
    nothing = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)
    snapshot = log.update(False, nothing, nothing)
    rows = DataFrame(snapshot.allFiles().toDF(), spark).select("path", "size", "stats", "partitionValues").collect()
    transactions, metadata = snapshot.setTransactions(), snapshot.metadata()
    columns, settings = metadata.partitionColumns(), metadata.configuration().toSeq()
    return State(
        snapshot.version(),
        {unquote(row.path): (row.size, json.loads(row.stats)["numRecords"], row.partitionValues) for row in rows},
        {transactions.apply(i).appId(): transactions.apply(i).version() for i in range(transactions.size())},
        metadata.id(),
        [columns.apply(i) for i in range(columns.size())],
        {settings.apply(i)._1(): settings.apply(i)._2() for i in range(settings.size())},
    )


def state_of_ours(log: DeltaLog) -> State:
    log.refresh()
    snapshot, metadata = log.snapshot, log.snapshot.metadata
    assert metadata is not None
    return State(
        snapshot.version,
        {name: (add.size, add.rows, add.partition_values) for name, add in snapshot.files.items()},
        {app: txn.version for app, txn in snapshot.transactions.items()},
        metadata.id,
        list(metadata.partition_columns),
        metadata.configuration,
    )


def handle(uri: str, *, only_ours: bool = True) -> DeltaLog:
    root, _, folder = uri.rpartition("/")
    return DeltaLog(Store(root), folder, "the table", only_ours=only_ours)


# ---- our log
@dataclass(frozen=True)
class Stage:
    """The partitions of a queue at one time, their messages, and which of them each version held (first, next offset)."""

    folder: str
    messages: list[list[Message]]
    versions: list[dict[int, tuple[int, int]]]

    def uri(self, partition: int) -> str:
        return f"{self.folder}/partition={partition}"


@pytest.fixture(scope="module")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """A queue of all types; first with all of its log, then behind a checkpoint, with the older entries removed.

    Retention has taken the oldest messages of both; the second one has a micro-batch more.
    """
    store = str(tmp_path_factory.mktemp("judges") / "store")
    folder = f"{store}/queues/q/partitions"
    partq.create_queue(store, "q", DDL, key=KEY, partitions=PARTITIONS)
    versions: list[dict[int, tuple[int, int]]] = [{0: (0, 0)} for _ in range(PARTITIONS)]

    def note() -> None:
        for p, table in enumerate(opened(store).partitions):
            version = handle(f"{folder}/partition={p}").log.load().version
            versions[p][version] = table.first_offset, table.next_offset

    def append(batch: int) -> None:
        columns = [f"{value} as {name.split()[0]}" for name, value in COLUMNS.items()]
        df = spark.range(batch * 20, batch * 20 + 20, 1, 2).selectExpr(*columns)
        assert partq.append(df, store, "q", sink_id="s", batch_id=batch) == 20
        note()

    def stage(folder: str) -> Stage:
        messages = [of_partq(spark, store, p) for p in range(PARTITIONS)]
        return Stage(folder, messages, [dict(v) for v in versions])

    for batch in range(3):
        append(batch)
    for table in opened(store).partitions:
        assert table.remove(lambda index: 1) > 0
    note()
    whole = stage(f"{store}-whole")
    shutil.copytree(folder, whole.folder)
    for p, table in enumerate(opened(store).partitions):
        log = handle(f"{folder}/partition={p}").log
        for version in range(4):
            os.utime(f"{folder}/partition={p}/_delta_log/{version:020d}.json", (0, 0))
        table.checkpoint()
        assert log.names().entries == log.names().checkpoints == [4]
        versions[p] = {4: versions[p][4]}
    append(3)
    return {"all entries": whole, "behind a checkpoint": stage(folder)}


@pytest.fixture(params=[pytest.param("all entries", marks=pytest.mark.long), "behind a checkpoint"])
def stage(request: pytest.FixtureRequest, stages: dict[str, Stage]) -> Stage:
    return stages[request.param]


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_same_messages(spark: SparkSession, stage: Stage, reader: Callable[[SparkSession, str], list[Message]]) -> None:
    """Q6: every reader sees the same messages of every type, at offsets that are `base_offset + _row`."""
    for p, expected in enumerate(stage.messages):
        first, after = list(stage.versions[p].values())[-1]
        assert 0 < first < after
        assert [message[0] for message in expected] == list(range(first, after))
        assert reader(spark, stage.uri(p)) == expected


def test_same_log(spark: SparkSession, stage: Stage) -> None:
    """Q6: delta-spark, delta-rs and our reader tell the same version, files, row counts, transactions and settings."""
    for p in range(PARTITIONS):
        uri, log = stage.uri(p), handle(stage.uri(p))
        state = state_of_ours(log)
        assert state == state_of_delta_spark(spark, uri)
        assert ours(log, [NEXT, CLOCK, "partq:sink/s"]) == theirs(uri, [NEXT, CLOCK, "partq:sink/s"])
        assert state.transactions[NEXT] == stage.messages[p][-1][0] + 1


def test_history(spark: SparkSession, stage: Stage) -> None:
    """Q6: `DESCRIBE HISTORY` lists each version that has an entry, with what was done."""
    done = ["CREATE TABLE", "WRITE", "WRITE", "WRITE", "DELETE", "WRITE"]
    for p in range(PARTITIONS):
        rows = spark.sql(f"describe history delta.`{stage.uri(p)}`").collect()
        assert [(row.version, row.operation) for row in reversed(rows)] == [(v, done[v]) for v in stage.versions[p]]
        assert {row.engineInfo for row in rows} == {"spark_partq"}


@pytest.mark.long
def test_time_travel(spark: SparkSession, stage: Stage) -> None:
    """Q6: an older version holds the messages of that time, as long as the log reaches back to it."""
    uri = stage.uri(0)
    for version, (first, after) in stage.versions[0].items():
        df = offsets(spark.read.format("delta").option("versionAsOf", version).load(uri))
        assert sorted(row.offset for row in df.select("offset").collect()) == list(range(first, after))
        names = pa.table(DeltaTable(uri, version=version).get_add_actions(flatten=True))
        assert sum(names["num_records"].to_pylist()) == after - first
    if 0 not in stage.versions[0]:
        with pytest.raises(AnalysisException, match="Cannot time travel Delta table to version 1"):
            spark.read.format("delta").option("versionAsOf", 1).load(uri).count()


@pytest.mark.parametrize("reader", [of_delta_spark, of_delta_rs, of_duckdb], ids=lambda f: f.__name__)
def test_times_without_a_zone(
    spark: SparkSession, store: str, reader: Callable[[SparkSession, str, Mapping[str, Any]], list[Message]]
) -> None:
    """Q6: a queue with times that have no zone is read by every reader."""
    partq.create_queue(store, "q", "n timestamp_ntz", key="n", partitions=1)
    partq.append(spark.sql("select timestamp_ntz'2024-03-10 02:30:00.000001' n"), store, "q")
    columns = payload_schema("n timestamp_ntz")
    found = reader(spark, f"{store}/queues/q/partitions/partition=0", columns)
    assert found == [(0, dt.datetime(2024, 3, 10, 2, 30, 0, 1))]


# ---- delta-spark's log
def made_by_delta_spark(spark: SparkSession, uri: str, **properties: str) -> None:
    settings = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"create table delta.`{uri}` (k string, n bigint) using delta partitioned by (k) tblproperties ({settings})"
    )


def append_by_delta_spark(spark: SparkSession, uri: str, first: int, app: str, version: int) -> None:
    df = spark.range(first, first + 6, 1, 1).selectExpr("if(id % 3 = 0, null, concat('é %/', id % 3)) k", "id n")
    df.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", version).save(uri)


@pytest.mark.long
def test_their_commits_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Our reader sees what delta-spark sees after its appends, rewriting deletes and checkpoints."""
    uri = str(tmp_path / "t")
    made_by_delta_spark(spark, uri, enableDeletionVectors="false", checkpointInterval="2")
    kept = handle(uri, only_ours=False)
    steps: list[Callable[[], object]] = [
        lambda: append_by_delta_spark(spark, uri, 0, "a", 1),
        lambda: append_by_delta_spark(spark, uri, 6, "é/b", 2**40),
        lambda: spark.sql(f"delete from delta.`{uri}` where n in (2, 7)"),
        lambda: spark.sql(f"delete from delta.`{uri}` where k is null"),
        lambda: append_by_delta_spark(spark, uri, 12, "a", 2),
    ]
    for version, step in enumerate(steps, 1):
        step()
        state = state_of_delta_spark(spark, uri)
        assert state.version == version
        assert state_of_ours(kept) == state == state_of_ours(handle(uri, only_ours=False))
        assert ours(kept, ["a", "é/b"]) == theirs(uri, ["a", "é/b"])
    assert LogFolder(Store(str(tmp_path)), "t").names().checkpoints == [2, 4]
    assert kept.snapshot.transactions["a"].version == 2
    assert kept.snapshot.transactions["é/b"].version == 2**40
    assert sum(rows or 0 for _, rows, _ in state.files.values()) == 12
    for path in Path(f"{uri}/_delta_log").glob("*checkpoint*"):
        path.unlink()
    with pytest.raises(CorruptTableError, match=r"0{20}\.json: it was committed by Apache-Spark/\S+ Delta-Lake/\S+ "):
        handle(uri).refresh()


@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("deletionVectors", {"enableDeletionVectors": "true"}),
        pytest.param(
            "column mapping|columnMapping",
            {"columnMapping.mode": "name", "enableDeletionVectors": "false"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["deletion vectors", "column mapping"],
)
def test_their_features_are_refused(
    spark: SparkSession, tmp_path: Path, feature: str, properties: dict[str, str]
) -> None:
    """A table of delta-spark that uses more than our reader knows is refused, from its log and from its checkpoint."""
    uri = str(tmp_path / "t")
    made_by_delta_spark(spark, uri, checkpointInterval="1", **properties)
    with pytest.raises(CorruptTableError, match=rf"0{{20}}\.json: .*({feature})"):
        handle(uri, only_ours=False).refresh()
    append_by_delta_spark(spark, uri, 0, "a", 1)
    with pytest.raises(CorruptTableError, match=rf"0{{19}}1\.checkpoint\.parquet: .*({feature})"):
        handle(uri, only_ours=False).refresh()
