"""What the streaming reader refuses, and messages that are gone: all without a JVM (Q7, Q8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.types import StringType, StructField, StructType

import spark_partq as partq
from tests.helpers import eventually, flat, opened, places, position, put
from tests.queries import Checkpoint, consume, failed, running, source
from tests.spark.messages import everything, make_queue

pytestmark = pytest.mark.usefixtures("ended_queries")


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store)


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
        ({"store": ""}, "INVALID_ARGUMENT"),
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
def test_wrong_options(queue: str, tmp_path: Path, options: dict[str, str], error: str) -> None:
    """Bad input: one error of a stable class, and the group is not made."""
    given = {"store": queue, "group": "g"} | options
    assert f"[{error}]" in failed(lambda: consume(checkpoint=tmp_path / "cp", **given))
    assert partq.list_groups(queue) == []


def test_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "something").mkdir()
    with pytest.raises(partq.NotAStoreError, match="something else"):
        source(str(tmp_path)).schema()


def test_own_schema_is_refused(queue: str) -> None:
    """Bad input: the schema is the queue's."""
    other = StructType([StructField("v", StringType())])
    for made in (source(queue).streamReader, source(queue).reader):
        with pytest.raises(partq.SchemaMismatchError):
            made(other)


# ---- loss
def removed(store: str, partition: int, files: int) -> None:
    opened(store).partitions[partition].remove(lambda index: files)


def test_removed_before_it_was_read(queue: str, tmp_path: Path) -> None:
    """Q8: messages that went before the group read them are an error, or are passed over with failOnDataLoss=false."""
    consume(queue, tmp_path / "cp", group="g", startingOffsets='{"q": {"0": 0, "1": -1}}', maxRowsPerTrigger=100)
    for _ in range(2):
        put(queue, 0, [1, 2])
    removed(queue, 0, 5)
    text = failed(lambda: consume(queue, tmp_path / "cp", group="g"))
    assert "[DATA_LOSS]" in text and "messages 20 to 21 of partition 0" in text
    rows = flat(consume(queue, tmp_path / "cp", group="g", failOnDataLoss="false"))
    assert places(rows) == [(0, 22), (0, 23)]


def test_everything_removed(queue: str, tmp_path: Path) -> None:
    """Q8: also when no file is left."""
    consume(queue, tmp_path / "cp", group="g")
    put(queue, 0, [1, 2])
    removed(queue, 0, 5)
    assert "[DATA_LOSS]" in failed(lambda: consume(queue, tmp_path / "cp", group="g"))
    assert consume(queue, tmp_path / "cp", group="g", failOnDataLoss="false") == []
    put(queue, 0, [3])
    assert places(flat(consume(queue, tmp_path / "cp", group="g", failOnDataLoss="false"))) == [(0, 22)]
    put(queue, 0, [4])
    assert places(flat(consume(queue, tmp_path / "cp", group="g"))) == [(0, 23)]


def test_starting_offset_that_is_gone(queue: str, tmp_path: Path) -> None:
    """Q7: a JSON offset before the first message that is left."""
    removed(queue, 0, 2)
    options = {"group": "g", "startingOffsets": '{"q": {"0": 3}}'}
    assert "[OFFSET_OUT_OF_RANGE]" in failed(lambda: consume(queue, tmp_path / "cp", **options))
    assert partq.list_groups(queue) == []
    rows = flat(consume(queue, tmp_path / "cp2", **options, failOnDataLoss="false"))
    assert places(rows) == [(0, i) for i in range(10, 20)] + [(1, i) for i in range(10)]


def test_queue_shorter_than_the_position(queue: str, tmp_path: Path) -> None:
    """Q7: a partition put back to an older state (a restored backup) is noticed, not waited at for ever."""
    consume(queue, tmp_path / "cp", group="g")
    log = Path(queue) / "queues/q/partitions/partition=0/_delta_log"
    for version in (3, 4):
        (log / f"{version:020d}.json").unlink()
    assert opened(queue).partitions[0].next_offset == 10
    text = failed(lambda: consume(queue, tmp_path / "cp", group="g"))
    assert "[DATA_LOSS]" in text and "partition 0" in text


def test_corrupt_file(queue: str, tmp_path: Path) -> None:
    """Bad input: a damaged file is named, and nothing after it is acknowledged."""
    index = opened(queue).partitions[1].index
    broken = Path(queue) / "queues/q/partitions/partition=1" / index.path(1)
    good = broken.read_bytes()
    broken.write_bytes(b"no parquet")
    text = failed(lambda: consume(queue, tmp_path / "cp", group="g"))
    assert "[CORRUPT_TABLE]" in text and broken.name in text and "offsets 5 to 9 of partition 1" in text
    assert [position(queue, "g", p) for p in range(3)] == [0, 0, 0]
    broken.write_bytes(good)
    assert places(flat(consume(queue, tmp_path / "cp", group="g"))) == everything()


# ---- checkpoints of something else
def test_checkpoint_of_another_group(queue: str, tmp_path: Path) -> None:
    consume(queue, tmp_path / "cp", group="g")
    text = failed(lambda: consume(queue, tmp_path / "cp", group="h"))
    assert "[CHECKPOINT_MISMATCH]" in text and "'g'" in text and "'h'" in text
    assert partq.list_groups(queue) == ["g"]


def test_checkpoint_of_another_queue(queue: str, tmp_path: Path) -> None:
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    consume(queue, tmp_path / "cp", group="g")
    text = failed(lambda: consume(queue, tmp_path / "cp", queue="p", group="g"))
    assert "[CHECKPOINT_MISMATCH]" in text and "'q'" in text


def test_checkpoint_of_a_deleted_queue(queue: str, tmp_path: Path) -> None:
    """Q7: a queue created again under an old name inherits no positions."""
    consume(queue, tmp_path / "cp", group="g")
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    put(queue, 0, [7])
    text = failed(lambda: consume(queue, tmp_path / "cp", group="g"))
    assert "[CHECKPOINT_MISMATCH]" in text and "deleted" in text
    assert places(flat(consume(queue, tmp_path / "cp2", group="g"))) == [(0, 0)]


def test_checkpoint_of_another_source(queue: str, tmp_path: Path) -> None:
    other = Checkpoint(tmp_path / "cp")
    other.plan(0, {"offset": 1, "timestamp": 1000})  # as `rate-micro-batch` writes it
    other.commit(0)
    assert "[CHECKPOINT_MISMATCH]" in failed(lambda: consume(queue, tmp_path / "cp", group="g"))


# ---- running queries
def test_two_processes_of_one_instance(queue: str, tmp_path: Path) -> None:
    """Q7, W2: two queries with one instanceId do not both own the partitions."""
    first: list[Row] = []
    old = running(queue, tmp_path / "cp", first, group="g", instanceId="a")
    eventually(lambda: len(first) == 30 and position(queue, "g", 0) == 20, "the first query's messages")
    rows = flat(consume(queue, tmp_path / "cp2", group="g", instanceId="a"))
    assert rows == []
    assert "[FENCED]" in str(eventually(old.exception, "the end of the first query"))


def test_queue_deleted_under_a_query(queue: str, tmp_path: Path) -> None:
    """Q7: a running query ends with a clear error when its queue is deleted, and when another takes its name."""
    seen: list[Row] = []
    query = running(queue, tmp_path / "cp", seen, group="g")
    eventually(lambda: len(seen) == 30, "the messages")
    partq.delete_queue(queue, "q")
    error = str(eventually(query.exception, "the end of the query"))
    # Which of them depends on what the query looks at just then: a queue half deleted, or none.
    gone = ("QUEUE_NOT_FOUND", "QUEUE_NOT_READY", "NOT_A_STORE", "CORRUPT_TABLE")
    assert any(f"[{error_class}]" in error for error_class in gone), error
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    query = running(queue, tmp_path / "cp2", seen, group="h")
    eventually(lambda: "h" in partq.list_groups(queue), "the new query's start")
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=3)
    error = str(eventually(query.exception, "the end of the new query"))
    # Or one half made, or the new one.
    assert any(f"[{error_class}]" in error for error_class in ("CHECKPOINT_MISMATCH", *gone)), error
