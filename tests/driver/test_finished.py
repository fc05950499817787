"""Word of finished micro-batches, when it reaches a member at an awkward moment (H1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.helpers import position, put


@pytest.fixture
def planner(store: str) -> Iterator[Planner]:
    """Of a query that has five messages to read."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    made = Planner(ConsumerSettings(Store(store), ("q",)), "g", "a")
    yield made
    made.leave()


def test_word_of_an_earlier_run_that_comes_late(planner: Planner) -> None:
    """That it has ended says nothing of the micro-batch that this run has planned since."""
    member = planner.membership
    member.query_terminated()
    assert planner.next(StreamOffset("g", "a", {}, {}), Limits()) is not None
    assert not member._terminated.is_set()
    member.query_terminated()  # so that it leaves at once


def test_word_that_comes_while_the_last_is_handled_is_kept(
    store: str, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = planner.next(StreamOffset("g", "a", {}, {}), Limits())
    assert end is not None
    member, acknowledge = planner.membership, Group.acknowledge
    member.stopping.set()  # so that no other thread handles it
    member.called_s = float("-inf")

    def finished(up_to: int) -> None:
        range_ = replace(end.ranges["q", 0], end=up_to)
        member.batch_finished(replace(end, ranges={("q", 0): range_}))

    def meanwhile(group: Group, *rows: Any) -> None:
        monkeypatch.setattr(Group, "acknowledge", acknowledge)
        finished(4)
        acknowledge(group, *rows)

    monkeypatch.setattr(Group, "acknowledge", meanwhile)
    finished(3)
    member.acknowledge_batch(float("inf"))
    assert position(store, "g", 0) == 3
    member.acknowledge_batch(float("inf"))
    assert position(store, "g", 0) == 4
    member.stopping.clear()  # so that it leaves
