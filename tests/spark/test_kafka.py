"""X9: what becomes of messages as Spark's Kafka connector gives them, and what it is given; without a broker."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from spark_partq.core.delivery.positions import Position
from spark_partq.core.delivery.topics import Topic
from spark_partq.core.payload.keys import partition_of
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.stored import MOST
from spark_partq.spark import from_topic
from spark_partq.spark.checkpoint import QueryCheckpoint
from spark_partq.spark.from_topic import COLUMNS, TopicSink, columns_for
from spark_partq.spark.to_topic import TopicWriter
from spark_partq.storage.store import Store
from tests.helpers import read
from tests.spark.jobs import Here

SCHEMA = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
QUEUE = "key string, value string, timestamp timestamp, headers array<struct<key:string,value:binary>>"
AT = dt.datetime(2024, 5, 1, 12, 0, 0)

Message = tuple[str | None, str, int, int]  # key, value, Kafka's partition and offset


def topic(topic_id: str = "a1", **bounds: tuple[int, int]) -> Topic:
    return Topic("orders", topic_id, {int(n[1:]): b for n, b in (bounds or {"p0": (0, 10), "p1": (0, 10)}).items()})


def arrived(spark: SparkSession, messages: Sequence[Message]) -> DataFrame:
    """As the connector gives them: each partition in the order of its offsets."""
    rows = [
        (
            None if key is None else key.encode(), value.encode(), "orders", partition, offset,
            AT + dt.timedelta(seconds=offset), 0, [Row(key="trace", value=f"{partition}-{offset}".encode())],
        )
        for key, value, partition, offset in messages
    ]  # fmt: skip
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


class Sinks:
    """A queue for a topic, and sinks that begin anew with each micro-batch, as after a crash."""

    def __init__(
        self, spark: SparkSession, store: str, key: str | None = "key", ddl: str = QUEUE, **settings: Any
    ) -> None:
        self.spark, self.store = spark, store
        partq.create_queue(store, "q", ddl, key, partitions=3, **settings)
        self.schema, self.key = payload_schema(ddl), [] if key is None else [key]

    def sink(self, found: Topic | None = None, sink_id: str = "kafka.orders", **options: Any) -> TopicSink:
        null_keys = options.pop("null_keys", False)
        columns = columns_for(self.schema, self.key, options.pop("select", []), options.pop("key_from", None))
        return TopicSink(Store.at(self.store), "q", sink_id, columns, lambda: found or topic(), null_keys=null_keys)

    def write(self, messages: Sequence[Message], ends: dict[str, int], **options: Any) -> None:
        self.sink(**options).write(arrived(self.spark, messages), options.get("found") or topic(), ends)

    def rows(self) -> list[Row]:
        return sorted(read(self.spark, self.store).collect(), key=lambda row: (row._partition, row._offset))


def test_each_message_once(spark: SparkSession, store: str) -> None:
    """X9, Q4, Q5: a micro-batch that comes again, and one of another checkpoint that overlaps it, add only what the queue lacks."""
    sinks = Sinks(spark, store, key_hash="murmur2")
    first = [(f"k{n % 3}", f"v{n}", n % 3 % 2, n) for n in range(6)]
    sinks.write(first, {"0": 6, "1": 6})
    sinks.write(first, {"0": 6, "1": 6})
    assert sinks.sink().starting_offsets("latest", True, False) == '{"orders": {"0": 6, "1": 6}}'
    more = [(f"k{n % 3}", f"v{n}", n % 3 % 2, n) for n in range(3, 10)]
    sinks.write(more, {"0": 10, "1": 10})
    rows = sinks.rows()
    assert sorted(row.value for row in rows) == [f"v{n}" for n in range(10)]
    for key in ("k0", "k1", "k2"):
        mine = [row for row in rows if row.key == key]
        assert [int(row.value[1:]) for row in mine] == list(range(int(key[1:]), 10, 3))
        assert {row._partition for row in mine} == {partition_of([key], ["string"], 3, "murmur2")}
    for row in rows:
        n = int(row.value[1:])
        assert row.timestamp == AT + dt.timedelta(seconds=n)
        assert [(h.key, bytes(h.value)) for h in row.headers] == [("trace", f"{n % 3 % 2}-{n}".encode())]


def test_a_gap_of_offsets(spark: SparkSession, store: str) -> None:
    """X9: a compacted topic, or one of transactions, has offsets without a message; a partition may have none at all."""
    sinks = Sinks(spark, store)
    sinks.write([("a", "1", 0, 3), ("a", "2", 0, 700)], {"0": 800, "1": 4})
    sinks.write([("a", "3", 0, 900)], {"0": 950, "1": 4})
    assert [row.value for row in sinks.rows()] == ["1", "2", "3"]
    found = topic(p0=(0, 950), p1=(0, 4))
    assert json.loads(sinks.sink(found).starting_offsets("earliest", True, False)) == {"orders": {"0": 950, "1": 4}}


def test_a_topic_that_has_shrunk(spark: SparkSession, store: str) -> None:
    """X9: the same topic that ends before what the queue has gives other messages their offsets, so nothing of it is written."""
    sinks = Sinks(spark, store)
    sinks.write([("a", "1", 0, 0), ("a", "2", 0, 1), ("b", "3", 1, 4)], {"0": 2, "1": 5})
    shrunk = topic(p0=(0, 1), p1=(0, 5))
    says = (
        r"up to 2, but that partition ends at 1: .* Nothing was written\. Restore the topic, or use another --sink-id"
    )
    for fail_on_data_loss in (True, False):
        with pytest.raises(partq.TargetAheadError, match=f"partition 0 of topic 'orders' {says}"):
            sinks.sink(shrunk).starting_offsets("earliest", fail_on_data_loss, False)
    assert sorted(row.value for row in sinks.rows()) == ["1", "2", "3"]
    as_long = topic(p0=(0, 2), p1=(5, 5))
    assert json.loads(sinks.sink(as_long).starting_offsets("earliest", True, False)) == {"orders": {"0": 2, "1": 5}}


def test_another_job_is_faster_while_the_broker_answers(spark: SparkSession, store: str) -> None:
    """X9: the queue then has more than the answer says, and the topic has not shrunk."""
    sinks = Sinks(spark, store)
    sinks.write([("a", "1", 0, 0)], {"0": 1})

    def slow_answer() -> Topic:
        sinks.write([("a", "2", 0, 1)], {"0": 2})
        return topic(p0=(0, 1))

    sink = TopicSink(Store.at(store), "q", "kafka.orders", sinks.sink()._columns, slow_answer)
    assert json.loads(sink.starting_offsets("earliest", True, False)) == {"orders": {"0": 1}}
    assert [row.value for row in sinks.rows()] == ["1", "2"]


def test_two_topics_of_a_queue(spark: SparkSession, store: str) -> None:
    """X9: each has positions of its own."""
    sinks = Sinks(spark, store)
    sinks.write([("a", "1", 0, 0)], {"0": 1})
    sinks.write([("a", "2", 0, 0)], {"0": 1}, sink_id="other", found=topic("b2"))
    assert [row.value for row in sinks.rows()] == ["1", "2"]
    with pytest.raises(partq.CheckpointMismatchError, match="its id is a1"):
        sinks.sink(topic("b2")).starting_offsets("earliest", True, False)


def test_messages_without_a_key(spark: SparkSession, store: str) -> None:
    """X9, Q3: are refused, unless somebody says that they may be spread."""
    sinks = Sinks(spark, store)
    messages: list[Message] = [("a", "1", 0, 0), ("a", "0", 0, 1), *((None, f"{n}", 0, n) for n in range(2, 9))]
    with pytest.raises(
        partq.InvalidArgumentError,
        match=r"message 2 of partition 0 of topic 'orders' has no key.*--key-from.*--allow-null-keys",
    ):
        sinks.write(messages, {"0": 9})
    assert sinks.rows() == []
    sinks.write(messages, {"0": 9}, null_keys=True)
    assert len(sinks.rows()) == 9


def test_a_key_in_the_value(spark: SparkSession, store: str) -> None:
    """X9: a topic without keys has them in its values, which are JSON."""
    ddl = "customer bigint, value binary"
    sinks = Sinks(spark, store, "customer", ddl)
    messages: list[Message] = [(None, f'{{"customer": {n % 2}, "n": {n}}}', 0, n) for n in range(6)]
    sinks.write(messages, {"0": 6}, key_from="value.customer")
    assert sorted((row.customer, json.loads(bytes(row.value))["n"]) for row in sinks.rows()) == [
        (0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (1, 5),
    ]  # fmt: skip
    with pytest.raises(partq.InvalidArgumentError, match="has no key"):
        sinks.write([(None, "{}", 0, 6)], {"0": 7}, key_from="value.customer")


def test_selected_columns(spark: SparkSession, store: str) -> None:
    sinks = Sinks(spark, store, "k", "k string, at timestamp, place string")
    select = ["upper(cast(key as string)) as k", "timestamp as at", "concat(partition, '/', offset) as place"]
    sinks.write([("a", "1", 1, 4)], {"1": 5}, select=select)
    (row,) = sinks.rows()
    assert (row.k, row.at, row.place) == ("A", AT + dt.timedelta(seconds=4), "1/4")


def test_a_checkpoint_of_something_else(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """X9: one that goes on where this queue has nothing would lose messages; so would one of another topic."""
    sinks = Sinks(spark, store)
    bounds: list[Any] = [(None, 7), (None, {"orders": {"0": 1}})]
    monkeypatch.setattr(from_topic, "bounds_of", lambda _: bounds)
    first, second = arrived(spark, [("a", "1", 0, 0)]), arrived(spark, [("a", "2", 0, 1)])
    for number in (0, 3):
        with pytest.raises(
            partq.CheckpointMismatchError,
            match=f"has {number + 1} micro-batches of topic 'orders', and queue 'q' has no",
        ):
            sinks.sink()(first, number)
    sinks.sink().starting_offsets("earliest", True, True)
    sinks.sink()(first, 0)
    bounds[:] = [({"others": {"0": 1}}, {"others": {"0": 9}})]
    with pytest.raises(partq.CheckpointMismatchError, match="holds nothing of topic 'orders'"):
        sinks.sink()(second, 1)
    bounds[:] = [({"orders": {"0": 1}}, {"orders": {"0": 2}})]
    with pytest.raises(partq.CheckpointMismatchError, match="another topic as sink"):
        sinks.sink(topic("b2"))(second, 1)
    assert [row.value for row in sinks.rows()] == ["1"]
    sinks.sink()(second, 1)
    assert [row.value for row in sinks.rows()] == ["1", "2"]


def test_a_queue_that_was_put_back(spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """X9: the checkpoint goes on behind what the queue lacks by now; what the topic has no more nobody waits for."""
    sinks = Sinks(spark, store)
    sinks.write([("a", "1", 0, 0)], {"0": 4, "1": 2})
    monkeypatch.setattr(from_topic, "bounds_of", lambda _: [({"orders": {"0": 6, "1": 2}}, {"orders": {"0": 9}})])
    batch = arrived(spark, [("a", "2", 0, 7)])
    with pytest.raises(
        partq.CheckpointMismatchError, match=r"offset 6 of partition 0 .* up to 4.* Use a new checkpoint"
    ):
        sinks.sink()(batch, 5)
    monkeypatch.setattr(from_topic, "bounds_of", lambda _: [(None, {"orders": {"0": 9}})])
    again = TopicSink(Store.at(store), "q", "kafka.orders", (), topic, lambda: {"orders": {"0": 6}})
    with pytest.raises(partq.CheckpointMismatchError, match="offset 6 of partition 0"):
        again(batch, 0)  # the first micro-batch of a checkpoint did not end before
    sinks.sink(topic(p0=(6, 10), p1=(0, 10)))(batch, 5)
    assert [row.value for row in sinks.rows()] == ["1", "2"]


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_queue_keeps_where_a_job_begins(
    spark: SparkSession, store: str, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """X9: before a message is read. A job that begins meanwhile, when the topic has more, begins there, too."""
    sinks = Sinks(spark, store)
    found, more = topic(p0=(2, 5), p1=(0, 0)), topic(p0=(2, 9), p1=(0, 3), p2=(0, 3))
    starts = {"0": 5 if begin == "latest" else 2, "1": 0}
    assert json.loads(sinks.sink(found).starting_offsets(begin, True, True)) == {"orders": starts}
    for is_new in (True, False):
        assert json.loads(sinks.sink(more).starting_offsets("latest", True, is_new)) == {"orders": {**starts, "2": -2}}
    bounds = [(None, {"orders": {"0": 5, "1": 0}})]
    monkeypatch.setattr(from_topic, "bounds_of", lambda _: bounds)
    sinks.sink(found)(arrived(spark, []), 0)  # Spark gives such a micro-batch of what is read from its end on
    bounds[:] = [({"orders": {"0": 5, "1": 0}}, {"orders": {"0": 7, "1": 0}})]
    sinks.sink(more)(arrived(spark, [("a", "1", 0, 5), ("a", "2", 0, 6)]), 1)
    assert [row.value for row in sinks.rows()] == ["1", "2"]


def test_a_checkpoint_is_new_until_a_query_begins_with_it(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "cp"
    assert QueryCheckpoint(spark, str(checkpoint)).is_new()
    (checkpoint / "offsets").mkdir(parents=True)
    assert QueryCheckpoint(spark, f"file://{checkpoint}").is_new()
    source = spark.readStream.format("rate").load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    query.processAllAvailable()
    query.stop()
    assert not QueryCheckpoint(spark, str(checkpoint)).is_new()


REFUSED = [
    (
        "k string",
        [],
        None,
        "nothing of a Kafka message is called k and has that column's type; there is key binary, value binary",
    ),
    ("key string, offset int", [], None, "nothing of a Kafka message is called offset and"),
    ("key string", ["key"], "value.x", "give it or --key-from, and not both"),
    ("key string", [], "customer", "give value.<field>, a field of a JSON value"),
    ("key array<string>", [], "value.x", "whose key is one column of a plain type"),
]


@pytest.mark.parametrize(("ddl", "select", "key_from", "says"), REFUSED, ids=str)
def test_columns_that_nobody_can_fill(ddl: str, select: list[str], key_from: str | None, says: str) -> None:
    key = payload_schema(ddl)["fields"][0]["name"]
    with pytest.raises(partq.InvalidArgumentError) as found:
        columns_for(payload_schema(ddl), [key], select, key_from)
    assert says in str(found.value)


# ---- the other way
def test_what_a_topic_gets(spark: SparkSession) -> None:
    """X9: each message has the id of its place, beside its own headers; after a promotion an old message keeps its id."""
    writer = TopicWriter("orders", {})
    place = "_queue string, _partition int, _offset bigint"
    own = [Row(key="trace", value=b"7")]
    relayed = [Row(key="partq-id", value=b"other/0/7"), *own]  # it came from a topic that has such ids
    rows = [("a", b"1", relayed, "q", 0, 4), ("b", b"2", None, "q", 1, 4), ("c", b"3", own, "r", 0, 9)]
    batch = spark.createDataFrame(rows, f"key string, value binary, headers {COLUMNS['headers']}, {place}")
    plain = {
        ("q", 1): Position(0, 9, 1, "i", (("i2", MOST), ("i1", 4))),
        ("r", 0): Position(0, 20, 1, "j", (("j", MOST),)),
    }
    positions = {("q", 0): Position(0, 9, 1, "i", (("i2", MOST), ("i1", 5), ("i0", 4))), **plain}
    found = writer.rows(batch, positions)
    assert found.columns == ["key", "value", "headers"]
    headers = {row.key: [(h.key, bytes(h.value).decode()) for h in row.headers] for row in found.collect()}
    assert headers == {
        "a": [("trace", "7"), ("partq-id", "i1/0/4")],
        "b": [("partq-id", "i2/1/4")],
        "c": [("trace", "7"), ("partq-id", "j/0/9")],
    }


def test_what_a_topic_gets_of_many_partitions(spark: SparkSession) -> None:
    """X9: Spark plans the ids of thousands of partitions, also of a queue that was promoted, in one literal."""
    partitions = 4_096
    batch = spark.range(partitions).selectExpr(
        "binary('v') as value", "'q' as _queue", "int(id) as _partition", "id % 8 as _offset"
    )
    positions = {("q", n): Position(0, 9, 1, "i", (("i1", MOST), ("i0", 4))) for n in range(partitions)}
    rows = TopicWriter("t", {}).rows(batch, positions)
    assert "from_json" not in rows._jdf.queryExecution().optimizedPlan().toString()
    ids = {bytes(row.headers[0].value).decode() for row in rows.collect()}
    assert ids == {f"i{int(n % 8 >= 4)}/{n}/{n % 8}" for n in range(partitions)}


@pytest.mark.parametrize("headers", ["map('a', 'b')", "'text'", "array('a')", "array(named_struct('key', 'a'))"])
def test_headers_of_another_type(spark: SparkSession, headers: str) -> None:
    batch = spark.range(1).selectExpr(
        "binary('v') as value", f"{headers} as headers", "'q' as _queue", "0 as _partition", "id as _offset"
    )
    with pytest.raises(
        partq.InvalidArgumentError,
        match="the headers of a Kafka message are array<struct<key:string,value:binary>>, and",
    ):
        TopicWriter("t", {}).rows(batch, {("q", 0): Position(0, 9, 1, "i", (("i", MOST),))})


@pytest.mark.parametrize("header", ["named_struct('key', null, 'value', 'v')", "null"])
def test_a_header_without_a_key(spark: SparkSession, header: str) -> None:
    batch = spark.range(2).selectExpr(
        "binary('v') as value",
        f"array(named_struct('key', 'a', 'value', 'v'), if(id = 1, {header}, null)) as headers",
        "'q' as _queue",
        "0 as _partition",
        "id as _offset",
    )
    rows = TopicWriter("t", {}).rows(batch.where("id = 1"), {("q", 0): Position(0, 9, 1, "i", (("i", MOST),))})
    with pytest.raises(PySparkException, match="a header of message i/0/1 has no key, and Kafka takes none without"):
        rows.collect()


def test_what_a_topic_gets_is_selected(spark: SparkSession) -> None:
    batch = spark.createDataFrame(
        [("a", 5, "q", 0, 4)], "customer string, n int, _queue string, _partition int, _offset bigint"
    )
    positions = {("q", 0): Position(0, 9, 1, "i", (("i", MOST),))}
    select = ["customer as key", "to_json(struct(n)) as value", "3 as partition"]
    (row,) = TopicWriter("t", {}, select).rows(batch, positions).collect()
    assert (row.key, row.value, row.partition, len(row.headers)) == ("a", '{"n":5}', 3, 1)
    for wrong, says in (([], "has a value"), (["customer as key", "n as value", "n"], "has no column n")):
        with pytest.raises(partq.InvalidArgumentError, match=f"a Kafka message {says}"):
            TopicWriter("t", {}, wrong).rows(batch, positions)


# ---- the jobs, before they start a session
ABOUT = ["--servers", "127.0.0.1:1", "--topic", "orders", "--queue", "q", "--checkpoint", "cp"]


def test_what_the_jobs_refuse_at_once(here: Here, store: str) -> None:
    partq.create_queue(store, "q", "k string", "k")
    for job, *more in (["from_kafka"], ["to_kafka", "--group", "g"]):
        done = here(job, *ABOUT, *more, "--store", f"{store}-none")
        assert done.code == 1 and "[NOT_A_STORE]" in done.err
    for option in ("subscribe=other", "minPartitions=8", "startingOffsets=latest"):
        done = here("from_kafka", *ABOUT, "--store", store, "--source-option", option)
        assert done.code == 2 and option.partition("=")[0] in done.err
    done = here("from_kafka", *ABOUT, "--store", store)
    assert done.code == 1 and "nothing of a Kafka message is called k" in done.err


def test_a_session_without_the_connector(inside: Here, store: str, tmp_path: Path) -> None:
    """X9: what is missing is said, with the option that brings it."""
    partq.create_queue(store, "q", QUEUE, "key")
    about = [*ABOUT[:-1], str(tmp_path / "cp"), "--store", store]
    for job, *more in (["from_kafka"], ["to_kafka", "--group", "g"]):
        done = inside(job, *about, *more)
        assert done.code == 1
        assert (
            "has not the Kafka connector" in done.err and "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in done.err
        )
