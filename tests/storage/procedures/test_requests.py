"""How many requests a micro-batch asks of an object store: docs/object-store.md has these figures."""

from __future__ import annotations

import statistics

import pytest

from spark_partq.core.replica.decide import announce_jump
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.planners import Query
from tests.s3server import S3Server
from tests.scaled import SCHEMA, Sink, make, messages


@pytest.mark.parametrize("partitions", [1, 4, pytest.param(16, marks=pytest.mark.long)])
def test_a_micro_batch(s3: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """By the partitions that it has messages of; and it does not grow with the number of micro-batches before."""
    clock, began_s = SYSTEM.monotonic_s, SYSTEM.monotonic_s()
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: began_s + (clock() - began_s) / 30)  # else time adds to it, too
    store = Store(prefix, s3.options)
    make(store, partitions)
    sink, query = Sink(store), Query(Store(prefix, s3.options), "a")
    asked: dict[str, list[int]] = {"written": [], "planned": [], "read": [], "found nothing": []}

    def since(what: str) -> None:
        asked[what].append(len(s3.asked()))

    for batch in range(24):
        s3.asked()
        sink.write(batch, messages(200 * batch, 200 * batch + 200, keys=97))
        since("written")
        planned = query.next()
        since("planned")
        assert len(planned) == partitions
        for pieces in query.planner.tasks(query.started, query.done):
            for piece in pieces:
                assert sum(rows.num_rows for _, rows in read_slice(store, piece.slice, SCHEMA)) > 0
        since("read")
        query.planner.membership.batch_finished(query.done)
        assert query.next() == {}  # and acknowledges
        since("found nothing")
    query.leave()

    usual = {
        "written": 9 + 5 * partitions,
        "planned": 7 + 2 * partitions,
        "read": partitions,
        "found nothing": 7 + partitions,
    }
    for what, counts in asked.items():
        later = counts[len(counts) // 2 :]
        assert min(later) == usual[what], what
        # Meanwhile checkpoints are written and old entries deleted, in any of these steps.
        assert statistics.mean(later) <= 1.75 * usual[what] + 4, what


@pytest.mark.parametrize("jumps", [0, 20])
def test_a_queue_that_was_promoted(s3: S3Server, prefix: str, jumps: int) -> None:
    """However often its copies have jumped."""
    here, there = Store(f"{prefix}/here", s3.options), Store(f"{prefix}/there", s3.options)
    make(here, 1)
    replicate(here, "q", there.uri)
    for version in range(jumps):
        ReplicaTable(there, "q").decide(lambda state, v=version: announce_jump(state, "groups/g/acks", v))  # type: ignore[misc]
    promote(there, "q")
    sink = Sink(there)
    sink.write(0, messages(0, 10))
    s3.asked()
    sink.write(1, messages(10, 20))
    assert len(s3.asked()) == 9 + 5 + 1
