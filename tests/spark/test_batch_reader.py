"""The batch reader without a JVM: ranges, and what filters leave out (Q6)."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.spark import batch_reader
from spark_partq.spark.batch_reader import BatchReader
from spark_partq.spark.options import Options
from tests.helpers import opened, places, put
from tests.queries import failed, read
from tests.spark.messages import NOON, everything, make_queue


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store, minutes_apart=True)


def test_empty_queue(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    assert read(store) == []


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
def test_offset_ranges(queue: str, options: dict[str, str], expected: list[tuple[int, int]]) -> None:
    """Q6: JSON offsets with -2 and -1; ends are exclusive; what is left out starts at earliest and ends at latest."""
    assert places(read(queue, **options)) == expected


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
def test_time_ranges(queue: str, start: float | None, end: float | None, expected: list[tuple[int, int]]) -> None:
    """Q6: startingTimestamp is inclusive, endingTimestamp exclusive, both in milliseconds since 1970."""
    options: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest"}
    options |= {} if start is None else {"startingTimestamp": millis(start)}
    options |= {} if end is None else {"endingTimestamp": millis(end)}
    assert places(read(queue, **options)) == expected


def test_time_beyond_the_end(queue: str) -> None:
    """Q6: as in Spark's Kafka source, a starting time that nothing follows is an error unless told otherwise."""
    with pytest.raises(partq.OffsetOutOfRangeError, match="startingOffsetsByTimestampStrategy=latest"):
        read(queue, startingTimestamp=millis(60))


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
def test_wrong_options(queue: str, options: dict[str, str], error: str) -> None:
    """Bad input: one error of a stable class."""
    assert f"[{error}]" in failed(lambda: read(queue, **options))


def test_removed_messages(queue: str) -> None:
    """Q8: earliest is the first message that is left; an offset before it is an error or passed over."""
    opened(queue).partitions[0].remove(lambda _: 2)
    assert places(read(queue)) == everything()[10:]
    options = {"startingOffsets": '{"q": {"0": 3}}'}
    with pytest.raises(partq.OffsetOutOfRangeError, match="messages 3 to 9"):
        read(queue, **options)
    assert places(read(queue, **options, failOnDataLoss="false")) == everything()[10:]


def test_several_queues(queue: str) -> None:
    """Q6: several queues of the same columns in one DataFrame."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, [7, 8], queue="p")
    rows = read(queue, "q,p", startingOffsets='{"p": {"0": 1}, "q": {"0": 20}}')
    assert sorted((r._queue, r.v) for r in rows) == [("p", 8)] + [("q", i) for i in range(10)]


def test_tasks_are_bounded(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: a large partition is read by several tasks."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    for _ in range(4):
        put(store, 0, range(5))
    size = int(opened(store).partitions[0].index.size[0])
    monkeypatch.setattr(batch_reader, "_TASK_BYTES", 2 * size)
    tasks = BatchReader(Options.parse({"path": store, "queue": "q"}), StructType()).partitions()
    assert [len(t.pieces) for t in tasks] == [2, 2]


def test_a_store_is_no_option() -> None:
    """Spark makes text of it, without its storage options."""
    store = partq.Store("s3://bucket/queues", {"aws_region": "eu-west-1"})
    with pytest.raises(partq.InvalidArgumentError, match=r"'path', store.uri.*storageOptions.NAME"):
        Options.parse({"path": str(store), "queue": "q"})
