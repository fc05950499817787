"""Members of a group without a JVM: what they acknowledge, how much they may be given, and who does not get in (H5, Q7, R1)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import Row

import spark_partq as partq
from tests.helpers import balanced_queue, eventually, flat, group_state, places, position
from tests.queries import Batch, Query, consume, running

pytestmark = pytest.mark.usefixtures("ended_queries")

PARTITIONS = 4


@pytest.fixture
def queue(store: str) -> str:
    return balanced_queue(store, PARTITIONS)


def test_manual_acknowledgement(queue: str, tmp_path: Path) -> None:
    """H5: nothing is acknowledged but by the application; what it held back is delivered again after a restart, and what it
    acknowledges too late is refused."""
    seen: list[Row] = []
    query = running(queue, tmp_path / "cp", seen, group="g", instanceId="a", ack="manual")
    eventually(lambda: len(seen) == 20, "the messages")
    assert partq.acknowledge(queue, "g", {("q", 0): 3, ("q", 1): 5}) == []
    assert [position(queue, "g", p) for p in range(PARTITIONS)] == [3, 5, 0, 0]
    assert partq.acknowledge(queue, "g", {("q", 0): 1}) == [] and position(queue, "g", 0) == 3
    with pytest.raises(partq.InvalidArgumentError, match="at most 5"):
        partq.acknowledge(queue, "g", {("q", 2): 6})
    with pytest.raises(partq.InvalidArgumentError, match="no partition 9"):
        partq.acknowledge(queue, "g", {("q", 9): 1})
    query.stop()
    again: list[Row] = []
    query = running(queue, tmp_path / "cp", again, group="g", instanceId="a", ack="manual")
    eventually(lambda: len(again) >= 12, "what was not acknowledged")
    assert places(again) == [(0, 3), (0, 4)] + [(p, o) for p in (2, 3) for o in range(5)]
    assert all(r._redelivered for r in again)
    assert partq.acknowledge(queue, "g", {("q", 2): 5}, epochs={("q", 2): 999}) == [("q", 2)]
    assert position(queue, "g", 2) == 0
    assert partq.acknowledge(queue, "g", {("q", 2): 5}) == [] and position(queue, "g", 2) == 5


@pytest.mark.parametrize("ack", ["batch", "manual"])
def test_max_unacked_per_flow(queue: str, tmp_path: Path, ack: str) -> None:
    """H5: no flow is given more than it may leave unacknowledged."""
    batches: list[list[Row]] = []
    more = threading.Event()

    def take(batch: Batch, _: int) -> None:
        batches.append(batch.collect())
        if ack == "manual" and len(batches) > 1:
            more.wait(30)

    query = Query(queue, tmp_path / "cp", take, group="g", flows=2, ack=ack, maxUnackedPerFlow=3)
    if ack == "batch":
        eventually(lambda: len(flat(batches)) == 20, "all messages")
        for rows in batches:
            assert all(len([r for r in rows if r._flow.endswith(flow)]) <= 3 for flow in ("/0", "/1"))
    else:
        eventually(lambda: len(flat(batches)) == 6, "the first messages")
        partq.acknowledge(
            queue, "g", {("q", p): o for p, o in {r._partition: r._offset + 1 for r in flat(batches)}.items()}
        )
        more.set()
        eventually(lambda: len(flat(batches)) == 12, "the next messages")
        assert len(flat(batches)) == 12
    query.stop()


def test_what_is_there_now_in_a_group(queue: str, tmp_path: Path) -> None:
    """Q7, R1: a query that ends by itself waits until it knows what it is given, and reads that."""
    first: list[Row] = []

    def take(batch: Batch, _: int) -> None:
        first.extend(batch.collect())
        if len(first) == 1:  # else nothing might be left for the second
            eventually(lambda: "b" in group_state(queue).members, "the second query")

    Query(queue, tmp_path / "a", take, group="g", instanceId="a", maxRowsPerTrigger=1)
    eventually(lambda: len(first) > 0, "the first query's start")
    second = flat(consume(queue, tmp_path / "b", group="g", instanceId="b"))
    assert second, "its half was there"
    eventually(lambda: len(first) + len(second) >= 20, "all messages")
    assert places([*first, *second]) == [(p, o) for p in range(PARTITIONS) for o in range(5)]


def test_members_that_disagree(queue: str, tmp_path: Path) -> None:
    """Bad input: a query whose options are not those of its group is refused, and the group goes on."""
    partq.create_queue(queue, "other", "v bigint", partitions=1)
    first: list[Row] = []
    query = running(queue, tmp_path / "a", first, group="g")
    eventually(lambda: len(first) == 20, "the messages")
    for number, options in enumerate(({"sessionTimeoutMs": 9000}, {"assignor": "range, sticky"})):
        wrong = running(queue, tmp_path / str(number), [], **{"group": "g", "queue": "q", **options})
        assert "[GROUP_MISMATCH]" in str(eventually(wrong.exception, "the refusal"))
    assert len(group_state(queue).members) == 1 and query.isActive


def test_a_query_that_does_not_plan_any_more(queue: str, tmp_path: Path) -> None:
    """R4: its process lives, and Spark calls the planner no more: `maxPollIntervalMs` later it counts as gone."""
    options = {"group": "g", "sessionTimeoutMs": 500, "maxPollIntervalMs": 1_000}
    first: list[Row] = []
    query = running(queue, tmp_path / "a", first, **options, instanceId="a", every_s=3_600)
    eventually(lambda: len(first) == 20, "its first micro-batch")
    second: list[Row] = []
    running(queue, tmp_path / "b", second, **options, instanceId="b")
    eventually(lambda: "b" in group_state(queue).members, "the other query")
    eventually(lambda: "a" not in group_state(queue).members, "the end of the session", 20)
    assert query.isActive
    eventually(lambda: {own.flow for own in group_state(queue).partitions.values()} == {"b/0"}, "all for the other")
