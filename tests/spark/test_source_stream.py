"""The streaming source: groups, flows, limits, restarts, replays and fencing (Q7)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from tests.helpers import (
    assert_dense,
    consume,
    driver,
    eventually,
    finished,
    flat,
    opened,
    places,
    position,
    put,
    read,
    running,
    stream,
)

pytestmark = pytest.mark.usefixtures("stopped_queries")


@pytest.fixture
def queue(store: str) -> str:
    """A store with queue `q` of 3 partitions: 20, 10 and 0 messages in files of 5."""
    partq.create_queue(store, "q", "v bigint", partitions=3)
    for partition, files in ((0, 4), (1, 2)):
        for file in range(files):
            put(store, partition, range(file * 5, file * 5 + 5))
    return store


def everything() -> list[tuple[int, int]]:
    return [(0, i) for i in range(20)] + [(1, i) for i in range(10)]


def failed(run: Any) -> str:
    """The text of the error with which the query ended."""
    with pytest.raises(StreamingQueryException) as caught:
        run()
    return str(caught.value)


# ---- rows
def test_rows(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: each row says where it stands, who got it, under which epoch; nothing is redelivered at first."""
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", instanceId="i"))
    assert places(rows) == everything()
    assert_dense(rows)
    for row in rows:
        assert row.v == row._offset
        assert (row._queue, row._redelivered, row._flow, row._epoch) == ("q", False, "i/0", 1)
    batch = {(r._partition, r._offset): r._enqueued_at for r in read(spark, queue).collect()}
    assert {(r._partition, r._offset): r._enqueued_at for r in rows} == batch


def test_columns(spark: SparkSession, queue: str) -> None:
    """U2: the stream has the columns of the batch read."""
    assert stream(spark, queue).isStreaming
    assert stream(spark, queue).schema == read(spark, queue).schema


def test_flows_are_tasks(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q7: `flows` is the number of tasks, each partition belongs to one flow, and its order is kept."""
    partq.create_queue(store, "q", "v bigint", partitions=5)
    for partition in range(5):
        for file in range(3):
            put(store, partition, range(file * 4, file * 4 + 4))
    tasks: list[int] = []

    def look(df: DataFrame, _: int) -> None:
        tasks.append(df.rdd.getNumPartitions())

    batches = consume(
        spark, store, tmp_path / "cp", each=look, group="g", flows=3, instanceId="i", maxRowsPerTrigger=25
    )
    assert set(tasks) == {3}
    owner: dict[int, set[str]] = {}
    for row in flat(batches):
        owner.setdefault(row._partition, set()).add(row._flow)
    assert sorted(len(f) for f in owner.values()) == [1] * 5
    per_flow = [f for flows in owner.values() for f in flows]
    assert sorted(per_flow.count(f"i/{n}") for n in range(3)) == [1, 2, 2]
    for partition in range(5):
        offsets = [r._offset for r in flat(batches) if r._partition == partition]
        assert offsets == list(range(12))


def test_more_flows_than_partitions(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: excess flows are tasks without rows."""
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", flows=7))
    assert places(rows) == everything()


def test_several_actions_read_the_same(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: each action on a micro-batch reads the same rows."""
    seen: list[tuple[int, int]] = []

    def twice(df: DataFrame, _: int) -> None:
        put(queue, 0, [99])  # a message that comes in between belongs to a later batch
        seen.append((df.count(), len(df.collect())))

    first = consume(spark, queue, tmp_path / "cp", each=twice, group="g")
    assert seen == [(30, 30)] and len(first[0]) == 30


def test_two_queues(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: one query reads several queues of the same columns, and each keeps its own offsets."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, range(7), queue="p")
    rows = flat(consume(spark, queue, tmp_path / "cp", queue="q, p", group="g"))
    assert places(r for r in rows if r._queue == "q") == everything()
    assert places(r for r in rows if r._queue == "p") == [(0, i) for i in range(7)]
    partq.create_queue(queue, "r", "v string", partitions=1)
    with pytest.raises(Exception, match=r"\[INVALID_ARGUMENT\].*different columns"):
        stream(spark, queue, "q,r")


# ---- limits
def test_max_rows(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: with AvailableNow every micro-batch keeps to maxRowsPerTrigger, and all of them deliver everything once."""
    batches = consume(spark, queue, tmp_path / "cp", group="g", maxRowsPerTrigger=7)
    assert [len(b) for b in batches] == [7, 7, 7, 7, 2]
    assert places(flat(batches)) == everything()
    assert all({r._partition for r in b} == {0, 1} for b in batches[:2]), "shared between the partitions"


def test_max_rows_below_the_number_of_partitions(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: a limit of one row still gets everybody served in turn."""
    options = {"group": "g", "maxRowsPerTrigger": 1, "startingOffsets": '{"q": {"0": 16, "1": 7}}'}
    batches = consume(spark, queue, tmp_path / "cp", **options)
    assert [len(b) for b in batches] == [1] * 7
    assert {r._partition for r in flat(batches[:2])} == {0, 1}


def test_max_files(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: maxFilesPerTrigger."""
    batches = consume(spark, queue, tmp_path / "cp", group="g", maxFilesPerTrigger=2)
    assert [len(b) for b in batches] == [10, 10, 10]
    assert places(flat(batches)) == everything()


def test_max_bytes(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: maxBytesPerTrigger counts stored bytes."""
    size = int(opened(queue).partitions[0].index.size[0])
    batches = consume(spark, queue, tmp_path / "cp", group="g", maxBytesPerTrigger=2 * size)
    assert 3 <= len(batches) <= 6
    assert max(len(b) for b in batches) <= 12
    assert places(flat(batches)) == everything()
    tiny = consume(
        spark, queue, tmp_path / "cp2", group="h", maxBytesPerTrigger="1", startingOffsets='{"q": {"0": 18, "1": 9}}'
    )
    assert [len(b) for b in tiny] == [1, 1, 1]


def test_limits_together(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: the narrowest limit holds, and the query never stands still."""
    batches = consume(
        spark, queue, tmp_path / "cp", group="g", maxFilesPerTrigger=1, maxRowsPerTrigger=3, maxBytesPerTrigger="1m"
    )
    assert [len(b) for b in batches] and all(len(b) <= 3 for b in batches)
    assert places(flat(batches)) == everything()


def test_available_now_ends_at_the_present(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: AvailableNow does not chase what is written meanwhile."""

    def more(_: DataFrame, batch_id: int) -> None:
        if batch_id < 20:
            put(queue, 1, [100 + batch_id])

    batches = consume(spark, queue, tmp_path / "cp", each=more, group="g", maxRowsPerTrigger=10)
    assert places(flat(batches)) == everything()
    again = consume(spark, queue, tmp_path / "cp", group="g")
    assert places(flat(again)) == [(1, 10), (1, 11), (1, 12)]


def test_idle_available_now(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q7: an empty queue is nothing to wait for."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    assert consume(spark, store, tmp_path / "cp", group="g") == []
    assert consume(spark, store, tmp_path / "cp", group="g") == []


# ---- where it starts, and restarts
def test_acknowledged_at_the_end(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q8: when a query has ended by itself, its last batch is acknowledged as well."""
    consume(spark, queue, tmp_path / "cp", group="g", maxRowsPerTrigger=20)
    assert [position(queue, "g", p) for p in range(3)] == [20, 10, 0]
    assert partq.describe_queue(queue, "q").depth == 0
    put(queue, 2, [1, 2])
    described = partq.describe_queue(queue, "q")
    assert [p.depth for p in described.partitions] == [0, 0, 2] and described.groups == ("g",)


def test_restart_with_checkpoint(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: the same checkpoint goes on where it was; nothing twice, nothing left out."""
    consume(spark, queue, tmp_path / "cp", group="g")
    assert consume(spark, queue, tmp_path / "cp", group="g") == []
    put(queue, 2, range(3))
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g"))
    assert places(rows) == [(2, 0), (2, 1), (2, 2)]
    assert [r._redelivered for r in rows] == [False] * 3


def test_restart_without_checkpoint(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: without its checkpoint a query goes on at the group's position, whatever startingOffsets says."""
    consume(spark, queue, tmp_path / "cp", group="g")
    put(queue, 0, [20, 21])
    rows = flat(consume(spark, queue, tmp_path / "cp2", group="g", startingOffsets="earliest"))
    assert places(rows) == [(0, 20), (0, 21)]
    assert {r._epoch for r in rows} == {3}, "the first query's leaving ended an epoch too"


def test_groups_are_apart(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: another group, or none, reads everything again; nameless ones get names of their own."""
    for number, options in enumerate(({"group": "g"}, {"group": "h"}, {}, {})):
        assert places(flat(consume(spark, queue, tmp_path / str(number), **options))) == everything()
    groups = partq.list_groups(queue)
    assert len(groups) == 4 and {"g", "h"} < set(groups)


def test_checkpoint_of_a_nameless_group(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: the group that a query without one was given is kept in its checkpoint."""
    consume(spark, queue, tmp_path / "cp")
    put(queue, 2, [1])
    assert places(flat(consume(spark, queue, tmp_path / "cp"))) == [(2, 0)]
    assert len(partq.list_groups(queue)) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, [20, 10]),
        ({"startingOffsets": "latest"}, [0, 0]),
        ({"startingOffsets": '{"q": {"0": 13}}'}, [7, 10]),
        ({"startingOffsets": '{"q": {"0": -1, "1": -2}}'}, [0, 10]),
        ({"startingOffsets": '{"q": {"0": 20, "1": 9, "2": 0}}'}, [0, 1]),
    ],
    ids=str,
)
def test_starting_offsets(
    spark: SparkSession, queue: str, tmp_path: Path, options: dict[str, str], expected: list[int]
) -> None:
    """Q7: earliest, latest and JSON offsets, of a group that is new."""
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", **options))
    assert [sum(r._partition == p for r in rows) for p in range(2)] == expected
    for partition, end in ((0, 20), (1, 10)):
        offsets = [r._offset for r in rows if r._partition == partition]
        assert offsets == list(range(end - len(offsets), end))


def test_latest_then_new_messages(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: latest is where the end was at the first start, not at each one."""
    assert consume(spark, queue, tmp_path / "cp", group="g", startingOffsets="latest") == []
    put(queue, 1, [10])
    assert places(flat(consume(spark, queue, tmp_path / "cp", group="g", startingOffsets="latest"))) == [(1, 10)]


def test_starting_timestamp(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: startingTimestamp is milliseconds since 1970 and compared with `_enqueued_at`."""
    third = int(opened(queue).partitions[0].index.enqueued_us[2])
    options = {"startingTimestamp": -(-third // 1000), "startingOffsetsByTimestampStrategy": "latest"}
    time.sleep(0.002)
    put(queue, 0, [20])
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", **options))
    assert [r for r in rows if r._enqueued_at.timestamp() * 1000 < options["startingTimestamp"] - 0.001] == []
    index = opened(queue).partitions[0].index
    first = int(index.base[index.enqueued_us >= options["startingTimestamp"] * 1000][0])
    assert places(r for r in rows if r._partition == 0) == [(0, i) for i in range(first, 21)]
    strict = {"startingTimestamp": int(time.time() * 1000) + 60_000}
    text = failed(lambda: consume(spark, queue, tmp_path / "cp2", group="h", **strict))
    assert "[OFFSET_OUT_OF_RANGE]" in text and "startingOffsetsByTimestampStrategy" in text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingOffsets": '{"q": {"0": 21}}'}, "OFFSET_OUT_OF_RANGE"),
        ({"startingOffsets": '{"q": {"3": 0}}'}, "INVALID_ARGUMENT"),
        ({"startingOffsets": '{"x": {"0": 0}}'}, "INVALID_ARGUMENT"),
        ({"startingOffsets": "first"}, "INVALID_ARGUMENT"),
        ({"queue": "nowhere"}, "QUEUE_NOT_FOUND"),
        ({"queue": "q,nowhere"}, "QUEUE_NOT_FOUND"),
        ({"queue": "q,q"}, "INVALID_ARGUMENT"),
        ({"queue": "../q"}, "INVALID_ARGUMENT"),
        ({"queue": " , "}, "INVALID_ARGUMENT"),
        ({"queue": ""}, "INVALID_ARGUMENT"),
        ({"path": ""}, "INVALID_ARGUMENT"),
        ({"group": "a/b"}, "INVALID_ARGUMENT"),
        ({"instanceId": ".."}, "INVALID_ARGUMENT"),
        ({"flows": "0"}, "INVALID_ARGUMENT"),
        ({"flows": "two"}, "INVALID_ARGUMENT"),
        ({"assignor": "fair"}, "UNKNOWN_ASSIGNOR"),
        ({"assignor": "range, range"}, "INVALID_ARGUMENT"),
        ({"assignor": "balanced, range", "weight": "2"}, "INVALID_ARGUMENT"),
        ({"weight": "0"}, "INVALID_ARGUMENT"),
        ({"queuePattern": "q.*"}, "INVALID_ARGUMENT"),  # besides `queue`
        ({"queue": "", "queuePattern": "q("}, "INVALID_ARGUMENT"),
        ({"queue": "", "queuePattern": "other.*"}, "QUEUE_NOT_FOUND"),
        ({"ack": "never"}, "INVALID_ARGUMENT"),
        ({"maxRowsPerTrigger": "0"}, "INVALID_ARGUMENT"),
        ({"maxRowsPerTrigger": "-5"}, "INVALID_ARGUMENT"),
        ({"maxBytesPerTrigger": "1x"}, "INVALID_ARGUMENT"),
        ({"maxFilesPerTrigger": "1.5"}, "INVALID_ARGUMENT"),
        ({"failOnDataLoss": "perhaps"}, "INVALID_ARGUMENT"),
        ({"startingTimestamp": "yesterday"}, "INVALID_ARGUMENT"),
        ({"kafka.bootstrap.servers": "x"}, "INVALID_ARGUMENT"),
        ({"maxRowPerTrigger": "5"}, "INVALID_ARGUMENT"),
    ],
    ids=str,
)
def test_wrong_options(spark: SparkSession, queue: str, tmp_path: Path, options: dict[str, str], error: str) -> None:
    """Bad input: one error of a stable class, and the group is not made."""
    given = {"path": queue, "queue": "q", "group": "g"} | options

    def run() -> None:
        query = (
            spark.readStream.format("partq").options(**given).load()
            .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    with pytest.raises(Exception, match=rf"\[{error}\]"):
        run()
    assert partq.list_groups(queue) == []


def test_store_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "something").mkdir()
    with pytest.raises(Exception, match=r"\[NOT_A_STORE\].*something else"):
        stream(spark, str(tmp_path))


def test_own_schema_is_refused(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Bad input: the schema is the queue's."""
    reader = spark.readStream.format("partq").schema("v string").option("path", queue).option("queue", "q")

    def run() -> None:
        query = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match=r"\[SCHEMA_MISMATCH\]"):
        run()


# ---- loss
def removed(store: str, partition: int, files: int) -> None:
    opened(store).partitions[partition].remove(lambda index: files)


def test_removed_before_it_was_read(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q8: messages that went before the group read them are an error, or are passed over with failOnDataLoss=false."""
    consume(spark, queue, tmp_path / "cp", group="g", startingOffsets='{"q": {"0": 0, "1": -1}}', maxRowsPerTrigger=100)
    for _ in range(2):
        put(queue, 0, [1, 2])
    removed(queue, 0, 5)
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert "[DATA_LOSS]" in text and "messages 20 to 21 of partition 0" in text
    rows = flat(consume(spark, queue, tmp_path / "cp", group="g", failOnDataLoss="false"))
    assert places(rows) == [(0, 22), (0, 23)]


def test_everything_removed(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q8: also when no file is left."""
    consume(spark, queue, tmp_path / "cp", group="g")
    put(queue, 0, [1, 2])
    removed(queue, 0, 5)
    assert "[DATA_LOSS]" in failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert consume(spark, queue, tmp_path / "cp", group="g", failOnDataLoss="false") == []
    put(queue, 0, [3])
    assert places(flat(consume(spark, queue, tmp_path / "cp", group="g", failOnDataLoss="false"))) == [(0, 22)]
    put(queue, 0, [4])
    assert places(flat(consume(spark, queue, tmp_path / "cp", group="g"))) == [(0, 23)]


def test_starting_offset_that_is_gone(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: a JSON offset before the first message that is left."""
    removed(queue, 0, 2)
    options = {"group": "g", "startingOffsets": '{"q": {"0": 3}}'}
    assert "[OFFSET_OUT_OF_RANGE]" in failed(lambda: consume(spark, queue, tmp_path / "cp", **options))
    assert partq.list_groups(queue) == []
    rows = flat(consume(spark, queue, tmp_path / "cp2", **options, failOnDataLoss="false"))
    assert places(rows) == [(0, i) for i in range(10, 20)] + [(1, i) for i in range(10)]


def test_queue_shorter_than_the_position(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: a partition put back to an older state (a restored backup) is noticed, not waited at for ever."""
    consume(spark, queue, tmp_path / "cp", group="g")
    log = Path(queue) / "queues/q/partitions/partition=0/_delta_log"
    for version in (3, 4):
        (log / f"{version:020d}.json").unlink()
    assert opened(queue).partitions[0].next_offset == 10
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert "[DATA_LOSS]" in text and "partition 0" in text


def test_corrupt_file(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Bad input: a damaged file is named, and nothing after it is acknowledged."""
    index = opened(queue).partitions[1].index
    broken = Path(queue) / "queues/q/partitions/partition=1" / index.path(1)
    good = broken.read_bytes()
    broken.write_bytes(b"no parquet")
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert "[CORRUPT_TABLE]" in text and broken.name in text and "offsets 5 to 9 of partition 1" in text
    assert [position(queue, "g", p) for p in range(3)] == [0, 0, 0]
    broken.write_bytes(good)
    assert places(flat(consume(spark, queue, tmp_path / "cp", group="g"))) == everything()


# ---- checkpoints of something else
def test_checkpoint_of_another_group(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    consume(spark, queue, tmp_path / "cp", group="g")
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="h"))
    assert "[CHECKPOINT_MISMATCH]" in text and "'g'" in text and "'h'" in text
    assert partq.list_groups(queue) == ["g"]


def test_checkpoint_of_another_queue(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    consume(spark, queue, tmp_path / "cp", group="g")
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", queue="p", group="g"))
    assert "[CHECKPOINT_MISMATCH]" in text and "'q'" in text


def test_checkpoint_of_a_deleted_queue(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: a queue made anew under an old name inherits no positions."""
    consume(spark, queue, tmp_path / "cp", group="g")
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    put(queue, 0, [7])
    text = failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))
    assert "[CHECKPOINT_MISMATCH]" in text and "deleted" in text
    assert places(flat(consume(spark, queue, tmp_path / "cp2", group="g"))) == [(0, 0)]


def test_checkpoint_of_another_source(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start()
    )  # fmt: skip
    eventually(lambda: query.lastProgress, "a batch of the rate source")
    query.stop()
    assert "[CHECKPOINT_MISMATCH]" in failed(lambda: consume(spark, queue, tmp_path / "cp", group="g"))


# ---- replays
class Once(Exception):
    pass


def fail_once(at: int = 0) -> tuple[list[list[Row]], Any]:
    """A `foreachBatch` function that takes each batch's rows and fails the first time at batch `at`."""
    seen: list[list[Row]] = []
    left = [1]

    def take(df: DataFrame, batch_id: int) -> None:
        seen.append(df.collect())
        if batch_id == at and left:
            left.pop()
            raise Once("the first time fails")

    return seen, take


def run_batches(spark: SparkSession, store: str, checkpoint: Path, take: Any, **options: Any) -> None:
    query = (
        stream(spark, store, **options)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.parametrize(
    ("at", "names"), [(0, {}), (0, {"group": "g"}), (1, {"group": "g", "instanceId": "i"}), (1, {})], ids=str
)
def test_replay_of_a_failed_batch(
    spark: SparkSession, queue: str, tmp_path: Path, at: int, names: dict[str, str]
) -> None:
    """Q7: a batch that failed comes again with the same rows, marked as redelivered, though there is more by now."""
    seen, take = fail_once(at)
    options = {**names, "maxRowsPerTrigger": 12, "flows": 2}
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", take, **options))
    assert len(seen) == at + 1 and not any(r._redelivered for r in flat(seen))
    (group,) = partq.list_groups(queue)
    assert sum(position(queue, group, p) or 0 for p in range(3)) == 12 * at
    put(queue, 2, [5])
    run_batches(spark, queue, tmp_path / "cp", take, **options)
    again = seen[at + 1]
    assert [(r.v, r._partition, r._offset, r._enqueued_at, r._flow) for r in again] == [
        (r.v, r._partition, r._offset, r._enqueued_at, r._flow) for r in seen[at]
    ]
    assert all(r._redelivered for r in again)
    rest = flat(seen[at + 2 :])
    assert not any(r._redelivered for r in rest)
    assert places([*flat(seen[:at]), *again, *rest]) == [*everything(), (2, 0)]
    assert partq.list_groups(queue) == [group]


def test_replay_after_retention_of_acknowledged_files(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, Q8: maintenance between a failure and the replay removes nothing that the replay needs."""
    seen, take = fail_once(1)
    options = {"group": "g", "maxFilesPerTrigger": 2}
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", take, **options))
    (report,) = partq.maintain(queue, "q")
    assert report.removed_messages == len(seen[0]) == 10
    run_batches(spark, queue, tmp_path / "cp", take, **options)
    assert places(seen[2]) == places(seen[1])
    assert places([*seen[0], *flat(seen[2:])]) == everything()


def test_replay_when_another_took_over(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Q7: what another instance has delivered and acknowledged meanwhile is not delivered by the replay as well."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    put(store, 0, range(20))
    put(store, 1, range(10))
    options = {"group": "g", "sessionTimeoutMs": "500"}
    seen, take = fail_once(0)
    failed(lambda: run_batches(spark, store, tmp_path / "cp", take, instanceId="a", **options))
    other: list[Row] = []
    query = running(spark, store, tmp_path / "cp2", other, instanceId="b", **options)
    eventually(lambda: position(store, "g", 0) == 20 and position(store, "g", 1) == 10, "the other's work")
    query.stop()
    assert len(other) == 30 and all(r._redelivered for r in other), "the first was given them all"
    put(store, 0, [20])
    run_batches(spark, store, tmp_path / "cp", take, instanceId="b", **options)
    assert places(flat(seen[1:])) == [(0, 20)]
    assert [position(store, "g", p) for p in range(2)] == [21, 10]


def test_instance_without_its_checkpoint_reads_the_failed_batch_again(
    spark: SparkSession, queue: str, tmp_path: Path
) -> None:
    """Q7: a failed batch was not acknowledged, so a start without the checkpoint delivers it."""
    _, take = fail_once(0)
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", take, group="g", instanceId="a"))
    rows = flat(consume(spark, queue, tmp_path / "cp2", group="g", instanceId="a"))
    assert places(rows) == everything()


RETRY = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

store, checkpoint, flag = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()

def once(batches):
    from pyspark import TaskContext
    for n, batch in enumerate(batches):
        yield batch
    if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
        Path(flag).touch()
        raise RuntimeError("the first attempt fails")

def take(df, batch_id):
    rows = df.mapInArrow(once, df.schema).select("v", "_partition", "_offset", "_redelivered").collect()
    print(batch_id, sorted((r._partition, r._offset, r.v, r._redelivered) for r in rows))

query = (spark.readStream.format("partq").option("path", store).option("queue", "q").option("group", "g").option("flows", 2)
    .load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""


def test_task_that_is_tried_again(queue: str, tmp_path: Path) -> None:
    """Q7: a task that failed reads the same rows in its next attempt; the batch is as if nothing had been."""
    flag = tmp_path / "failed"
    out = finished(driver(RETRY, queue, str(tmp_path / "cp"), str(flag)))
    assert flag.exists()
    assert out.strip() == f"0 {[(p, o, o, False) for p, o in everything()]}"


# ---- running queries
def test_running_query_sees_what_comes(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, Q8: a query that runs delivers new messages, and acknowledges its last batch though nothing follows it."""
    seen: list[Row] = []
    query = running(spark, queue, tmp_path / "cp", seen, group="g")
    eventually(lambda: len(seen) == 30, "the first messages")
    eventually(lambda: position(queue, "g", 0) == 20 and position(queue, "g", 1) == 10, "the acknowledgement")
    for n in range(3):
        put(queue, n, [50 + n])
        eventually(lambda n=n: len(seen) == 31 + n, "a new message")
    eventually(lambda: position(queue, "g", 2) == 1, "its acknowledgement")
    query.stop()
    assert places(seen) == sorted([*everything(), (0, 20), (1, 10), (2, 0)])


def test_processing_time(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: Trigger.ProcessingTime with a limit."""
    sizes: list[int] = []
    query = (
        stream(spark, queue, group="g", maxRowsPerTrigger=11)
        .writeStream.foreachBatch(lambda df, _: sizes.append(df.count()))
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    eventually(lambda: sum(sizes) == 30, "all messages")
    query.stop()
    assert sizes == [11, 11, 8]


def test_progress_metrics(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: the query's progress shows rows, and offsets as valid JSON."""
    seen: list[Row] = []
    query = running(spark, queue, tmp_path / "cp", seen, group="g")
    progress = eventually(lambda: next((p for p in query.recentProgress if p.numInputRows), None), "progress")
    (source,) = progress.sources
    end = json.loads(source.endOffset)
    assert source.numInputRows == 30
    assert end["queues"]["q"]["partitions"] == {"0": [1, 0, 20], "1": [1, 0, 10], "2": [1, 0, 0]}
    query.stop()


def test_two_processes_of_one_instance(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7, W2: two queries with one instanceId do not both own the partitions."""
    first: list[Row] = []
    old = running(spark, queue, tmp_path / "cp", first, group="g", instanceId="a")
    eventually(lambda: len(first) == 30 and position(queue, "g", 0) == 20, "the first query's messages")
    rows = flat(consume(spark, queue, tmp_path / "cp2", group="g", instanceId="a"))
    assert rows == []
    assert "[FENCED]" in str(eventually(old.exception, "the end of the first query"))


def test_queue_deleted_under_a_query(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Q7: a running query ends with a clear error when its queue is deleted, and when another takes its name."""
    seen: list[Row] = []
    query = running(spark, queue, tmp_path / "cp", seen, group="g")
    eventually(lambda: len(seen) == 30, "the messages")
    partq.delete_queue(queue, "q")
    error = str(eventually(query.exception, "the end of the query"))
    assert "[QUEUE_NOT_FOUND]" in error or "[NOT_A_STORE]" in error or "[CORRUPT_TABLE]" in error
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    query = running(spark, queue, tmp_path / "cp2", seen, group="h")
    eventually(lambda: "h" in partq.list_groups(queue), "the new query's start")
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    error = str(eventually(query.exception, "the end of the new query"))
    # Which of them depends on what the query looks at just then: the old queue, none, one half made, or the new one.
    found = ("CHECKPOINT_MISMATCH", "QUEUE_NOT_FOUND", "QUEUE_NOT_READY", "NOT_A_STORE", "CORRUPT_TABLE")
    assert any(f"[{error_class}]" in error for error_class in found), error


@pytest.mark.parametrize("at", [0, 1])
def test_from_queue_to_queue(spark: SparkSession, queue: str, tmp_path: Path, at: int) -> None:
    """Q4, Q5, Q7: a stream from one queue into another, failing in between, loses and repeats nothing and keeps the order."""
    partq.create_queue(queue, "out", "v bigint, p int", key="p", partitions=2)
    left = [1]

    def copy(df: DataFrame, batch_id: int) -> None:
        sink(df.selectExpr("v", "_partition p"), batch_id)
        if batch_id == at and left:
            left.pop()
            raise Once("after the write")

    sink = partq.queue_sink(queue, "out")
    options = {"group": "g", "maxRowsPerTrigger": 9}
    failed(lambda: run_batches(spark, queue, tmp_path / "cp", copy, **options))
    run_batches(spark, queue, tmp_path / "cp", copy, **options)
    rows = sorted(read(spark, queue, "out").collect(), key=lambda r: (r._partition, r._offset))
    assert_dense(rows)
    for partition, count in ((0, 20), (1, 10)):
        assert [r.v for r in rows if r.p == partition] == list(range(count))
