"""Micro-batches that failed, and are run again: without a JVM (Q7, Q8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

import spark_partq as partq
from tests.helpers import eventually, flat, places, position, put
from tests.queries import Batch, Query, consume, running
from tests.spark.messages import everything, make_queue

pytestmark = pytest.mark.usefixtures("ended_queries")


@pytest.fixture
def queue(store: str) -> str:
    """See `make_queue`."""
    return make_queue(store)


class Once(Exception):
    pass


def fail_once(at: int = 0) -> tuple[list[list[Row]], Any]:
    """A `foreachBatch` function that takes each batch's rows and fails the first time at batch `at`."""
    seen: list[list[Row]] = []
    left = [1]

    def take(batch: Batch, batch_id: int) -> None:
        seen.append(batch.collect())
        if batch_id == at and left:
            left.pop()
            raise Once("the first time fails")

    return seen, take


def run_batches(store: str, checkpoint: Path, take: Any, **options: Any) -> None:
    Query(store, checkpoint, take, available_now=True, **options).awaitTermination()


def fails(store: str, checkpoint: Path, take: Any, **options: Any) -> None:
    with pytest.raises(Once):
        run_batches(store, checkpoint, take, **options)


@pytest.mark.parametrize(
    ("at", "names"), [(0, {}), (0, {"group": "g"}), (1, {"group": "g", "instanceId": "i"}), (1, {})], ids=str
)
def test_replay_of_a_failed_batch(queue: str, tmp_path: Path, at: int, names: dict[str, str]) -> None:
    """Q7: a batch that failed comes again with the same rows, marked as redelivered, though there is more by now."""
    seen, take = fail_once(at)
    options = {**names, "maxRowsPerTrigger": 12, "flows": 2}
    fails(queue, tmp_path / "cp", take, **options)
    assert len(seen) == at + 1 and not any(r._redelivered for r in flat(seen))
    (group,) = partq.list_groups(queue)
    assert sum(position(queue, group, p) or 0 for p in range(3)) == 12 * at
    put(queue, 2, [5])
    run_batches(queue, tmp_path / "cp", take, **options)
    again = seen[at + 1]
    assert [(r.v, r._partition, r._offset, r._enqueued_at, r._flow) for r in again] == [
        (r.v, r._partition, r._offset, r._enqueued_at, r._flow) for r in seen[at]
    ]
    assert all(r._redelivered for r in again)
    rest = flat(seen[at + 2 :])
    assert not any(r._redelivered for r in rest)
    assert places([*flat(seen[:at]), *again, *rest]) == [*everything(), (2, 0)]
    assert partq.list_groups(queue) == [group]


def test_replay_after_retention_of_acknowledged_files(queue: str, tmp_path: Path) -> None:
    """Q7, Q8: maintenance between a failure and the replay removes nothing that the replay needs."""
    seen, take = fail_once(1)
    options = {"group": "g", "maxFilesPerTrigger": 2}
    fails(queue, tmp_path / "cp", take, **options)
    (report,) = partq.maintain(queue, "q")
    assert report.removed_messages == len(seen[0]) == 10
    run_batches(queue, tmp_path / "cp", take, **options)
    assert places(seen[2]) == places(seen[1])
    assert places([*seen[0], *flat(seen[2:])]) == everything()


def test_replay_when_another_took_over(store: str, tmp_path: Path) -> None:
    """Q7: what another instance has delivered and acknowledged meanwhile is not delivered by the replay as well."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    put(store, 0, range(20))
    put(store, 1, range(10))
    options = {"group": "g", "sessionTimeoutMs": "500"}
    seen, take = fail_once(0)
    fails(store, tmp_path / "cp", take, instanceId="a", **options)
    other: list[Row] = []
    query = running(store, tmp_path / "cp2", other, instanceId="b", **options)
    eventually(lambda: position(store, "g", 0) == 20 and position(store, "g", 1) == 10, "the other's work")
    query.stop()
    assert len(other) == 30 and all(r._redelivered for r in other), "the first was given them all"
    put(store, 0, [20])
    run_batches(store, tmp_path / "cp", take, instanceId="b", **options)
    assert places(flat(seen[1:])) == [(0, 20)]
    assert [position(store, "g", p) for p in range(2)] == [21, 10]


def test_instance_without_its_checkpoint_reads_the_failed_batch_again(queue: str, tmp_path: Path) -> None:
    """Q7: a failed batch was not acknowledged, so a start without the checkpoint delivers it."""
    _, take = fail_once(0)
    fails(queue, tmp_path / "cp", take, group="g", instanceId="a")
    rows = flat(consume(queue, tmp_path / "cp2", group="g", instanceId="a"))
    assert places(rows) == everything()
