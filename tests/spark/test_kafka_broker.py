"""X9: topics of a real broker come in and queues go out; each command of docs/kafka.md runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import spark_partq as partq
from benchmarks.broker import Broker
from spark_partq.core.payload.keys import partition_of
from spark_partq.spark.checkpoint import QueryCheckpoint
from spark_partq.storage.arrow import arrow_schema
from tests.helpers import ROOT, driver, eventually, finished, opened
from tests.jvm import QUICK
from tests.scaled import stored as stored_rows
from tests.spark.jobs import Start, only_error, process

pytestmark = pytest.mark.long

LINE = re.compile(r"^    ((?:\w+=\w+ )?spark-(?:partq|submit) [^\n]*)", re.MULTILINE)
AT_MS = 1_700_000_000_000
QUEUE = "key string, value string, timestamp timestamp, headers array<struct<key:string,value:binary>>"
Sent = tuple[str | None, str, int]


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    found = Broker(spark, tmp_path_factory.mktemp("kafka") / "broker", f"{QUICK} -Xmx256m")
    yield found
    found.close()


def messages(first: int, last: int, keys: int = 20) -> list[Sent]:
    """Numbered ones, of several keys in turn, each a second later."""
    return [(f"customer-{n % keys}", str(n), AT_MS + n * 1000) for n in range(first, last)]


def in_queue(store: str, queue: str = "orders") -> list[tuple[int, dict[str, Any]]]:
    """All messages, each with its partition, in the order of their offsets."""
    schema = arrow_schema(opened(store, queue).state.schema)
    found = stored_rows(store, schema, queue)
    return [(number, dict(zip(schema.names, row, strict=True))) for number, rows in found.items() for row in rows]


def assert_moved(store: str, sent: Sequence[Sent], places: Sequence[tuple[int, int]], partitions: int = 4) -> None:
    """Each message once, in the partition where Kafka had it, those of a key in order, with its time and its header."""
    rows = in_queue(store)
    assert sorted(int(row["value"]) for _, row in rows) == sorted(int(value) for _, value, _ in sent)
    kafka = {value: place[0] for (_, value, _), place in zip(sent, places, strict=True)}
    for number, row in rows:
        assert number == kafka[row["value"]] == partition_of([row["key"]], ["string"], partitions, "murmur2")
        assert int(row["timestamp"].timestamp() * 1000) == AT_MS + int(row["value"]) * 1000
        assert row["headers"] == [{"key": "trace", "value": f"t-{row['value']}".encode()}]
    assert_in_order((row["key"], int(row["value"])) for _, row in rows)


def assert_in_order(found: Iterable[tuple[str | None, int]]) -> None:
    by_key: dict[str | None, list[int]] = defaultdict(list)
    for key, number in found:
        by_key[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def run_line(line: str, folder: Path) -> str:
    """A command as it stands in the document, in a folder that has the jobs and their configuration."""
    words = shlex.split(line)
    environment = dict(word.split("=") for word in words[:1] if "=" in word)
    program, *arguments = words[len(environment) :]
    job = process([str(Path(sys.executable).parent / program), *arguments], folder, **environment)
    return finished(job)


def test_the_document(broker: Broker, tmp_path: Path) -> None:
    """X9: a topic is moved step by step, while its producers still write, and the queue goes back into a topic."""
    for name in ("conf", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    store = str(tmp_path / "store")
    text = (ROOT / "docs" / "kafka.md").read_text().replace("broker:9092", broker.servers)
    create, copy, consume, again, back = LINE.findall(text)
    assert copy == again
    broker.ask("create", "orders", 4)
    broker.ask("create", "orders-copy", 4)
    sent = messages(0, 300)
    places = broker.write("orders", sent)
    assert {number for number, _ in places} == {0, 1, 2, 3}
    run_line(create, tmp_path)
    run_line(copy, tmp_path)
    assert_moved(store, sent, places)
    more = messages(300, 400)
    places += broker.write("orders", more)
    run_line(again, tmp_path)
    assert_moved(store, sent + more, places)
    run_line(consume, tmp_path)
    billed = DeltaTable(tmp_path / "billed").to_pandas().sort_values(["_partition", "_offset"])
    assert sorted(map(int, billed["value"])) == list(range(400))
    assert_in_order(zip(billed["key"], map(int, billed["value"]), strict=True))
    run_line(back, tmp_path)
    copied = broker.read("orders-copy")
    assert [m[2:4] for m in copied] == [m[2:4] for m in broker.read("orders")]  # each where it was, in the same order
    ids = [message.headers["partq-id"].split("/") for message in copied]
    queue_id = partq.describe_queue(store, "orders").queue_id
    assert {id_ for id_, _, _ in ids} == {queue_id}
    assert [(int(n), int(offset)) for _, n, offset in ids] == [(m.partition, m.offset) for m in copied]
    assert all(message.headers["trace"] == f"t-{message.value}" for message in copied)


def test_a_killed_job_and_a_lost_checkpoint(broker: Broker, start: Start, store: str, tmp_path: Path) -> None:
    """X9, Q5: kill -9 while messages are written, twice, then another checkpoint: each message is in once, in order."""
    broker.ask("create", "visits", 4)
    sent = messages(0, 4_000)
    places = broker.write("visits", sent)
    partq.create_queue(store, "orders", QUEUE, "key", partitions=4, key_hash="murmur2")
    about = ["from_kafka", "--servers", broker.servers, "--topic", "visits", "--store", store, "--queue", "orders"]
    slow = [*about, "--checkpoint", str(tmp_path / "cp"), "--max-offsets-per-trigger", "100"]

    def depth() -> int:
        return partq.describe_queue(store, "orders").depth

    before = 0
    for _ in range(2):
        job = start(*slow, by="python")
        eventually(lambda: depth() > before + 150 or job.poll() is not None, "that some messages are in", 180)  # noqa: B023
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        before = depth()
    assert 300 < before < 4_000
    more = messages(4_000, 4_100)
    places += broker.write("visits", more)
    broker.ask("grow", "visits", 5)
    finished(start(*about, "--checkpoint", str(tmp_path / "new"), by="python"))
    assert_moved(store, sent + more, places)
    assert depth() == 4_100


def test_what_comes_after_the_start(broker: Broker, start: Start, store: str, tmp_path: Path) -> None:
    """X9: a topic that is empty at first, and one that is read from its end on: everything that comes later is in once, whatever becomes of the
    checkpoint meanwhile."""
    for name, before in (("empty", []), ("begun", messages(0, 50))):
        broker.ask("create", name, 4)
        broker.write(name, before)
        partq.create_queue(store, name, QUEUE, "key", partitions=4, key_hash="murmur2")
        about = ["from_kafka", "--servers", broker.servers, "--topic", name, "--store", store, "--queue", name]
        for n, checkpoint in enumerate(("first", "first", "lost")):
            where = ["--checkpoint", str(tmp_path / name / checkpoint), "--starting-offsets", "latest"]
            finished(start(*about, *where, by="python"))
            broker.write(name, messages(100 + 50 * n, 150 + 50 * n))
        numbers = sorted(int(row["value"]) for _, row in in_queue(store, name))
        assert numbers == list(range(100, 200))


def test_what_from_kafka_refuses(broker: Broker, start: Start, store: str, tmp_path: Path) -> None:
    """X9: messages without a key; messages that retention has removed; another topic of the name. Each time nothing is written."""
    broker.ask("create", "events", 2)
    broker.write("events", [("a", "0", AT_MS), (None, "1", AT_MS), ("a", "2", AT_MS)])
    partq.create_queue(store, "orders", QUEUE, "key", partitions=4)
    about = ["from_kafka", "--servers", broker.servers, "--topic", "events", "--store", store, "--queue", "orders"]

    def refused(checkpoint: str, *more: str) -> str:
        before = in_queue(store)
        found = only_error(start(*about, "--checkpoint", str(tmp_path / checkpoint), *more, by="python"))
        assert in_queue(store) == before
        return found

    assert "[INVALID_ARGUMENT] message " in (found := refused("a")) and "of topic 'events' has no key" in found
    finished(start(*about, "--checkpoint", str(tmp_path / "a"), "--allow-null-keys", by="python"))
    assert sorted(row["value"] for _, row in in_queue(store)) == ["0", "1", "2"]
    places = broker.write("events", [("a", str(n), AT_MS) for n in range(3, 30)])
    number = places[0][0]
    broker.ask("trim", "events", number, places[20][1])
    assert "[DATA_LOSS] the next message of partition" in refused("b")
    finished(start(*about, "--checkpoint", str(tmp_path / "b"), "--no-fail-on-data-loss", by="python"))
    assert sorted(int(row["value"]) for _, row in in_queue(store)) == [0, 1, 2, *range(23, 30)]
    broker.ask("delete", "events")
    broker.ask("create", "events", 2)
    broker.write("events", messages(30, 40))
    assert "[CHECKPOINT_MISMATCH] the queue has messages of another topic" in refused("c")


PROGRAM = """
import sys
import spark_partq as partq
from spark_partq.spark.broker import CONNECTOR, describe_topic

spark = partq.session("topics", None, {"spark.jars.packages": CONNECTOR})
for servers, topic in (sys.argv[1:3], (sys.argv[1], "nothing"), ("127.0.0.1:1", "nothing")):
    options = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    try:
        print("FOUND", describe_topic(spark, topic, options).bounds)
    except partq.PartqError as error:
        print("FOUND", error)
"""


def test_what_a_broker_says(broker: Broker) -> None:
    """X9: how far a topic goes, that there is none, that nobody answers."""
    broker.ask("create", "bounds", 2)
    places = broker.write("bounds", [("a", str(n), AT_MS) for n in range(9)])
    number = places[0][0]
    broker.ask("trim", "bounds", number, 4)
    out = finished(driver(PROGRAM, broker.servers, "bounds"))
    found, unknown, silent = [line for line in out.splitlines() if line.startswith("FOUND")]
    expected = {number: (4, 9), 1 - number: (0, 0)}
    assert found == f"FOUND {dict(sorted(expected.items()))}"
    assert "[INVALID_ARGUMENT] there is no topic 'nothing' at this broker" in unknown
    assert "[STORE_UNAVAILABLE] the broker of topic 'nothing' does not answer" in silent


def test_latest_of_what_is_committed(
    broker: Broker, spark: SparkSession, start: Start, store: str, tmp_path: Path
) -> None:
    """X9: the job begins at the topic's end of then, as the queue and Spark's checkpoint say."""
    broker.ask("create", "places", 2)
    places = broker.write("places", messages(0, 20))
    partq.create_queue(store, "orders", QUEUE, "key", partitions=4)
    about = ["from_kafka", "--servers", broker.servers, "--topic", "places", "--store", store, "--queue", "orders"]
    about += ["--starting-offsets", "latest", "--source-option", "kafka.isolation.level=read_committed"]
    checkpoint = str(tmp_path / "cp")
    assert QueryCheckpoint(spark, checkpoint).first_offsets() == {} and QueryCheckpoint(spark, checkpoint).is_new()
    finished(start(*about, "--checkpoint", checkpoint, by="python"))
    begins = {str(number): sum(place[0] == number for place in places) for number in (0, 1)}
    assert (
        QueryCheckpoint(spark, checkpoint).first_offsets() == {"places": begins}
        and not QueryCheckpoint(spark, checkpoint).is_new()
    )
    broker.write("places", messages(20, 50))
    for cp in (checkpoint, str(tmp_path / "new")):
        finished(start(*about, "--checkpoint", cp, by="python"))
        assert sorted(int(row["value"]) for _, row in in_queue(store)) == list(range(20, 50))
