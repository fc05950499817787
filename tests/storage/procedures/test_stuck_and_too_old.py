"""Messages that are stuck in a parent are given to nobody until they are copied: meanwhile they are neither too old nor too many (S6, Q8)."""

from __future__ import annotations

from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.storage.procedures import copy_stuck, maintain
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.store import Store
from tests.helpers import eventually, opened
from tests.planners import Query
from tests.scaled import Crash, Sink, make, messages


def left_by(query: Query | None, store: str, batches: int = 4) -> None:
    """Batches of 20 messages in the parent, of which a query has planned the first 5; then the queue becomes partitioned."""
    sink = Sink(store)
    for batch in range(batches):
        sink.write(batch, messages(20 * batch, 20 * batch + 20, keys=20))
    if query is not None:
        query.next(Limits(max_rows=5))
    partq.scale(store, "q", 2)


def delivered(query: Query) -> int:
    return sum(end - start for _ in range(4) for start, end in query.next().values())


@pytest.mark.parametrize("settings", [{"max_bytes": 1}, {"retention_ms": 0}])
def test_they_stay_until_they_are_copied(store: str, settings: dict[str, Any]) -> None:
    """Then they are messages as any others, so a query hears of it if they are removed."""
    make(store, 0)
    query = Query(store, "a")
    query.next()
    left_by(query, store)
    partq.alter_queue(store, "q", **settings)
    assert partq.maintain(store)[0].removed_messages == 0
    assert partq.describe_queue(store, "q").stuck == 80
    assert partq.copy_stuck(store, "q") == 80
    copied_ms = Store(store).now_ms()
    eventually(lambda: Store(store).now_ms() > copied_ms + 1, "a later millisecond", every_s=0.001)
    assert partq.maintain(store)[0].removed_messages >= 80
    with pytest.raises(partq.DataLossError, match="were removed before group 'g' read them"):
        delivered(query)


def test_those_that_no_group_wants_go(store: str) -> None:
    """Q8: with no group, only their age and their bytes count, as anywhere."""
    make(store, 0, max_bytes=1)
    Sink(store).write(0, messages(0, 20))
    partq.scale(store, "q", 2)
    assert partq.maintain(store)[0].removed_messages == 20


@pytest.mark.parametrize("has_group", [True, False])
def test_a_copy_begins_beside_maintenance(store: str, monkeypatch: pytest.MonkeyPatch, has_group: bool) -> None:
    """Maintenance has listed the parent, as nothing was being copied; then a copy begins, and is interrupted in the middle. Of the partitions,
    maintenance removes messages meanwhile.
    """
    make(store, 0, max_bytes=1)
    query = Query(store, "a") if has_group else None
    if query is not None:
        query.next()
    left_by(query, store)
    listed, copied = maintain._removed, copy_stuck._copy
    pieces: list[Any] = []

    def interrupted(*arguments: Any) -> int:
        pieces.append(arguments)
        if len(pieces) == 2:
            raise Crash
        return copied(*arguments)

    def beside(queue: Queue) -> list[Any]:
        tables = listed(queue)
        monkeypatch.setattr(copy_stuck, "_copy", interrupted)
        with pytest.raises(Crash):
            partq.copy_stuck(store, "q")
        return tables

    monkeypatch.setattr(maintain, "_removed", beside)
    assert partq.maintain(store)[0].removed_messages == 20
    monkeypatch.undo()
    parent = opened(store).table(-1)
    parent.refresh()
    assert (parent.first_offset, parent.next_offset) == (0, 80)
    assert partq.copy_stuck(store, "q") == 60
