"""The streaming reader without a JVM: groups, flows, limits and where it starts (Q7, Q8)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

import spark_partq as partq
from tests.helpers import assert_dense, flat, opened, places, position, put
from tests.queries import Batch, consume, failed, read, source
from tests.spark.messages import everything, make_queue

pytestmark = pytest.mark.usefixtures("ended_queries")


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store)


# ---- rows
def test_rows(queue: str, tmp_path: Path) -> None:
    """Q7, U2: each row has the columns of the batch read, and says where it stands, who got it and under which epoch; nothing is
    redelivered at first."""
    rows = flat(consume(queue, tmp_path / "cp", group="g", instanceId="i"))
    assert places(rows) == everything()
    assert_dense(rows)
    for row in rows:
        assert row.v == row._offset
        assert (row._queue, row._redelivered, row._flow, row._epoch) == ("q", False, "i/0", 1)
    batch = {(r._partition, r._offset): r._enqueued_at for r in read(queue)}
    assert {(r._partition, r._offset): r._enqueued_at for r in rows} == batch
    assert list(rows[0].asDict()) == source(queue).schema().names


def test_flows_are_tasks(store: str, tmp_path: Path) -> None:
    """Q7: `flows` is the number of tasks, each partition belongs to one flow, and its order is kept."""
    partq.create_queue(store, "q", "v bigint", partitions=5)
    for partition in range(5):
        for file in range(3):
            put(store, partition, range(file * 4, file * 4 + 4))
    tasks: list[int] = []

    def look(batch: Batch, _: int) -> None:
        tasks.append(len(batch.tasks))

    batches = consume(store, tmp_path / "cp", each=look, group="g", flows=3, instanceId="i", maxRowsPerTrigger=25)
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


def test_more_flows_than_partitions(queue: str, tmp_path: Path) -> None:
    """Q7: excess flows are tasks without rows."""
    rows = flat(consume(queue, tmp_path / "cp", group="g", flows=7))
    assert places(rows) == everything()


def test_several_actions_read_the_same(queue: str, tmp_path: Path) -> None:
    """Q7: each action on a micro-batch reads the same rows."""
    seen: list[tuple[int, int]] = []

    def twice(batch: Batch, _: int) -> None:
        put(queue, 0, [99])  # a message that comes in between belongs to a later batch
        seen.append((batch.count(), len(batch.collect())))

    first = consume(queue, tmp_path / "cp", each=twice, group="g")
    assert seen == [(30, 30)] and len(first[0]) == 30


def test_two_queues(queue: str, tmp_path: Path) -> None:
    """Q7: one query reads several queues of the same columns, and each keeps its own offsets."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    put(queue, 0, range(7), queue="p")
    rows = flat(consume(queue, tmp_path / "cp", queue="q, p", group="g"))
    assert places(r for r in rows if r._queue == "q") == everything()
    assert places(r for r in rows if r._queue == "p") == [(0, i) for i in range(7)]
    partq.create_queue(queue, "r", "v string", partitions=1)
    with pytest.raises(Exception, match=r"\[INVALID_ARGUMENT\].*different columns"):
        source(queue, "q,r").schema()


# ---- limits
def test_max_rows(queue: str, tmp_path: Path) -> None:
    """Q7: with AvailableNow every micro-batch keeps to maxRowsPerTrigger, and all of them deliver everything once."""
    batches = consume(queue, tmp_path / "cp", group="g", maxRowsPerTrigger=7)
    assert [len(b) for b in batches] == [7, 7, 7, 7, 2]
    assert places(flat(batches)) == everything()
    assert all({r._partition for r in b} == {0, 1} for b in batches[:2]), "shared between the partitions"


def test_max_rows_below_the_number_of_partitions(queue: str, tmp_path: Path) -> None:
    """Q7: a limit of one row still gets everybody served in turn."""
    options = {"group": "g", "maxRowsPerTrigger": 1, "startingOffsets": '{"q": {"0": 16, "1": 7}}'}
    batches = consume(queue, tmp_path / "cp", **options)
    assert [len(b) for b in batches] == [1] * 7
    assert {r._partition for r in flat(batches[:2])} == {0, 1}


def test_max_files(queue: str, tmp_path: Path) -> None:
    """Q7: maxFilesPerTrigger."""
    batches = consume(queue, tmp_path / "cp", group="g", maxFilesPerTrigger=2)
    assert [len(b) for b in batches] == [10, 10, 10]
    assert places(flat(batches)) == everything()


def test_max_bytes(queue: str, tmp_path: Path) -> None:
    """Q7: maxBytesPerTrigger counts stored bytes."""
    size = int(opened(queue).partitions[0].index.size[0])
    batches = consume(queue, tmp_path / "cp", group="g", maxBytesPerTrigger=2 * size)
    assert 3 <= len(batches) <= 6
    assert max(len(b) for b in batches) <= 12
    assert places(flat(batches)) == everything()
    tiny = consume(
        queue, tmp_path / "cp2", group="h", maxBytesPerTrigger="1", startingOffsets='{"q": {"0": 18, "1": 9}}'
    )
    assert [len(b) for b in tiny] == [1, 1, 1]


def test_limits_together(queue: str, tmp_path: Path) -> None:
    """Q7: the narrowest limit holds, and the query never stands still."""
    batches = consume(
        queue, tmp_path / "cp", group="g", maxFilesPerTrigger=1, maxRowsPerTrigger=3, maxBytesPerTrigger="1m"
    )
    assert [len(b) for b in batches] and all(len(b) <= 3 for b in batches)
    assert places(flat(batches)) == everything()


def test_available_now_ends_at_the_present(queue: str, tmp_path: Path) -> None:
    """Q7: AvailableNow does not chase what is written meanwhile."""

    def more(_: Batch, batch_id: int) -> None:
        if batch_id < 20:
            put(queue, 1, [100 + batch_id])

    batches = consume(queue, tmp_path / "cp", each=more, group="g", maxRowsPerTrigger=10)
    assert places(flat(batches)) == everything()
    again = consume(queue, tmp_path / "cp", group="g")
    assert places(flat(again)) == [(1, 10), (1, 11), (1, 12)]


def test_idle_available_now(store: str, tmp_path: Path) -> None:
    """Q7: an empty queue is nothing to wait for."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    assert consume(store, tmp_path / "cp", group="g") == []
    assert consume(store, tmp_path / "cp", group="g") == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": 5}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "2k"}, ReadMaxBytes(2048)),
        ({"maxFilesPerTrigger": 3}, ReadMaxFiles(3)),
    ],
    ids=str,
)
def test_limit_that_spark_is_told(queue: str, options: dict[str, Any], expected: ReadLimit) -> None:
    """Q7: Spark learns of a limit, which its progress shows."""
    made = source(queue, **options)
    assert made.streamReader(made.schema()).getDefaultReadLimit() == expected


# ---- where it starts, and restarts
def test_acknowledged_at_the_end(queue: str, tmp_path: Path) -> None:
    """Q8: when a query has ended by itself, its last batch is acknowledged as well."""
    consume(queue, tmp_path / "cp", group="g", maxRowsPerTrigger=20)
    assert [position(queue, "g", p) for p in range(3)] == [20, 10, 0]
    assert partq.describe_queue(queue, "q").depth == 0
    put(queue, 2, [1, 2])
    described = partq.describe_queue(queue, "q")
    assert [p.depth for p in described.partitions] == [0, 0, 2] and described.groups == ("g",)


def test_restart_with_checkpoint(queue: str, tmp_path: Path) -> None:
    """Q7: the same checkpoint goes on where it was; nothing twice, nothing left out."""
    consume(queue, tmp_path / "cp", group="g")
    assert consume(queue, tmp_path / "cp", group="g") == []
    put(queue, 2, range(3))
    rows = flat(consume(queue, tmp_path / "cp", group="g"))
    assert places(rows) == [(2, 0), (2, 1), (2, 2)]
    assert [r._redelivered for r in rows] == [False] * 3


def test_restart_without_checkpoint(queue: str, tmp_path: Path) -> None:
    """Q7: without its checkpoint a query goes on at the group's position, whatever startingOffsets says."""
    consume(queue, tmp_path / "cp", group="g")
    put(queue, 0, [20, 21])
    rows = flat(consume(queue, tmp_path / "cp2", group="g", startingOffsets="earliest"))
    assert places(rows) == [(0, 20), (0, 21)]
    assert {r._epoch for r in rows} == {3}, "the first query's leaving ended an epoch too"


def test_groups_are_apart(queue: str, tmp_path: Path) -> None:
    """Q7: another group, or none, reads everything again; nameless ones get names of their own."""
    for number, options in enumerate(({"group": "g"}, {"group": "h"}, {}, {})):
        assert places(flat(consume(queue, tmp_path / str(number), **options))) == everything()
    groups = partq.list_groups(queue)
    assert len(groups) == 4 and {"g", "h"} < set(groups)


def test_checkpoint_of_a_nameless_group(queue: str, tmp_path: Path) -> None:
    """Q7: the group that a query without one was given is kept in its checkpoint."""
    consume(queue, tmp_path / "cp")
    put(queue, 2, [1])
    assert places(flat(consume(queue, tmp_path / "cp"))) == [(2, 0)]
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
def test_starting_offsets(queue: str, tmp_path: Path, options: dict[str, str], expected: list[int]) -> None:
    """Q7: earliest, latest and JSON offsets, of a group that is new."""
    rows = flat(consume(queue, tmp_path / "cp", group="g", **options))
    assert [sum(r._partition == p for r in rows) for p in range(2)] == expected
    for partition, end in ((0, 20), (1, 10)):
        offsets = [r._offset for r in rows if r._partition == partition]
        assert offsets == list(range(end - len(offsets), end))


def test_latest_then_new_messages(queue: str, tmp_path: Path) -> None:
    """Q7: latest is where the end was at the first start, not at each one."""
    assert consume(queue, tmp_path / "cp", group="g", startingOffsets="latest") == []
    put(queue, 1, [10])
    assert places(flat(consume(queue, tmp_path / "cp", group="g", startingOffsets="latest"))) == [(1, 10)]


def test_starting_timestamp(queue: str, tmp_path: Path) -> None:
    """Q7: startingTimestamp is milliseconds since 1970 and compared with `_enqueued_at`."""
    third = int(opened(queue).partitions[0].index.enqueued_us[2])
    options = {"startingTimestamp": -(-third // 1000), "startingOffsetsByTimestampStrategy": "latest"}
    time.sleep(0.002)
    put(queue, 0, [20])
    rows = flat(consume(queue, tmp_path / "cp", group="g", **options))
    assert [r for r in rows if r._enqueued_at.timestamp() * 1000 < options["startingTimestamp"] - 0.001] == []
    index = opened(queue).partitions[0].index
    first = int(index.base[index.enqueued_us >= options["startingTimestamp"] * 1000][0])
    assert places(r for r in rows if r._partition == 0) == [(0, i) for i in range(first, 21)]
    strict = {"startingTimestamp": int(time.time() * 1000) + 60_000}
    text = failed(lambda: consume(queue, tmp_path / "cp2", group="h", **strict))
    assert "[OFFSET_OUT_OF_RANGE]" in text and "startingOffsetsByTimestampStrategy" in text
