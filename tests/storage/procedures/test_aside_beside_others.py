"""Messages are put aside and put back while other members of the group, and other queues, go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures import redrive as redriving
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.store import Store
from tests.helpers import opened, put
from tests.storage.procedures import test_dead_letters as dying
from tests.storage.procedures.test_held_keys import Producing, Query, make, put_back


def test_messages_of_partitions_that_drain(store: str) -> None:
    """A query starts again while another one joins: each that was delivered so often comes alone, also of what it hands over."""
    partq.create_queue(
        store, "q", "v bigint", key="v", partitions=4, rebalance_delay_ms=0, dead_letter_queue="dead", max_deliveries=3
    )
    for number in range(4):
        put(store, number, [number])
    query = dying.Query(store, {3})
    for _ in range(2):
        assert not query.run()
    planner = Planner(query._settings, "g", "a")
    with planner.membership.work.planning(), planner.membership.lock:
        planner.membership.join_unless_member(lambda: None, anew=False)
    other = Planner(replace(query._settings, instance_id="c"), "g", "c")
    assert other.next(dying._NOTHING, Limits()) is None
    assert planner.tasks(query.offsets[-2], query.offsets[-1]) == [()]
    kinds = [row["kind"] for row in open_group(Store(store), "g").history()]
    assert kinds.count("HandoffStarted") == 2 and kinds.count("Isolated") == 4
    for each in (planner, other):
        each.membership.stopping.set()


def test_put_back_of_what_is_put_aside_meanwhile(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is there when the dead-message queue is searched; what comes then, before its keys are released, is put back, too."""
    make(store, partitions=1)
    producing, query = Producing(store), Query(store, {1})
    producing.put(("a", 1), ("a", 2))
    query.run()
    assert put_back(store) == {"q": 2}
    query.deadly = {3}
    query.run()
    producing.put(("c", 3), ("c", 4))
    origins, acts = redriving._origins, [query.run]

    def searched(queue: Queue, named: Collection[str]) -> Any:
        found = origins(queue, named)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(redriving, "_origins", searched)
    assert put_back(store) == {"q": 2}
    query.deadly.clear()
    producing.put(("c", 5))
    query.run()
    assert query.of("c") == [3, 4, 5]


@pytest.mark.parametrize("name", ["q", "dead"])
def test_put_back_waits_for_no_other_queue(store: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A group of another queue that shares the dead-message queue puts something aside whenever that is searched."""
    make(store)
    partq.create_queue(store, "other", "k string, v bigint", key="k", partitions=1, dead_letter_queue="dead")
    Producing(store, "other").put(*(("b", n) for n in range(10)))
    producing, query = Producing(store), Query(store, {1})
    producing.put(("a", 1), ("a", 2))
    query.run()
    other, origins, found = opened(store, "other"), redriving._origins, list[int]()

    def searched(queue: Queue, named: Collection[str]) -> Any:
        at = len(found)
        DeadLetters(other.store, "dead", "h").send(other, other.table(0), 1, DeadMessages(at, at + 1, "dead", 2))
        found.append(at)
        return origins(queue, named)

    monkeypatch.setattr(redriving, "_origins", searched)
    put_back(store, name)
    assert len(found) == 2 and [m.payload["v"] for m in partq.dead_letters(store, "q") if m.redriven][:2] == [1, 2]
