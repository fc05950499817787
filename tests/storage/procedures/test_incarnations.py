"""Consumers after a promotion: a checkpoint of before is refused, and a new one goes on with nothing skipped (S7, Q7)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.store import Store
from tests.replicas import (
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)

BEGINNING: dict[str, Any] = StreamOffset("g", "a", {}, {}).to_json()


class Query:
    """What a streaming query does around its planner; `checkpoint` is the last offset, as Spark keeps it."""

    def __init__(self, store: str, checkpoint: dict[str, Any], **options: Any) -> None:
        self.checkpoint, self.given = checkpoint, []  # type: tuple[dict[str, Any], list[tuple[int, int, bool]]]
        self._store = Store.at(store)
        settings = ConsumerSettings(self._store, () if "queue_pattern" in options else ("q",), **options)
        self.planner = Planner(settings, "g", "a")
        self.planner.check_checkpoint(StreamOffset.from_json(checkpoint))

    def turn(self) -> None:
        """One micro-batch; the one before is finished. What is given is (partition, value, redelivered)."""
        done = StreamOffset.from_json(json.loads(json.dumps(self.checkpoint)))
        end = self.planner.next(done, Limits())
        if end is None:
            return
        self.checkpoint = end.to_json()
        schema = arrow_schema(queue_state(self._store, "q").schema)
        for task in self.planner.tasks(done, end):
            for piece in task:
                for _, rows in read_slice(self._store, piece.slice, schema):
                    values = rows.column("v").to_pylist()
                    self.given += [(piece.slice.partition, value, piece.redelivered) for value in values]


@contextmanager
def reading(store: str, checkpoint: dict[str, Any] | None = None, **options: Any) -> Iterator[Query]:
    query = Query(store, checkpoint or BEGINNING, **options)
    try:
        yield query
    finally:
        query.planner.leave()


def values(query: Query) -> list[int]:
    return [value for _, value, _ in query.given]


def lost_with_messages(queue: str, there: str, **options: Any) -> dict[str, Any]:
    """A primary is lost after its consumer was given more than the replica has, and the replica is used; the consumer's checkpoint."""
    put(queue, 0, range(10))
    with reading(queue, **options) as query:
        for _ in range(2):
            query.turn()
        sync(queue, there)
        put(queue, 0, range(10, 20))
        for _ in range(2):
            query.turn()
        assert values(query) == list(range(20))
        checkpoint = query.checkpoint
    os.rename(queue, f"{queue}-lost")
    promote(Store.at(there), "q")
    put(there, 0, range(1000, 1015))
    return checkpoint


REFUSED = (
    r"replica of queue 'q' in .*there was promoted after this query's checkpoint.*new checkpointLocation.*group 'g'"
)


@pytest.mark.parametrize("options", [{}, {"queue_pattern": "q.*"}], ids=str)
def test_an_old_checkpoint_is_refused(queue: str, there: str, options: Any) -> None:
    """S7: its offsets name other messages there; with a new one the group skips nothing, and what it had acknowledged stays so."""
    checkpoint = lost_with_messages(queue, there, **options)
    with pytest.raises(partq.CheckpointMismatchError, match=REFUSED), reading(there, checkpoint, **options):
        pass
    with reading(there, **options) as query:
        for _ in range(3):
            query.turn()
        assert values(query) == list(range(1000, 1015))
        with reading(there, query.checkpoint, **options) as again:
            again.turn()
            assert again.given == []


def test_after_a_planned_promotion_too(queue: str, there: str) -> None:
    """S7: nobody can tell from a checkpoint whether all of its primary was copied."""
    sync(queue, there)
    put(queue, 0, range(5))
    with reading(queue) as query:
        query.turn()
        query.turn()
        checkpoint = query.checkpoint
    put(queue, 0, range(5, 8))
    promote(Store.at(there), "q")
    with pytest.raises(partq.CheckpointMismatchError, match=REFUSED), reading(there, checkpoint):
        pass
    with reading(there) as query:
        query.turn()
        assert query.given == [(0, 5, True), (0, 6, True), (0, 7, True)]  # nobody knows what was delivered last


def test_a_checkpoint_of_before_the_first_micro_batch(queue: str, there: str) -> None:
    """Q7: it names no queue, so nothing in it can be wrong."""
    sync(queue, there)
    promote(Store.at(there), "q")
    put(there, 0, [1])
    with reading(there, BEGINNING) as query:
        query.turn()
        assert values(query) == [1]


def test_a_query_that_runs_while_its_store_is_switched(queue: str, there: str) -> None:
    """S7: what is behind its store's path is the promoted replica now; it plans nothing more."""
    put(queue, 0, range(3))
    with reading(queue) as query:
        query.turn()
        query.turn()
        sync(queue, there)
        promote(Store.at(there), "q")
        shutil.rmtree(queue)
        os.rename(there, queue)
        put(queue, 0, range(3, 6))
        with pytest.raises(partq.CheckpointMismatchError, match="was promoted after this query's checkpoint"):
            query.turn()
        assert values(query) == [0, 1, 2]


def test_each_promotion_begins_another_incarnation(queue: str, there: str) -> None:
    """S7: also of a replica's replica; what is copied says which."""
    made = queue_state(Store.at(queue), "q")
    assert made.incarnation == made.queue_id
    sync(queue, there)
    promote(Store.at(there), "q")
    first = queue_state(Store.at(there), "q").incarnation
    sync(there, f"{there}-2")
    assert queue_state(Store.at(f"{there}-2"), "q").incarnation == first
    promote(Store.at(f"{there}-2"), "q")
    assert len({made.queue_id, first, queue_state(Store.at(f"{there}-2"), "q").incarnation}) == 3
    assert partq.describe_queue(there, "q").incarnation == first
