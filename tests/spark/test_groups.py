"""Several queries of one group, in one session: what an application sees of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import spark_partq as partq
from spark_partq.core.group.events import Leave
from spark_partq.core.group.facts import Status
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests.helpers import balanced_queue, eventually, group_state, places, position, put, running, stream

pytestmark = pytest.mark.usefixtures("stopped_queries")

PARTITIONS = 4


@pytest.fixture
def queue(store: str) -> str:
    return balanced_queue(store, PARTITIONS)


def owners(store: str) -> dict[int, str | None]:
    return {number: own.flow for (_, number), own in sorted(group_state(store).partitions.items())}


def shared(store: str, instances: int = 2) -> bool:
    state = group_state(store)
    names = {(own.flow or "").rpartition("/")[0] for own in state.partitions.values()}
    return state.status is Status.READY and len(names) == instances


class RecordingListener:
    """A listener that remembers, in one list with the micro-batches."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[tuple[str, int]]) -> None:
        self.events.append(("lost", partitions))

    def on_active_changed(self, flow: str, active: bool) -> None:
        self.events.append(("active" if active else "standby", flow))

    def of(self, kind: str) -> list[Any]:
        return [what for name, what in self.events if name == kind]


def test_two_queries_share(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """R1, H1, H2, H6, W3: the second query gets half, cleanly; each is told in order with its micro-batches; the first
    takes the rest again when the second leaves."""
    listener = RecordingListener()
    partq.add_listener(spark, "g", listener)

    def note(df: DataFrame, _: int) -> None:
        rows = df.collect()
        listener.events.append(("batch", {r._partition for r in rows}))
        first.extend(rows)

    first: list[Row] = []
    query = (
        stream(spark, queue, group="g", instanceId="a")
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(tmp_path / "a"))
        .start()
    )
    eventually(lambda: len(first) == 20, "the first query's messages")
    second: list[Row] = []
    other = running(spark, queue, tmp_path / "b", second, group="g")
    eventually(lambda: shared(queue), "both have half")
    for partition in range(PARTITIONS):
        put(queue, partition, [5])
    eventually(lambda: len(first) == 22 and len(second) == 2, "the new messages")
    # A query that is stopped in the middle of a micro-batch leaves its messages to the next owner, again.
    eventually(lambda: all(position(queue, "g", p) == 6 for p in range(PARTITIONS)), "their acknowledgement")
    other.stop()
    eventually(lambda: set(owners(queue).values()) == {"a/0"}, "the first has all again")
    for partition in range(PARTITIONS):
        put(queue, partition, [6])
    eventually(lambda: len(first) == 26, "the last messages")
    query.stop()
    assert places([*first, *second]) == [(p, o) for p in range(PARTITIONS) for o in range(7)]
    assert not any(r._redelivered for r in [*first, *second])

    moved = {("q", r._partition) for r in second}
    # The listener hears of both queries of this driver; only those of the first are in order with its batches.
    kinds = [kind for kind, what in listener.events if kind != "batch"]
    assert kinds[0] == "assigned" and listener.of("assigned")[0] == [("q", p) for p in range(PARTITIONS)]
    assert kinds[1] == "active" and "a/0" in listener.of("active")
    assert moved <= {partition for what in listener.of("revoked") for partition in what}
    revoked = next(i for i, (kind, _) in enumerate(listener.events) if kind == "revoked")
    before = [what for kind, what in listener.events[:revoked] if kind == "batch"]
    assert set().union(*before) == set(range(PARTITIONS)), "what is revoked was delivered before"
    again = max(i for i, (kind, what) in enumerate(listener.events) if kind == "assigned" and set(what) & moved)
    between = [what for kind, what in listener.events[revoked:again] if kind == "batch"]
    assert not {p for what in between for p in what} & {number for _, number in moved}
    assert listener.of("lost") == []


def test_where_a_member_runs(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """K8, R7: history and description say in which application a member joined, and which executors that had; a member whose
    session has expired says it again when it is back."""
    seen: list[Row] = []
    running(spark, queue, tmp_path / "a", seen, group="g", instanceId="a")
    eventually(lambda: len(seen) == 20, "the messages")
    group = Group(Store.at(queue), "g")
    group.refresh()
    expired = Leave("a", group.state.members["a"].incarnation, expired=True)
    group.decide(lambda: [expired])

    def joined() -> list[dict[str, Any]]:
        return [json.loads(row["body"]) for row in group.history() if row["kind"] == "MemberJoined"]

    eventually(lambda: len(joined()) == 2, "the member's return")
    application, executors = spark.sparkContext.applicationId, ("driver@127.0.0.1",)
    assert [(said["application"], tuple(said["executors"])) for said in joined()] == [(application, executors)] * 2
    (member,) = partq.describe_group(queue, "g").members
    assert (member.application, member.executors) == (application, executors)


def test_flow_changes(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """H6: each micro-batch's function can tell its tasks which partitions their flow gained and lost."""
    seen: list[dict[str, partq.FlowChange]] = []

    def note(df: DataFrame, _: int) -> None:
        df.collect()
        seen.append(partq.flow_changes(spark, "g"))

    query = (
        stream(spark, queue, group="g", instanceId="a", flows=2, maxRowsPerTrigger=4)
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(tmp_path / "a"))
        .start()
    )
    eventually(lambda: len(seen) >= 5, "the micro-batches")
    second: list[Row] = []
    running(spark, queue, tmp_path / "b", second, group="g")
    eventually(lambda: shared(queue), "both have some")
    put(queue, 0, [5])
    put(queue, 1, [5])
    eventually(lambda: position(queue, "g", 0) == 6 and position(queue, "g", 1) == 6, "the new messages")
    query.stop()
    assert seen[0]["a/0"].gained == seen[0]["a/0"].owned == (("q", 0), ("q", 2))
    assert all(change.gained == change.lost == () for change in seen[1].values())
    lost = [p for changes in seen[5:] for change in changes.values() for p in change.lost]
    gone = {("q", p) for p, flow in owners(queue).items() if flow and not flow.startswith("a/")}
    assert set(lost) <= gone and lost


def test_handoff_with_a_long_trigger(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """H1: a query that plans seldom hands over when its micro-batch has ended, long before its next."""
    seen: list[Row] = []
    query = (
        stream(spark, queue, group="g", instanceId="a")
        .writeStream.foreachBatch(lambda df, _: seen.extend(df.collect()))
        .option("checkpointLocation", str(tmp_path / "a"))
        .trigger(processingTime="1 hour")
        .start()
    )
    eventually(lambda: len(seen) == 20, "the first micro-batch")
    eventually(lambda: position(queue, "g", 3) == 5, "its acknowledgement, without another planner call")
    second: list[Row] = []
    running(spark, queue, tmp_path / "b", second, group="g")
    eventually(lambda: shared(queue), "both have half", timeout_s=15)
    found = Group(Store.at(queue), "g")
    assert not any(row["forced"] for row in found.history())
    query.stop()
    assert second == []


def test_a_listener_that_fails(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """H6: its error stops the query, which else would process what the application does not know of."""

    class Broken(partq.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
            raise ValueError("no room")

    partq.add_listener(spark, "broken", Broken())
    query = running(spark, queue, tmp_path / "cp", [], group="broken")
    error = str(eventually(query.exception, "the end of the query"))
    assert "[LISTENER_FAILED]" in error and "no room" in error
